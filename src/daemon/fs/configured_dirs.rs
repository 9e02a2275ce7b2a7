//! Lookup of the configured directories. Each lookup runs on a thread that can be abandoned: a
//! directory whose filesystem does not respond keeps its last known state and delays no other
//! directory.

use super::dirs_snapshot::identity;
use super::path_resolution::{NameLookup, ResolveStop, resolve_path};
use caproot_core::sync::{Mutex, report_refused_thread};
use rustix::fs::fstat;
use rustix::io::{Errno, Result as Io};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// Time that a refresh of all directories waits for each directory.
const LOOKUP_TIMEOUT: Duration = Duration::from_millis(200);

/// Directories of the configuration.
#[derive(Debug)]
pub struct ConfiguredDirs {
    dirs: Vec<Arc<ConfiguredDir>>,
    /// Index in `dirs` of each path.
    pub index_by_path: Arc<HashMap<Box<[u8]>, usize>>,
}

/// Result of looking up a configured directory.
#[derive(Debug)]
pub struct AllowedDir {
    /// Absolute path without links, as raw bytes without trailing `/`.
    pub path: Vec<u8>,
    /// Absolute paths of the entries that the configured path leads through.
    pub steps: Vec<Vec<u8>>,
    /// Reason why the resolution of the configured path stopped early.
    pub stop: Option<ResolveStop>,
    /// Descriptor of the directory, or the error of opening it.
    pub fd: Io<OwnedFd>,
    pub identity: Option<(u64, u64)>,
}

/// Function that opens a directory by an absolute path without links.
pub trait OpenDirFn: Fn(&[u8]) -> Io<OwnedFd> + Copy + Send + 'static {}
impl<T: Fn(&[u8]) -> Io<OwnedFd> + Copy + Send + 'static> OpenDirFn for T {}

#[derive(Debug)]
struct ConfiguredDir {
    path: PathBuf,
    state: Mutex<LookupState>,
}

#[derive(Debug, Default)]
struct LookupState {
    last_known: Option<Arc<AllowedDir>>,
    /// Start of the lookup that found `last_known`.
    last_lookup_at: Option<Instant>,
    /// Starts of the lookups in flight.
    in_flight: Vec<Instant>,
}

impl ConfiguredDirs {
    /// Takes absolute paths. The link directories follow the others, and are not found by their path.
    pub fn new(paths: Vec<PathBuf>, link_dirs: Vec<PathBuf>) -> Self {
        let index = paths
            .iter()
            .enumerate()
            .map(|(at, p)| (p.as_os_str().as_bytes().into(), at));
        let index_by_path = Arc::new(index.collect());
        let dirs = paths.into_iter().chain(link_dirs).map(|path| {
            let state = Mutex::default();
            Arc::new(ConfiguredDir { path, state })
        });
        Self {
            dirs: dirs.collect(),
            index_by_path,
        }
    }

    /// Looks up all directories. Returns the indexes of the directories that do not respond.
    pub fn refresh_all(&self, open: impl OpenDirFn) -> Vec<usize> {
        let mut next = 0;
        let mut unresponsive = Vec::new();
        while next < self.dirs.len() {
            let (sender, receiver) = channel();
            let todo = self.dirs[next..].to_vec();

            let look_up = move || {
                for dir in todo {
                    let responds = !dir.is_unresponsive();
                    if responds {
                        dir.refresh(open);
                    }
                    // The receiver is gone if this directory took too long.
                    if sender.send(responds).is_err() {
                        return;
                    }
                }
            };

            if let Err(error) = thread::Builder::new().spawn(look_up) {
                report_refused_thread(&error);
                unresponsive.extend(next..self.dirs.len());
                break;
            }

            while next < self.dirs.len() {
                let response = receiver.recv_timeout(LOOKUP_TIMEOUT);
                if response != Ok(true) {
                    unresponsive.push(next);
                }
                next += 1;
                if response.is_err() {
                    break;
                }
            }
        }

        unresponsive
    }

    /// Looks up one directory without a timeout.
    pub fn refresh_blocking(&self, index: usize, open: impl OpenDirFn) {
        self.dirs[index].refresh(open);
    }

    /// Returns the last known state of each directory: the same `Arc` as before if nothing changed.
    pub fn last_known(&self) -> Vec<Arc<AllowedDir>> {
        self.dirs.iter().map(|dir| dir.last_known()).collect()
    }

    /// Whether a path begins with the configured path of this index.
    pub fn is_prefix_of(&self, index: usize, path: &[u8]) -> bool {
        Path::new(OsStr::from_bytes(path)).starts_with(&self.dirs[index].path)
    }
}

impl ConfiguredDir {
    /// Whether a lookup in flight has exceeded the timeout.
    fn is_unresponsive(&self) -> bool {
        self.state
            .lock()
            .in_flight
            .iter()
            .any(|started_at| started_at.elapsed() >= LOOKUP_TIMEOUT)
    }

