//! Numbers of a fleet, for the metrics of a platform.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};

/// Numbers of a fleet at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FleetStats {
    /// Clients that the fleet keeps: all in use, and each other for 10 minutes after its last use.
    pub clients: usize,
    /// Shared mirrors in use.
    pub mirrors: usize,
    /// Different catalogs of roots in memory, each of one or more mirrors or idle.
    pub catalogs: usize,
    /// Approximate size in memory of the catalogs that the fleet keeps after their mirrors ended.
    pub idle_catalog_bytes: usize,
    /// Catalogs since the start of the fleet that a mirror took from memory instead of its executor.
    pub catalog_hits: u64,
    /// Catalogs since the start of the fleet whose digest was wrong. They are not shared.
    pub rejected_catalogs: u64,
    /// Open connections.
    pub connections: usize,
    /// Dials in progress, with their TLS handshakes.
    pub dials_in_progress: usize,
    /// Dials that wait because of the limits of the fleet.
    pub waiting_dials: usize,
    /// Dials since the start of the fleet.
    pub dials: u64,
    /// Dials since the start of the fleet that opened no connection.
    pub failed_dials: u64,
    /// Changes of the fleet file that were applied.
    pub file_rereads: u64,
    /// Errors of the fleet file, if its last valid version is in use instead.
    pub file_error: Option<String>,
}

/// Counters of a fleet.
#[derive(Debug, Default)]
pub struct FleetCounters {
    /// Open connections, which count themselves.
    pub open_connections: Arc<AtomicUsize>,
    pub dials: AtomicU64,
    pub failed_dials: AtomicU64,
}
