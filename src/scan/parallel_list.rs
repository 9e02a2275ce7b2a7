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
    let list = |dir: &DirToScan, buffers: &mut ListBuffers| {
        let token = next_token.fetch_add(1, Ordering::Relaxed);
        (token, lister.list_dir(dir, token, buffers))
    };
    let take = |dir: &DirToScan, (token, listed)| take(dir, token, listed);
    process_in_order(dirs, MAX_INLINE_DIRS, progress, list, take);
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
    let results: Vec<Mutex<Option<R>>> = items.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let process_one = |buffer: &mut B| {
        let at = next.fetch_add(1, Ordering::Relaxed);
        let item = items.get(at)?;
        let result = work(item, buffer);
        *results[at].lock() = Some(result);
        progress.tick();
        Some(())
    };
    let mut ready = items.iter().zip(&results).peekable();
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
            let process_rest = || {
                let mut buffer = B::default();
                while process_one(&mut buffer).is_some() {}
            };
            if let Err(error) = Builder::new().spawn_scoped(scope, process_rest) {
                report_refused_thread(&error);
                break;
            }
        }
        let mut buffer = B::default();
        while process_one(&mut buffer).is_some() {
            take_ready();
        }
    });
    // Takes the results that other threads finished last.
    take_ready();
}
