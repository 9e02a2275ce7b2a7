//! What became of the operator's configuration since the daemon started, as data. Leaves reading and
//! applying it to `app`.

use std::time::Duration;

/// What is in force, and what is not. Times are since the Unix epoch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigState {
    /// When what is in force was read.
    pub read_at: Duration,
    /// Reloads that were applied, as far as they could be.
    pub applied_reloads: u64,
    /// Reloads that were refused.
    pub rejected_reloads: u64,
    /// The last reload, if it was refused.
    pub last_rejection: Option<RejectedReload>,
    /// Keys whose new values wait for a restart, in the order of the file's reference.
    pub restart_required: Vec<&'static str>,
}

/// A configuration that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedReload {
    /// When.
    pub rejected_at: Duration,
    /// Where each mistake is, as far as anybody may know: `LINE:COLUMN KEY`.
    pub error_positions: Vec<String>,
    /// The first of them in full, for who runs the daemon.
    pub first_error: String,
}
