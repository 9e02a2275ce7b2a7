//! Cancellation of long work: the caller holds the guard, and the work checks the token between
//! chunks.

use std::io;
use std::sync::{Arc, Weak};

/// Cancels the work when it is dropped.
#[derive(Debug)]
pub struct CancelGuard {
    _alive: Arc<()>,
}

/// Whether the guard still exists.
#[derive(Debug)]
pub struct CancelToken(Weak<()>);

impl CancelToken {
    /// Creates a guard and its token.
    #[must_use]
    pub fn new() -> (CancelGuard, Self) {
        let alive = Arc::new(());
        let wanted = Self(Arc::downgrade(&alive));
        (CancelGuard { _alive: alive }, wanted)
    }

    /// Returns `Err` once the caller has gone. The error is discarded.
    pub(super) fn check_cancelled(&self) -> io::Result<()> {
        match self.0.strong_count() {
            0 => Err(io::Error::other("canceled")),
            _ => Ok(()),
        }
    }
}
