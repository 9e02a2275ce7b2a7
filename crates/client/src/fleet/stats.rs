//! Numbers of a fleet, for the metrics of a platform.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

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
    open_connections: Arc<AtomicUsize>,
    dials: AtomicU64,
    failed_dials: AtomicU64,
}

impl FleetCounters {
    pub fn record_dial(&self) {
        self.dials.fetch_add(1, Ordering::Relaxed);
    }

    pub fn record_failed_dial(&self) {
        self.failed_dials.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of open connections, for the connections to count themselves.
    pub fn open_connections(&self) -> Arc<AtomicUsize> {
        self.open_connections.clone()
    }

    /// Returns the counters. The other fields are zero.
    pub fn snapshot(&self) -> FleetStats {
        FleetStats {
            connections: self.open_connections.load(Ordering::Relaxed),
            dials: self.dials.load(Ordering::Relaxed),
            failed_dials: self.failed_dials.load(Ordering::Relaxed),
            ..FleetStats::default()
        }
    }
}
