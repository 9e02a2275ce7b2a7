//! States of selected roots at one revision.

use super::state::RootSnapshot;
use crate::model::{Catalog, RootId, RootReason};
use std::sync::Arc;

/// The wait budget ended before the scan of a root that makes progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadlineExceeded;

/// States of all selected roots at one revision.
#[derive(Debug, Clone)]
pub struct CatalogView {
    /// Revision of the states.
    pub revision: u64,
    /// States in the order of the selection.
    pub roots: Vec<RootView>,
}

/// State of one selected root.
#[derive(Debug, Clone)]
pub struct RootView {
    /// Id in the selection.
    pub id: RootId,
    /// State at the revision of the view.
    pub state: RootState,
}

/// State of a root.
#[derive(Debug, Clone)]
pub enum RootState {
    /// The root was scanned.
    Snapshot(RootSnapshot),
    /// The first scan has not ended.
    Pending,
    /// The root cannot be used and is not watched.
    Unavailable(RootReason),
}

impl RootState {
    /// Returns the catalog if the root is ready.
    #[must_use]
    pub fn catalog(&self) -> Option<&Arc<Catalog>> {
        match self {
            Self::Snapshot(snapshot) => snapshot.catalog.as_ref().ok(),
            Self::Pending | Self::Unavailable(_) => None,
        }
    }

    /// Returns the reason if the root cannot be used.
    #[must_use]
    pub fn reason(&self) -> Option<RootReason> {
        match self {
            Self::Snapshot(snapshot) => snapshot.catalog.as_ref().err().copied(),
            Self::Pending => None,
            Self::Unavailable(reason) => Some(*reason),
        }
    }

    /// Whether both states have the identical catalog, not only an equal catalog.
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
