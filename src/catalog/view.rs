//! What a keeper says of the selected roots.

use super::state::RootSnapshot;
use crate::domain::{Catalog, DiagnosticCode, RootId, RootReason};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// A root that answers could not be searched in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadlineExceeded;

/// All selected roots at one revision, in the order of the selection.
#[derive(Debug, Clone)]
pub struct CatalogView {
    /// The revision.
    pub revision: u64,
    /// One for each selected root.
    pub roots: Vec<RootView>,
}

/// One selected root at one revision.
#[derive(Debug, Clone)]
pub struct RootView {
    /// The id under which it was selected.
    pub id: RootId,
    /// What is known of it.
    pub state: RootState,
}

/// What is known of a root.
#[derive(Debug, Clone)]
pub enum RootState {
    /// What it holds, or why it cannot be used, and how changes are noticed.
    Snapshot(RootSnapshot),
    /// The first search goes on.
    Pending,
    /// It cannot be used, and is not looked after.
    Unavailable(RootReason),
}

impl RootState {
    /// What the root holds, where it is ready.
    #[must_use]
    pub fn catalog(&self) -> Option<&Arc<Catalog>> {
        match self {
            Self::Snapshot(held) => held.catalog.as_ref().ok(),
            Self::Pending | Self::Unavailable(_) => None,
        }
    }

    /// Why it cannot be used, where it cannot.
    #[must_use]
    pub fn reason(&self) -> Option<RootReason> {
        match self {
            Self::Snapshot(held) => held.catalog.as_ref().err().copied(),
            Self::Pending => None,
            Self::Unavailable(reason) => Some(*reason),
        }
    }

    /// Whether two are one, and not only alike.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Snapshot(a), Self::Snapshot(b)) => a.is_same(b),
            (Self::Pending, Self::Pending) => true,
            (Self::Unavailable(a), Self::Unavailable(b)) => a == b,
            _ => false,
        }
    }
}

/// All that is looked after, in numbers.
#[derive(Debug, Clone)]
pub struct CatalogStats {
    /// How changes are noticed.
    pub watch: WatchStats,
    /// The revision now.
    pub revision: u64,
    /// Searches of everything below a root.
    pub full_scans: u64,
    /// Searches of what changed below a root.
    pub partial_scans: u64,
    /// How long all of them took.
    pub scan_time: Duration,
    /// Roots that were searched.
    pub ready: u64,
    /// Roots whose first search goes on.
    pub pending: u64,
    /// Roots that cannot be used.
    pub unavailable: HashMap<RootReason, u64>,
    /// Skills in all catalogs.
    pub skills: u64,
    /// Diagnostics that all catalogs hold.
    pub diagnostics: HashMap<DiagnosticCode, u64>,
}

/// What somebody may see of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)] // the proto's `Holdings` says what each means
pub struct ScopeStats {
    pub ready: usize,
    pub pending: usize,
    pub unavailable: usize,
    pub skills: usize,
    pub errors: usize,
    pub warnings: usize,
}

/// How changes are noticed, in numbers.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)] // the proto's `WatchStatus` says what each means
pub struct WatchStats {
    pub has_inotify: bool,
    pub watches_used: usize,
    pub watches_limit: u64,
    pub overflows: u64,
    pub missed_changes: u64,
    pub roots: usize,
    pub polling_roots: usize,
}

impl WatchStats {
    /// Whether the directories that are watched are over four fifths of those that may be.
    #[must_use]
    pub fn is_near_limit(&self) -> bool {
        let used = u64::try_from(self.watches_used).unwrap_or(u64::MAX);
        self.watches_limit > 0 && used > self.watches_limit / 5 * 4
    }
}
