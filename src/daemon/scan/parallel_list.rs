//! Disk work of a scan on a few threads: listings of many directories, and reads of many plugins.

use super::dir_lister::{DirLister, ListBuffers};
use super::scan_progress::ScanProgress;
use super::scanned_dir::{DirToScan, ListedDir};
use caproot_core::sync::{Mutex, processor_count, report_refused_thread};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::{Builder, scope};

/// Maximum number of threads. More threads would only wait for the disk.
const MAX_THREADS: usize = 8;
/// Maximum number of directories that are listed without additional threads.
const MAX_INLINE_DIRS: usize = 8;

/// Lists directories under new tokens. Uses several threads for many directories. Calls `take` on
/// this thread in the order of `dirs`, as soon as all earlier directories are listed.
pub fn list_dirs(
    lister: &DirLister<'_>,
    dirs: &[DirToScan],
    next_token: &AtomicU64,
    progress: &ScanProgress,
    mut take: impl FnMut(&DirToScan, u64, ListedDir),
) {
    process_in_order(
        dirs,
        MAX_INLINE_DIRS,
        progress,
        |dir, buffers: &mut ListBuffers| {
            let token = next_token.fetch_add(1, Ordering::Relaxed);
            (token, lister.list_dir(dir, token, buffers))
        },
        |dir, (token, listed)| take(dir, token, listed),
    );
}

/// Processes items with `work`, on several threads if there are more than `max_inline` items. Calls
/// `take` on this thread in the order of `items`, as soon as all earlier items are processed. `work`
/// gets a buffer of its thread. If the system refuses a thread, the other threads do all the work.
pub fn process_in_order<T: Sync, B: Default, R: Send>(
    items: &[T],
    max_inline: usize,
    progress: &ScanProgress,
    work: impl Fn(&T, &mut B) -> R + Sync,
    mut take: impl FnMut(&T, R),
) {
    let queue = WorkQueue {
        items,
        next: AtomicUsize::new(0),
        results: items.iter().map(|_| Mutex::new(None)).collect(),
        progress,
        work,
    };
    let mut ready = items.iter().zip(&queue.results).peekable();
    let mut take_ready = || {
        while let Some(result) = ready.peek().and_then(|(_, result)| result.lock().take()) {
            if let Some((item, _)) = ready.next() {
                take(item, result);
            }
        }
    };

    let is_parallel = items.len() > max_inline;
    let threads = if is_parallel { processor_count() } else { 1 };
    scope(|scope| {
        for _ in 1..threads.min(MAX_THREADS) {
            let spawned = Builder::new().spawn_scoped(scope, || {
                let _registered = progress.register_thread();
                let mut buffer = B::default();
                while queue.process_next(&mut buffer) {}
            });
            if let Err(error) = spawned {
                report_refused_thread(&error);
                break;
            }
        }

        let mut buffer = B::default();
        while queue.process_next(&mut buffer) {
            take_ready();
        }
    });

    // Takes the results that other threads finished last.
    take_ready();
}

/// Items that several threads process, and their results.
struct WorkQueue<'a, T, R, W> {
    items: &'a [T],
    /// Index of the next item.
    next: AtomicUsize,
    results: Vec<Mutex<Option<R>>>,
    progress: &'a ScanProgress,
    work: W,
}

impl<T, R, W> WorkQueue<'_, T, R, W> {
    /// Processes the next item. Returns whether there was one.
    fn process_next<B>(&self, buffer: &mut B) -> bool
    where
        W: Fn(&T, &mut B) -> R,
    {
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        let Some(item) = self.items.get(at) else {
            return false;
        };
        let result = (self.work)(item, buffer);
        *self.results[at].lock() = Some(result);
        self.progress.tick();
        true
    }
}
