//! Stops long work that nobody waits for any more: whoever waits holds one end, the work looks at the
//! other between chunks.

use std::io;
use std::sync::{Arc, Weak};

/// Held for as long as somebody waits.
#[derive(Debug)]
pub struct CancelGuard {
    _alive: Arc<()>,
}

/// Whether somebody still waits.
#[derive(Debug)]
pub struct CancelToken(Weak<()>);

impl CancelToken {
    /// Both ends.
    #[must_use]
    pub fn new() -> (CancelGuard, Self) {
        let alive = Arc::new(());
        let wanted = Self(Arc::downgrade(&alive));
        (CancelGuard { _alive: alive }, wanted)
    }

    /// An error, which nobody will see, once nobody waits.
    pub(super) fn check_cancelled(&self) -> io::Result<()> {
        match self.0.strong_count() {
            0 => Err(io::Error::other("nobody waits for it any more")),
            _ => Ok(()),
        }
    }
}
