//! Locks that a panic does not poison. The data behind a lock of this crate is valid between
//! statements, so that other threads can go on after a panic of the thread that held the lock.
//! Also work on blocking threads whose only failure is a panic.

use std::sync::{MutexGuard, PoisonError};
#[cfg(feature = "daemon")]
use std::sync::{RwLockReadGuard, RwLockWriteGuard, TryLockError};

/// Runs work on a blocking thread. The error is a panic of the work. The runtime cancels work that
/// waits for a thread only when the runtime shuts down; the returned future then never ends.
#[cfg(feature = "daemon")]
pub async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, tokio::task::JoinError> {
    match tokio::task::spawn_blocking(work).await {
        Err(error) if error.is_cancelled() => std::future::pending().await,
        result => result,
    }
}

/// [`std::sync::Mutex`] without poisoning.
#[derive(Debug, Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

/// [`std::sync::RwLock`] without poisoning.
#[cfg(feature = "daemon")]
#[derive(Debug, Default)]
pub struct RwLock<T>(std::sync::RwLock<T>);

impl<T> Mutex<T> {
    /// Creates an unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    /// Locks the mutex. Blocks while another thread holds the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the mutex, or returns `None` if another thread holds the lock.
    #[cfg(feature = "daemon")]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

#[cfg(feature = "daemon")]
impl<T> RwLock<T> {
    /// Locks for reading, next to other readers.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks for writing. Blocks while another thread holds the lock.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::Mutex;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_panic_does_not_poison_a_lock() {
        let mutex = Mutex::new(1);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let mut value = mutex.lock();
            *value = 2;
            panic!("while the lock is held");
        }));
        assert!(panicked.is_err());
        assert_eq!(*mutex.lock(), 2);
    }
}
