//! Waits for changes of single files.

use super::{
    COMPARE_INTERVAL, DEBOUNCE, FileHints, FileStamp, HintCause, MAX_DEBOUNCE, ReportFn,
    WatchedDirs, parent_dirs, start_file_watcher,
};
use crate::sync::run_blocking;
use std::path::PathBuf;
use tokio::time::{Instant, sleep};

/// Stamp of each file; `None` for missing files.
pub type FileStamps = Vec<Option<FileStamp>>;

/// Waits for changes of files that are found by their path.
#[derive(Debug)]
pub struct FileChanges {
    watched: WatchedDirs,
    hints: FileHints,
}

/// Returns the stamps of files. Blocks on the disk.
#[must_use]
pub fn stamp_files(paths: &[PathBuf]) -> FileStamps {
    paths.iter().map(|path| FileStamp::of_path(path)).collect()
}

impl FileChanges {
    /// Starts a watcher that watches no directory yet.
    #[must_use]
    pub fn start(report: ReportFn) -> Self {
        let (watched, hints) = start_file_watcher(report);
        Self { watched, hints }
    }

    /// Waits until the files have other stamps than `last_read` returns, and returns their stamps.
    /// `last_read` is called before each comparison. A writer may have truncated a file a moment
    /// ago, so two comparisons in a row must agree, unless the files keep changing.
    pub async fn wait_for_change(
        &mut self,
        last_read: impl Fn() -> (Vec<PathBuf>, FileStamps),
    ) -> (FileStamps, HintCause) {
        let mut previous = None;
        let mut changing_since = None;
        let mut cause = HintCause::Timer;

        loop {
            let (paths, known) = last_read();
            let watched = self.watched.clone();

            // On a blocking thread, because a disk may hang.
            let compared = run_blocking(move || {
                watched.watch_only(&parent_dirs(paths.iter().map(PathBuf::as_path)));
                stamp_files(&paths)
            });

            match compared.await {
                Ok(stamps) if stamps != known => {
                    let since = *changing_since.get_or_insert_with(Instant::now);
                    if previous.as_ref() == Some(&stamps) || since.elapsed() > MAX_DEBOUNCE {
                        return (stamps, cause);
                    }

                    previous = Some(stamps);
                    sleep(DEBOUNCE).await;
                }
                _ => {
                    (previous, changing_since) = (None, None);
                    cause = self.hints.wait_for_hint(COMPARE_INTERVAL).await;
                }
            }
        }
    }
}
