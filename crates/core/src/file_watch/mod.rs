//! Watches files by path, such as certificates and the config file. An event is a hint: the caller
//! compares stamps and decides. A timer finds changes without events.
//!
//! The roots of a daemon have another watcher, which watches descriptors of directories.

mod file_changes;
mod stamp;
mod tree;

pub use file_changes::{FileChanges, FileStamps, stamp_files};
pub use stamp::{FileStamp, parent_dirs};
pub use tree::{TreeLimits, TreeState, watch_tree};

use crate::sync::Mutex;
use notify::{ErrorKind, Event, RecommendedWatcher, RecursiveMode, Watcher as _};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

/// Interval of comparisons without events, for example on a network filesystem.
pub const COMPARE_INTERVAL: Duration = Duration::from_secs(10);
/// Time without events before a hint is reported: programs write a file in several steps.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// Maximum delay of a hint while events keep coming.
const MAX_DEBOUNCE: Duration = Duration::from_secs(1);

/// Prints or logs a message about the watcher.
pub type ReportFn = fn(&str);

/// Reason why [`FileHints::wait_for_hint`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HintCause {
    /// Something happened in a watched directory.
    Event,
    /// The interval ended.
    Timer,
}

/// Set of watched directories. Cheap to clone; all clones share one watcher.
#[derive(Debug, Clone)]
pub struct WatchedDirs(Arc<Mutex<WatchedDirsState>>);

#[derive(Debug)]
struct WatchedDirsState {
    watcher: WatcherGuard,
    dirs: BTreeSet<PathBuf>,
    /// Directories whose watch failed. Each failure is reported once.
    failed: BTreeSet<PathBuf>,
    report: ReportFn,
}

/// Receives the hints of a watcher.
#[derive(Debug)]
pub struct FileHints {
    events: Receiver<()>,
    is_watcher_alive: bool,
    report: ReportFn,
}

/// Watcher of the `notify` crate that survives a panic of the crate's thread.
///
/// notify 8.2.1 panics in its thread if poll(2) fails, and then in `watch` and `drop` of the
/// caller.
#[derive(Debug)]
struct WatcherGuard {
    watcher: Option<RecommendedWatcher>,
    is_alive: Arc<AtomicBool>,
}

/// Handles events on notify's thread. When the thread ends, it drops the handler, which clears
/// `is_alive`.
struct EventHandler {
    events: Sender<()>,
    is_alive: Arc<AtomicBool>,
}

/// Starts a watcher that watches no directory yet.
#[must_use]
pub fn start_file_watcher(report: ReportFn) -> (WatchedDirs, FileHints) {
    let (sender, events) = channel(1);
    let is_alive = Arc::new(AtomicBool::new(true));
    let handler = EventHandler {
        events: sender,
        is_alive: is_alive.clone(),
    };

    let watcher = RecommendedWatcher::new(
        move |event: notify::Result<Event>| handler.handle_event(&event),
        notify::Config::default(),
    )
    .map_err(|error| {
        let interval = COMPARE_INTERVAL.as_secs();
        report(&format!(
            "file watcher not available: {error}; comparing files every {interval} s"
        ));
    });

    // A watcher that failed is reported already. `FileHints` would report its closed channel again.
    let hints = FileHints {
        events,
        is_watcher_alive: watcher.is_ok(),
        report,
    };

    let state = WatchedDirsState {
        watcher: WatcherGuard {
            watcher: watcher.ok(),
            is_alive,
        },
        dirs: BTreeSet::new(),
        failed: BTreeSet::new(),
        report,
    };
    (WatchedDirs(Arc::new(Mutex::new(state))), hints)
}

impl WatchedDirs {
    /// Watches these directories and no others. Compare stamps after this call, not before it:
    /// earlier events are not reported. Blocks on the disk.
    pub fn watch_only(&self, dirs: &BTreeSet<PathBuf>) {
        for dir in dirs {
            self.watch(dir);
        }
        self.unwatch_others(dirs);
    }

