//! When roots are looked at, and how long is waited for them.

use std::time::Duration;

/// When roots are looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchTiming {
    /// How long after the last event a change is published.
    pub debounce: Duration,
    /// How long after the first event a change is published, however many follow.
    pub max_debounce: Duration,
    /// How often is looked for what no event tells: where links and the root's path lead.
    pub recheck_interval: Duration,
    /// How often a root without events is searched.
    pub poll_interval: Duration,
    /// How often a root with events is searched all the same, give or take a tenth.
    pub full_scan_interval: Duration,
    /// The same, where an overlay filesystem misses events.
    pub overlay_scan_interval: Duration,
    /// How long a root is looked after that nobody asks for.
    pub idle_timeout: Duration,
    /// After how long a search in which nothing goes on makes its root unavailable.
    pub stuck_timeout: Duration,
    /// How long a stream's reader may stop in the middle of a state before it loses its place.
    pub stalled_reader_timeout: Duration,
}

impl Default for WatchTiming {
    fn default() -> Self {
        Self {
            debounce: Duration::from_millis(20),
            max_debounce: Duration::from_millis(500),
            recheck_interval: Duration::from_secs(2),
            poll_interval: Duration::from_secs(5),
            full_scan_interval: Duration::from_mins(10),
            overlay_scan_interval: Duration::from_mins(1),
            idle_timeout: Duration::from_mins(10),
            stuck_timeout: Duration::from_secs(5),
            stalled_reader_timeout: Duration::from_secs(10),
        }
    }
}
