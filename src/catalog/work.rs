//! The searches and reads of one root, as they stand.

use super::bell::Bell;
use super::ledger::Key;
use crate::disk::Progress;
use crate::domain::Reason;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

/// The searches and reads of one root.
#[derive(Debug)]
pub(super) struct Work {
    /// Searches are counted from 1. The latest that somebody waits for.
    pub(super) wanted: u64,
    /// The latest that began.
    pub(super) started: u64,
    /// The latest that ended. A watch holds only the latest, so it is never full.
    pub(super) done: watch::Sender<u64>,
    /// What is done on the disk just now.
    pub(super) under_way: UnderWay,
    /// Where the watcher and all who want a search ring.
    pub(super) bell: Arc<Bell>,
    /// When somebody last asked.
    pub(super) last_use: Instant,
    /// Held by every stream that shows the root.
    pub(super) users: Arc<()>,
    /// Reads of this root at once; further ones wait here, and a root that hangs holds up only its
    /// own.
    pub(super) reads: Arc<Semaphore>,
}

impl Work {
    pub(super) fn new(max_reads: usize) -> Self {
        Self {
            wanted: 0,
            started: 0,
            done: watch::Sender::new(0),
            under_way: UnderWay::default(),
            bell: Arc::default(),
            last_use: Instant::now(),
            users: Arc::default(),
            reads: Arc::new(Semaphore::new(max_reads)),
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.started > *self.done.borrow()
    }

    pub(super) fn is_used(&self) -> bool {
        Arc::strong_count(&self.users) > 1
    }
}

/// The work of one root on the disk that is under way, if any is. Cheap to clone; all clones are one.
#[derive(Debug, Clone, Default)]
pub(super) struct UnderWay(Arc<Mutex<Option<Arc<Progress>>>>);

impl UnderWay {
    pub(super) fn begin(&self) -> Arc<Progress> {
        self.lock().insert(Arc::default()).clone()
    }

    pub(super) fn end(&self) {
        *self.lock() = None;
    }

    /// How long ago it began; zero where there is none.
    pub(super) fn age(&self) -> Duration {
        self.lock().as_ref().map_or(Duration::ZERO, |progress| progress.age())
    }

    /// How long nothing has gone on in it; zero where there is none.
    pub(super) fn quiet(&self) -> Duration {
        self.lock().as_ref().map_or(Duration::ZERO, |progress| progress.quiet())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Progress>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Roots are looked after while it is held.
#[derive(Debug)]
pub struct Lease {
    pub(super) _users: Vec<Arc<()>>,
    /// Of those that were selected.
    pub(super) keys: Vec<Result<Key, Reason>>,
}
