//! Values of one process. After a fork, the child must not use them: a lock may be held by a thread
//! that the child does not have, and both processes share the descriptors of the runtime.

use crate::failure::Failure;
use crate::runtime;
use std::mem;
use std::process;

/// Value that only the process of its creation uses and drops.
#[derive(Debug)]
pub struct ProcessBound<T> {
    pid: u32,
    /// `None` only while the value is dropped.
    value: Option<T>,
}

impl<T> ProcessBound<T> {
    /// Binds a value to this process.
    pub fn new(value: T) -> Self {
        Self {
            pid: process::id(),
            value: Some(value),
        }
    }

    /// Returns the value, or an error in a child of the process.
    pub fn get(&self) -> Result<&T, Failure> {
        match &self.value {
            Some(value) if self.is_own() => Ok(value),
            _ => Err(Failure::forked()),
        }
    }

    /// Returns whether this process created the value.
    pub fn is_own(&self) -> bool {
        self.pid == process::id()
    }
}

impl<T> Drop for ProcessBound<T> {
    fn drop(&mut self) {
        let value = self.value.take();
        if !self.is_own() {
            // Forgotten: a drop would take locks of threads that this process does not have.
            mem::forget(value);
            return;
        }

        // A connection that ends needs the runtime.
        let Ok(runtime) = runtime::current() else {
            return;
        };
        let _context = runtime.enter();
        drop(value);
    }
}
