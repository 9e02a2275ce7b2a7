//! Lists many directories on a few threads.

use super::list::{Listed, Lister};
use super::progress::Progress;
use crate::domain::listing::Visit;
use std::num::NonZero;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// More threads than this only wait for the disk.
const MAX_THREADS: usize = 8;
/// A round of fewer directories is not worth a thread.
const INLINE_VISITS: usize = 8;

/// Lists directories under new tokens, on a few threads where there are many.
pub(super) fn list_all(
    lister: &Lister<'_>,
    visits: Vec<Visit>,
    next_token: &AtomicU64,
    progress: &Progress,
) -> Vec<(Visit, u64, Listed)> {
    let slots: Vec<OnceLock<(u64, Listed)>> = visits.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(visit) = visits.get(at) else { return };
            let token = next_token.fetch_add(1, Ordering::Relaxed);
            let _ = slots[at].set((token, lister.list(visit, token)));
            progress.tick();
        }
    };
    if visits.len() <= INLINE_VISITS {
        work();
    } else {
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
        std::thread::scope(|scope| {
            for _ in 1..threads.min(MAX_THREADS) {
                scope.spawn(work);
            }
            work();
        });
    }
    let results = slots.into_iter().map(|s| s.into_inner().expect("every visit was made"));
    visits.into_iter().zip(results).map(|(visit, (token, listed))| (visit, token, listed)).collect()
}