    fn refresh(&self, open: impl OpenDirFn) {
        let started_at = Instant::now();
        self.state.lock().in_flight.push(started_at);
        let dir = AllowedDir::open_now(self.path.as_os_str().as_bytes(), open);
        let mut state = self.state.lock();
        state.in_flight.retain(|other| *other != started_at);
        if state.last_lookup_at.is_some_and(|at| at > started_at) {
            // A lookup that started later finished first.
            return;
        }
        state.last_lookup_at = Some(started_at);
        let last = state.last_known.as_ref();
        if !last.is_some_and(|last| last.is_same_as(&dir)) {
            state.last_known = Some(Arc::new(dir));
        }
    }

    fn last_known(&self) -> Arc<AllowedDir> {
        let unknown = || {
            let configured = self.path.as_os_str().as_bytes();
            let path = configured.strip_suffix(b"/").unwrap_or(configured).to_vec();
            let fd = Err(Errno::TIMEDOUT);

            let slashes = (1..=path.len()).filter(|end| path.get(*end).is_none_or(|b| *b == b'/'));
            let steps = slashes.map(|end| path[..end].to_vec()).collect();
            Arc::new(AllowedDir {
                path,
                steps,
                stop: Some(ResolveStop::Failed),
                fd,
                identity: None,
            })
        };

        self.state
            .lock()
            .last_known
            .get_or_insert_with(unknown)
            .clone()
    }
}

impl AllowedDir {
    /// Returns the descriptor, or the error of opening the directory.
    pub fn descriptor(&self) -> Io<&OwnedFd> {
        self.fd.as_ref().map_err(|error| *error)
    }

    fn open_now(path: &[u8], open: impl OpenDirFn) -> Self {
        let walked = resolve_path(path);
        let steps = walked.lookups.iter().map(NameLookup::entry_path);
        let fd = open(&walked.real);
        let stat = fd.as_ref().ok().and_then(|fd| fstat(fd).ok());
        let identity = stat.map(|stat| identity(&stat));
        Self {
            steps: steps.collect(),
            path: walked.real,
            stop: walked.stop,
            fd,
            identity,
        }
    }

    fn is_same_as(&self, other: &Self) -> bool {
        self.path == other.path
            && self.steps == other.steps
            && self.stop == other.stop
            && self.fd.as_ref().err() == other.fd.as_ref().err()
            && self.identity == other.identity
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode, OFlags, openat};
    use std::fs;
    use std::sync::atomic::{AtomicBool, Ordering};

    static HANGS: AtomicBool = AtomicBool::new(false);

    fn open(path: &[u8]) -> Io<OwnedFd> {
        while path.ends_with(b"/slow") && HANGS.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
        openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())
    }

    #[test]
    fn an_unresponsive_directory_keeps_its_last_state_and_delays_no_other() {
        let tmp = tempfile::tempdir().expect("temp dir");
        let paths = ["a", "slow", "z"].map(|name| tmp.path().join(name));
        for dir in &paths {
            fs::create_dir(dir).expect("mkdir");
        }
        let dirs = ConfiguredDirs::new(paths.to_vec(), Vec::new());
        assert_eq!(dirs.refresh_all(open), [0; 0]);
        let first = dirs.last_known();
        assert!(first.iter().all(|dir| dir.fd.is_ok() && dir.stop.is_none()));
        HANGS.store(true, Ordering::Relaxed);
        for dir in &paths {
            // Renamed instead of removed, so that its inode number is not reused.
            fs::rename(dir, dir.with_extension("old")).expect("rename");
            fs::create_dir(dir).expect("mkdir");
        }
        assert!(dirs.refresh_all(open).contains(&1));
        let is_same = |at: usize| Arc::ptr_eq(&first[at], &dirs.last_known()[at]);
        assert!(is_same(1), "the last known state is kept");
        // On a busy machine the other directories may time out, too.
        while is_same(0) || is_same(2) {
            assert!(dirs.refresh_all(open).contains(&1));
        }
        let started_at = Instant::now();
        for _ in 0..100 {
            assert!(dirs.refresh_all(open).contains(&1));
        }
        assert!(
            started_at.elapsed() < 50 * LOOKUP_TIMEOUT,
            "the timeout applies once: {:?}",
            started_at.elapsed()
        );
        HANGS.store(false, Ordering::Relaxed);
        dirs.refresh_blocking(1, open);
        assert!(!is_same(1));
    }

    #[test]
    fn a_directory_that_never_responded_is_an_error() {
        let unresponsive = |_: &[u8]| -> Io<OwnedFd> {
            loop {
                thread::park();
            }
        };
        let dirs = ConfiguredDirs::new(vec!["/tmp/".into()], Vec::new());
        assert_eq!(dirs.refresh_all(unresponsive), [0]);
        let dir = dirs.last_known().pop().expect("one");
        assert_eq!(
            (&*dir.path, dir.stop),
            (&b"/tmp"[..], Some(ResolveStop::Failed))
        );
        assert_eq!(dir.fd.as_ref().err(), Some(&Errno::TIMEDOUT));
    }
}