    /// Adds a watch. Replaces an existing watch, because another directory may have the path now.
    fn watch(&self, dir: &Path) {
        let mut state = self.0.lock();
        let WatchedDirsState {
            watcher,
            dirs,
            failed,
            report,
        } = &mut *state;

        match watcher.call(|watcher| watcher.watch(dir, RecursiveMode::NonRecursive)) {
            Some(Ok(())) => {
                failed.remove(dir);
                dirs.insert(dir.to_owned());
            }
            // The directory was removed, or `FileHints` reports the end of the watcher.
            Some(Err(notify::Error {
                kind: ErrorKind::PathNotFound,
                ..
            }))
            | None => {}
            Some(Err(error)) => {
                if failed.insert(dir.to_owned()) {
                    let (dir, interval) = (dir.display(), COMPARE_INTERVAL.as_secs());
                    report(&format!(
                        "cannot watch {dir}: {error}; comparing every {interval} s"
                    ));
                }
            }
        }
    }

    fn unwatch_others(&self, keep: &BTreeSet<PathBuf>) {
        let mut state = self.0.lock();
        let WatchedDirsState {
            watcher,
            dirs,
            failed,
            ..
        } = &mut *state;
        for dir in dirs.difference(keep) {
            // Fails if the directory was removed together with its watch.
            drop(watcher.call(|watcher| watcher.unwatch(dir)));
        }
        dirs.retain(|dir| keep.contains(dir));
        failed.retain(|dir| keep.contains(dir));
    }
}

impl FileHints {
    /// Waits for an event and the debounce time after it, at most for `interval`.
    pub async fn wait_for_hint(&mut self, interval: Duration) -> HintCause {
        let end = Instant::now() + interval;

        loop {
            if !self.is_watcher_alive {
                sleep_until(end).await;
                return HintCause::Timer;
            }

            match timeout_at(end, self.events.recv()).await {
                Err(_) => return HintCause::Timer,
                Ok(Some(())) => break,
                Ok(None) => {
                    self.is_watcher_alive = false;
                    let interval = COMPARE_INTERVAL.as_secs();
                    let message = "file watcher ended unexpectedly; comparing files every";
                    (self.report)(&format!("{message} {interval} s"));
                }
            }
        }

        let latest = Instant::now() + MAX_DEBOUNCE;
        while Instant::now() < latest {
            if !matches!(timeout(DEBOUNCE, self.events.recv()).await, Ok(Some(()))) {
                break;
            }
        }

        HintCause::Event
    }
}

impl HintCause {
    /// Returns the name for log lines.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Timer => "timer",
        }
    }
}

impl WatcherGuard {
    /// Calls the watcher; `None` if there is none, or its thread ended.
    fn call<T>(&mut self, call: impl FnOnce(&mut RecommendedWatcher) -> T) -> Option<T> {
        if !self.is_alive.load(Ordering::Acquire) {
            return None;
        }
        let watcher = self.watcher.as_mut()?;
        // The thread may end between the check and the call.
        catch_unwind(AssertUnwindSafe(|| call(watcher))).ok()
    }
}

impl Drop for WatcherGuard {
    fn drop(&mut self) {
        let watcher = self.watcher.take();
        if self.is_alive.load(Ordering::Acquire) {
            drop(catch_unwind(AssertUnwindSafe(|| drop(watcher))));
        } else {
            // Dropping the watcher after the end of its thread panics.
            std::mem::forget(watcher);
        }
    }
}

impl EventHandler {
    fn handle_event(&self, event: &notify::Result<Event>) {
        // Comparisons read files, which causes access events.
        let is_access = event.as_ref().is_ok_and(|event| event.kind.is_access());
        if !is_access {
            // If the channel is full, a hint is pending already.
            let _ = self.events.try_send(());
        }
    }
}

impl Drop for EventHandler {
    fn drop(&mut self) {
        self.is_alive.store(false, Ordering::Release);
    }
}
