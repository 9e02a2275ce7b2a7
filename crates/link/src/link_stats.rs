//! Numbers of a link, for its metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers of a link since its start.
#[derive(Debug, Default)]
pub struct LinkStats {
    /// Environments that the link serves now.
    pub served_environments: LinkNumber,
    /// How often another link took an environment.
    pub superseded: LinkNumber,
    /// Open tunnels.
    pub open_tunnels: LinkNumber,
    /// Requests for tunnels.
    pub dials: LinkNumber,
    /// Requests without a tunnel.
    pub refused_dials: LinkNumber,
}

/// Number that tasks change.
#[derive(Debug, Default)]
pub struct LinkNumber(AtomicU64);

impl LinkNumber {
    /// Returns the number.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds one.
    pub fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Subtracts one.
    pub fn decrement(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
