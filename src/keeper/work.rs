//! The searches and reads of one root, as they stand.

use super::bell::Bell;
use crate::disk::Progress;
use std::sync::Arc;
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
    /// Of the latest that began.
    pub(super) progress: Arc<Progress>,
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
            progress: Arc::default(),
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

    pub(super) fn begin(&mut self) -> Arc<Progress> {
        self.started += 1;
        self.progress = Arc::default();
        self.progress.clone()
    }
}

/// Roots are looked after while it is held.
#[derive(Debug)]
pub struct Lease {
    pub(super) _users: Vec<Arc<()>>,
}
