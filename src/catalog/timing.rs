//! When roots are looked at, and how long is waited for them.

use std::time::Duration;

/// When roots are looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    /// How long after the last event a change is published.
    pub settle: Duration,
    /// How long after the first event a change is published, however many follow.
    pub settle_cap: Duration,
    /// How often is looked for what no event tells: where links and the root's path lead.
    pub recheck: Duration,
    /// How often a root without events is searched.
    pub poll: Duration,
    /// How often a root with events is searched all the same, give or take a tenth.
    pub audit: Duration,
    /// The same, where an overlay filesystem misses events.
    pub overlay_audit: Duration,
    /// How long a root is looked after that nobody asks for.
    pub warm: Duration,
    /// After how long a search in which nothing goes on makes its root unavailable.
    pub stuck: Duration,
    /// How long a stream's reader may stop in the middle of a state before it loses its place.
    pub stuck_reader: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            settle: Duration::from_millis(20),
            settle_cap: Duration::from_millis(500),
            recheck: Duration::from_secs(2),
            poll: Duration::from_secs(5),
            audit: Duration::from_mins(10),
            overlay_audit: Duration::from_mins(1),
            warm: Duration::from_mins(10),
            stuck: Duration::from_secs(5),
            stuck_reader: Duration::from_secs(10),
        }
    }
}
