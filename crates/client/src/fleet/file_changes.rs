//! Waits for changes of a fleet file: by events of the file system if the daemon's file watcher is
//! compiled in, otherwise by comparing times.

#[cfg(not(target_os = "linux"))]
pub use polled::PolledFile as FleetFileChanges;
#[cfg(target_os = "linux")]
pub use watched::WatchedFile as FleetFileChanges;

#[cfg(target_os = "linux")]
mod watched {
    use caproot_core::file_watch::{FileChanges, FileStamps, stamp_files};
    use std::path::{Path, PathBuf};

    /// File whose changes the file watcher reports.
    #[derive(Debug)]
    pub struct WatchedFile {
        paths: Vec<PathBuf>,
        stamps: FileStamps,
    }

    impl WatchedFile {
        /// Remembers the state of the file. Call this before you read the file.
        pub async fn start(path: &Path) -> Self {
            let paths = vec![path.to_owned()];
            let stamped = paths.clone();
            let stamps = tokio::task::spawn_blocking(move || stamp_files(&stamped)).await;
            // Without stamps, the first comparison reports a change.
            Self {
                paths,
                stamps: stamps.unwrap_or_default(),
            }
        }

        /// Calls `reread` after each change of the file. Never returns.
        pub async fn follow(mut self, mut reread: impl AsyncFnMut()) {
            let mut changes = FileChanges::start(|message| tracing::warn!("{message}"));
            loop {
                let (stamps, _) = changes
                    .wait_for_change(|| (self.paths.clone(), self.stamps.clone()))
                    .await;
                self.stamps = stamps;
                reread().await;
            }
        }
    }
}

#[cfg(any(test, not(target_os = "linux")))]
mod polled {
    use std::path::{Path, PathBuf};
    use std::time::{Duration, SystemTime};
    use tokio::time::sleep;

    /// Interval of comparisons.
    const COMPARE_INTERVAL: Duration = Duration::from_secs(2);

    /// Time of the last change and size; `None` if the file cannot be found.
    type PolledStamp = Option<(SystemTime, u64)>;

    /// File whose time of change is compared at an interval.
    #[derive(Debug)]
    pub struct PolledFile {
        path: PathBuf,
        stamp: PolledStamp,
    }

    impl PolledFile {
        /// Remembers the state of the file. Call this before you read the file.
        pub async fn start(path: &Path) -> Self {
            Self {
                path: path.to_owned(),
                stamp: stamp(path).await,
            }
        }

        /// Calls `reread` after each change of the file. A writer may have truncated the file a
        /// moment ago, so two comparisons in a row must agree. Never returns.
        pub async fn follow(mut self, mut reread: impl AsyncFnMut()) {
            let mut previous = self.stamp;
            loop {
                sleep(COMPARE_INTERVAL).await;
                let current = stamp(&self.path).await;
                if current != self.stamp && current == previous {
                    self.stamp = current;
                    reread().await;
                }
                previous = current;
            }
        }
    }

    async fn stamp(path: &Path) -> PolledStamp {
        let metadata = tokio::fs::metadata(path).await.ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    }

    #[cfg(test)]
    mod tests {
        use super::PolledFile;
        use tokio::sync::mpsc;

        #[tokio::test(start_paused = true)]
        async fn each_change_is_reported_once() {
            let dir = tempfile::tempdir().expect("a directory");
            let path = dir.path().join("fleet.yaml");
            tokio::fs::write(&path, "a").await.expect("a file");
            let file = PolledFile::start(&path).await;
            let (sender, mut changes) = mpsc::unbounded_channel();
            let follow = tokio::spawn(file.follow(async move || sender.send(()).expect("a test")));
            for text in ["two", "three"] {
                assert!(changes.try_recv().is_err());
                tokio::fs::write(&path, text).await.expect("a file");
                changes.recv().await.expect("a change");
            }
            tokio::fs::remove_file(&path).await.expect("a file");
            changes.recv().await.expect("a change");
            follow.abort();
        }
    }
}
