//! State of the daemon's configuration since the start: reloads, rejections and pending keys.

use std::time::Duration;

/// State of the configuration. Times are durations since the Unix epoch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigState {
    /// Time when the applied configuration was read.
    pub read_at: Duration,
    /// How many reloads were applied, at least in part.
    pub applied_reloads: u64,
    /// How many reloads were rejected.
    pub rejected_reloads: u64,
    /// The last reload, if it was rejected.
    pub last_rejection: Option<RejectedReload>,
    /// The last new lock, if it was rejected.
    pub lock_rejection: Option<RejectedReload>,
    /// Keys whose new values apply after a restart, in the order of the configuration reference.
    pub restart_required: Vec<&'static str>,
}

/// Configuration that a reload rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedReload {
    /// Time of the reload.
    pub rejected_at: Duration,
    /// Position of each error as `LINE:COLUMN KEY`. Any caller may read the positions, so they hold
    /// no values.
    pub error_positions: Vec<String>,
    /// Full message of the first error, for the operator only.
    pub first_error: String,
}
