//! Lists many directories on a few threads.

use super::list::{Listed, Lister, Scratch};
use super::progress::Progress;
use crate::domain::listing::Visit;
use std::num::NonZero;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{available_parallelism, scope};

/// More threads than this only wait for the disk.
const MAX_THREADS: usize = 8;
/// A round of fewer directories is not worth a thread.
const INLINE_VISITS: usize = 8;

/// Where the listing of one visit waits until it is taken.
#[derive(Default)]
struct Slot(Mutex<Option<(u64, Listed)>>);

/// Lists directories under new tokens, on a few threads where there are many, and hands each on in the
/// order of the visits as soon as those before it are there. What `take` does with them is done on this
/// thread while others list.
pub(super) fn list_all(
    lister: &Lister<'_>,
    visits: &[Visit],
    next_token: &AtomicU64,
    progress: &Progress,
    mut take: impl FnMut(&Visit, u64, Listed),
) {
    let slots: Vec<Slot> = visits.iter().map(|_| Slot::default()).collect();
    let next = AtomicUsize::new(0);
    let list_one = |scratch: &mut Scratch| {
        let at = next.fetch_add(1, Ordering::Relaxed);
        let visit = visits.get(at)?;
        let token = next_token.fetch_add(1, Ordering::Relaxed);
        slots[at].put((token, lister.list(visit, token, scratch)));
        progress.tick();
        Some(())
    };
    let mut ready = visits.iter().zip(&slots).peekable();
    let mut take_ready = || {
        while let Some((token, listed)) = ready.peek().and_then(|(_, slot)| slot.take()) {
            if let Some((visit, _)) = ready.next() {
                take(visit, token, listed);
            }
        }
    };
    let is_much = visits.len() > INLINE_VISITS;
    let threads = if is_much { available_parallelism().map_or(1, NonZero::get) } else { 1 };
    scope(|scope| {
        for _ in 1..threads.min(MAX_THREADS) {
            scope.spawn(|| {
                let mut scratch = Scratch::default();
                while list_one(&mut scratch).is_some() {}
            });
        }
        let mut scratch = Scratch::default();
        while list_one(&mut scratch).is_some() {
            take_ready();
        }
    });
    // Those that were under way on other threads.
    take_ready();
}

impl Slot {
    fn put(&self, listed: (u64, Listed)) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(listed);
    }

    fn take(&self) -> Option<(u64, Listed)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
