//! Listing of many directories on a few threads.

use super::dir_lister::{DirLister, ListBuffers};
use super::scan_progress::ScanProgress;
use super::scanned_dir::{DirToScan, ListedDir};
use crate::sync::Mutex;
use std::num::NonZero;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::{available_parallelism, scope};

/// Maximum number of threads. More threads would only wait for the disk.
const MAX_THREADS: usize = 8;
/// Maximum number of directories that are listed without additional threads.
const MAX_INLINE_DIRS: usize = 8;

/// Slot for the listing of one directory, with its token.
#[derive(Default)]
struct ListSlot(Mutex<Option<(u64, ListedDir)>>);

/// Lists directories under new tokens. Uses several threads for many directories. Calls `take` on
/// this thread in the order of `dirs`, as soon as all earlier directories are listed.
pub fn list_dirs(
    lister: &DirLister<'_>,
    dirs: &[DirToScan],
    next_token: &AtomicU64,
    progress: &ScanProgress,
    mut take: impl FnMut(&DirToScan, u64, ListedDir),
) {
    let slots: Vec<ListSlot> = dirs.iter().map(|_| ListSlot::default()).collect();
    let next = AtomicUsize::new(0);
    let list_one = |buffers: &mut ListBuffers| {
        let at = next.fetch_add(1, Ordering::Relaxed);
        let dir = dirs.get(at)?;
        let token = next_token.fetch_add(1, Ordering::Relaxed);
        slots[at].store((token, lister.list_dir(dir, token, buffers)));
        progress.tick();
        Some(())
    };
    let mut ready = dirs.iter().zip(&slots).peekable();
    let mut take_ready = || {
        while let Some((token, listed)) = ready.peek().and_then(|(_, slot)| slot.take()) {
            if let Some((dir, _)) = ready.next() {
                take(dir, token, listed);
            }
        }
    };
    let is_parallel = dirs.len() > MAX_INLINE_DIRS;
    let threads = if is_parallel { available_parallelism().map_or(1, NonZero::get) } else { 1 };
    scope(|scope| {
        for _ in 1..threads.min(MAX_THREADS) {
            scope.spawn(|| {
                let mut buffers = ListBuffers::default();
                while list_one(&mut buffers).is_some() {}
            });
        }
        let mut buffers = ListBuffers::default();
        while list_one(&mut buffers).is_some() {
            take_ready();
        }
    });
    // Takes the listings that other threads finished last.
    take_ready();
}

impl ListSlot {
    fn store(&self, listed: (u64, ListedDir)) {
        *self.0.lock() = Some(listed);
    }

    fn take(&self) -> Option<(u64, ListedDir)> {
        self.0.lock().take()
    }
}
