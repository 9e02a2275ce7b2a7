//! Files that a load of the configuration reads at the moment. If the load does not end, the error
//! names them.

use caproot_core::sync::Mutex;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

thread_local! {
    /// Progress of the load that runs on this thread.
    static FOLLOWED: RefCell<Option<ReadProgress>> = const { RefCell::new(None) };
}

/// Progress of one load. All clones share the progress.
#[derive(Debug, Clone, Default)]
pub struct ReadProgress(Arc<Mutex<Vec<PathBuf>>>);

impl ReadProgress {
    /// Runs a load on this thread, and follows the files that it reads.
    pub fn follow<T>(&self, load: impl FnOnce() -> T) -> T {
        FOLLOWED.replace(Some(self.clone()));
        let loaded = load();
        FOLLOWED.take();
        loaded
    }

    /// Returns the files that are read now. One of them does not answer if the load hangs.
    #[must_use]
    pub fn current_files(&self) -> Vec<PathBuf> {
        self.0.lock().clone()
    }
}

/// Records that the load on this thread reads these files next.
pub fn record_reading(files: &[&Path]) {
    if let Some(progress) = FOLLOWED.with_borrow(Clone::clone) {
        *progress.0.lock() = files.iter().map(|file| (*file).to_owned()).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::{ReadProgress, record_reading};
    use std::path::Path;

    #[test]
    fn only_the_followed_load_is_recorded() {
        let (first, second) = (ReadProgress::default(), ReadProgress::default());
        record_reading(&[Path::new("a")]);
        first.follow(|| record_reading(&[Path::new("b")]));
        record_reading(&[Path::new("c")]);
        second.follow(|| record_reading(&[Path::new("d"), Path::new("e")]));
        assert_eq!(first.current_files(), [Path::new("b")]);
        assert_eq!(second.current_files(), [Path::new("d"), Path::new("e")]);
    }
}
