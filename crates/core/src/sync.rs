//! Locks that a panic does not poison. The data behind a lock of this crate is valid between
//! statements, so that other threads can go on after a panic of the thread that held the lock.
//! Also work on other threads, which continues if the system refuses a thread.

mod blocking;
mod weighted_lru;

pub use blocking::{BlockingError, report_refused_thread, run_blocking, try_thread};
pub use weighted_lru::WeightedLru;

use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::{
    LazyLock, MutexGuard, PoisonError, RwLockReadGuard, RwLockWriteGuard, TryLockError,
};
use std::thread::{Builder, available_parallelism, scope};

/// Maximum number of chunks of [`map_chunks`], so that one call does not take all processors of a
/// large machine.
const MAX_CHUNKS: usize = 4;

/// Returns the number of processors that the process may use, as of the first call. The system
/// reads several files for each query.
#[must_use]
pub fn processor_count() -> usize {
    static COUNT: LazyLock<usize> =
        LazyLock::new(|| available_parallelism().map_or(1, NonZero::get));
    *COUNT
}

/// Maps consecutive chunks of a slice, one on each processor, and returns the results in order.
/// Maps a slice of at most `max_inline` items on this thread. If the system has no further thread,
/// its chunk is mapped on this thread too.
pub fn map_chunks<T: Sync, R: Send>(
    items: &[T],
    max_inline: usize,
    map: impl Fn(&[T]) -> R + Sync,
) -> Vec<R> {
    if items.len() <= max_inline {
        return vec![map(items)];
    }

    let threads = processor_count().min(MAX_CHUNKS);
    let mut chunks = items.chunks(items.len().div_ceil(threads).max(1));
    let first = chunks.next();
    let map = &map;

    scope(|scope| {
        // All threads start before the first chunk is mapped on this thread.
        let others: Vec<_> = chunks
            .map(|chunk| {
                Builder::new()
                    .spawn_scoped(scope, move || map(chunk))
                    .inspect_err(report_refused_thread)
                    .map_err(|_| chunk)
            })
            .collect();

        let first = first.map(map);
        let others = others.into_iter().map(|other| match other {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(chunk) => map(chunk),
        });
        first.into_iter().chain(others).collect()
    })
}

/// [`std::sync::Mutex`] without poisoning.
#[derive(Debug, Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

/// [`std::sync::RwLock`] without poisoning.
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
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

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
    fn chunks_are_mapped_in_order() {
        for len in [0, 1, 2, 5, 1_000] {
            let items: Vec<usize> = (0..len).collect();
            let mapped = super::map_chunks(&items, 1, <[usize]>::to_vec).concat();
            assert_eq!(mapped, items);
        }
    }

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
