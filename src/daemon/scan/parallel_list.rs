//! Disk work of a scan on a few threads: listings of many directories, and reads of many plugins.

use super::scan_progress::ScanProgress;
use caproot_core::sync::{Mutex, processor_count, report_refused_thread};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, scope};

/// Maximum number of threads. More threads would only wait for the disk.
const MAX_THREADS: usize = 8;

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
    let next = AtomicUsize::new(0);
    let results: Vec<_> = items.iter().map(|_| Mutex::new(None)).collect();
    // Returns whether there was a next item.
    let process_next = |buffer: &mut B| {
        let at = next.fetch_add(1, Ordering::Relaxed);
        let Some(item) = items.get(at) else {
            return false;
        };
        let result = work(item, buffer);
        *results[at].lock() = Some(result);
        progress.tick();
        true
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
            let spawned = Builder::new().spawn_scoped(scope, || {
                let _registered = progress.register_thread();
                let mut buffer = B::default();
                while process_next(&mut buffer) {}
            });
            if let Err(error) = spawned {
                report_refused_thread(&error);
                break;
            }
        }

        let mut buffer = B::default();
        while process_next(&mut buffer) {
            take_ready();
        }
    });

    // Takes the results that other threads finished last.
    take_ready();
}
