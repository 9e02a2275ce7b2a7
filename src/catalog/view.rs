//! What a keeper says of the selected roots.

use super::ledger::Held;
use crate::domain::{Catalog, Code, Reason, RootId};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// A root that answers could not be searched in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Late;

/// All selected roots at one revision, in the order of the selection.
#[derive(Debug, Clone)]
pub struct View {
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
    Held(Held),
    /// The first search goes on.
    Pending,
    /// It cannot be used, and is not looked after.
    Unavailable(Reason),
}

impl RootState {
    /// What the root holds, where it is ready.
    #[must_use]
    pub fn catalog(&self) -> Option<&Arc<Catalog>> {
        match self {
            Self::Held(held) => held.content.as_ref().ok(),
            Self::Pending | Self::Unavailable(_) => None,
        }
    }

    /// Why it cannot be used, where it cannot.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Self::Held(held) => held.content.as_ref().err().copied(),
            Self::Pending => None,
            Self::Unavailable(reason) => Some(*reason),
        }
    }

    /// Whether two are one, and not only alike.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Held(a), Self::Held(b)) => a.is(b),
            (Self::Pending, Self::Pending) => true,
            (Self::Unavailable(a), Self::Unavailable(b)) => a == b,
            _ => false,
        }
    }
}

/// All that is looked after, in numbers.
#[derive(Debug, Clone)]
pub struct Figures {
    /// How changes are noticed.
    pub watching: Watching,
    /// The revision now.
    pub revision: u64,
    /// Searches of everything below a root.
    pub full_searches: u64,
    /// Searches of what changed below a root.
    pub partial_searches: u64,
    /// How long all of them took.
    pub search_time: Duration,
    /// Roots that were searched.
    pub ready: u64,
    /// Roots whose first search goes on.
    pub pending: u64,
    /// Roots that cannot be used.
    pub unavailable: HashMap<Reason, u64>,
    /// Skills in all catalogs.
    pub skills: u64,
    /// Diagnostics that all catalogs hold.
    pub diagnostics: HashMap<Code, u64>,
}

/// What somebody may see of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)] // the proto's `Holdings` says what each means
pub struct Holdings {
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
pub struct Watching {
    pub has_events: bool,
    pub used: usize,
    pub allowed: u64,
    pub overflows: u64,
    pub audit_repairs: u64,
    pub roots: usize,
    pub polling_roots: usize,
}

impl Watching {
    /// Whether the directories that are watched are over four fifths of those that may be.
    #[must_use]
    pub fn is_nearly_full(&self) -> bool {
        let used = u64::try_from(self.used).unwrap_or(u64::MAX);
        self.allowed > 0 && used > self.allowed / 5 * 4
    }
}
