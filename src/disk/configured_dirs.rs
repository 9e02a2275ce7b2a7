//! Where the directories that were given are now. Each is looked up on a thread that can be left
//! behind: one on a filesystem that does not answer is taken for what it was before, and holds up
//! nobody who asks for others. Leaves what may be opened below them to `allowed`.

use super::allowed_dirs::identity;
use super::path_resolution::{ResolveStop, resolve_path};
use rustix::fs::fstat;
use rustix::io::{Errno, Result as Io};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long one directory is waited for by those who need others. Whoever needs this one waits for it
/// by itself.
const LOOKUP_TIMEOUT: Duration = Duration::from_millis(200);

/// The directories that were given.
#[derive(Debug)]
pub(super) struct ConfiguredDirs {
    dirs: Vec<Arc<ConfiguredDir>>,
    /// Places in `given`, by path.
    pub(super) index_by_path: Arc<HashMap<Box<[u8]>, usize>>,
}

/// What a given directory is.
#[derive(Debug)]
pub(super) struct AllowedDir {
    /// Absolute, without links; raw bytes, no trailing `/`.
    pub(super) path: Vec<u8>,
    /// Why it leads no further, if it does not.
    pub(super) stop: Option<ResolveStop>,
    /// The error says why it is no directory that can be opened now.
    pub(super) fd: Io<OwnedFd>,
    pub(super) identity: Option<(u64, u64)>,
}

/// Opens a directory at an absolute path without links, for what is below it.
pub(super) trait OpenDirFn: Fn(&[u8]) -> Io<OwnedFd> + Copy + Send + 'static {}
impl<T: Fn(&[u8]) -> Io<OwnedFd> + Copy + Send + 'static> OpenDirFn for T {}

#[derive(Debug)]
struct ConfiguredDir {
    path: PathBuf,
    state: Mutex<LookupState>,
}

#[derive(Debug, Default)]
struct LookupState {
    last_known: Option<Arc<AllowedDir>>,
    /// When the look began that found it.
    last_lookup_at: Option<Instant>,
    /// When the looks began that have not ended.
    in_flight: Vec<Instant>,
}

impl ConfiguredDirs {
    /// Takes absolute paths.
    pub(super) fn new(given: Vec<PathBuf>) -> Self {
        let by_path = given.iter().enumerate().map(|(at, p)| (p.as_os_str().as_bytes().into(), at));
        let by_path = Arc::new(by_path.collect());
        let given = given.into_iter().map(|path| ConfiguredDir { path, state: Mutex::default() });
        Self { dirs: given.map(Arc::new).collect(), index_by_path: by_path }
    }

    /// Looks all of them up. Gives the places of those that do not answer.
    pub(super) fn refresh_all(&self, open: impl OpenDirFn) -> Vec<usize> {
        let (mut next, mut silent) = (0, Vec::new());
        while next < self.dirs.len() {
            let (tell, told) = channel();
            let todo = self.dirs[next..].to_vec();
            let look = move || {
                for given in todo {
                    let answers = !given.is_unresponsive();
                    if answers {
                        given.refresh(open);
                    }
                    // Left behind: others have gone on without this one.
                    if tell.send(answers).is_err() {
                        return;
                    }
                }
            };
            if let Err(error) = thread::Builder::new().spawn(look) {
                tracing::warn!(%error, "no thread to look up the allowed directories");
                silent.extend(next..self.dirs.len());
                break;
            }
            while next < self.dirs.len() {
                let answer = told.recv_timeout(LOOKUP_TIMEOUT);
                if answer != Ok(true) {
                    silent.push(next);
                }
                next += 1;
                if answer.is_err() {
                    break;
                }
            }
        }
        silent
    }

    /// Looks one of them up, however long that takes.
    pub(super) fn refresh_blocking(&self, at: usize, open: impl OpenDirFn) {
        self.dirs[at].refresh(open);
    }

    /// What each of them was when it was looked up last. One that is as it was is the very same.
    pub(super) fn last_known(&self) -> Vec<Arc<AllowedDir>> {
        self.dirs.iter().map(|given| given.last_known()).collect()
    }

    /// Whether a path begins with the one that was given at a place.
    pub(super) fn is_prefix_of(&self, at: usize, path: &[u8]) -> bool {
        Path::new(OsStr::from_bytes(path)).starts_with(&self.dirs[at].path)
    }
}

impl ConfiguredDir {
    /// Whether it is known not to answer.
    fn is_unresponsive(&self) -> bool {
        self.lock_state().in_flight.iter().any(|begun| begun.elapsed() >= LOOKUP_TIMEOUT)
    }

    fn refresh(&self, open: impl OpenDirFn) {
        let begun = Instant::now();
        self.lock_state().in_flight.push(begun);
        let base = AllowedDir::open_now(self.path.as_os_str().as_bytes(), open);
        let mut state = self.lock_state();
        state.in_flight.retain(|other| *other != begun);
        if state.last_lookup_at.is_some_and(|at| at > begun) {
            // One that began later was faster.
            return;
        }
        state.last_lookup_at = Some(begun);
        if !state.last_known.as_ref().is_some_and(|last| last.is_same_as(&base)) {
            state.last_known = Some(Arc::new(base));
        }
    }

    fn last_known(&self) -> Arc<AllowedDir> {
        let unknown = || {
            let path = self.path.as_os_str().as_bytes();
            let path = path.strip_suffix(b"/").unwrap_or(path).to_vec();
            let fd = Err(Errno::TIMEDOUT);
            Arc::new(AllowedDir { path, stop: Some(ResolveStop::Failed), fd, identity: None })
        };
        self.lock_state().last_known.get_or_insert_with(unknown).clone()
    }

    fn lock_state(&self) -> MutexGuard<'_, LookupState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AllowedDir {
    fn open_now(path: &[u8], open: impl OpenDirFn) -> Self {
        let walked = resolve_path(path);
        let fd = open(&walked.real);
        let stat = fd.as_ref().ok().and_then(|fd| fstat(fd).ok());
        let identity = stat.map(|stat| identity(&stat));
        Self { path: walked.real, stop: walked.stop, fd, identity }
    }

    fn is_same_as(&self, other: &Self) -> bool {
        let of = |base: &Self| {
            let error = base.fd.as_ref().err().copied();
            (base.path.clone(), base.stop, error, base.identity)
        };
        of(self) == of(other)
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
        let dirs = ["a", "slow", "z"].map(|name| tmp.path().join(name));
        for dir in &dirs {
            fs::create_dir(dir).expect("mkdir");
        }
        let bases = ConfiguredDirs::new(dirs.to_vec());
        assert_eq!(bases.refresh_all(open), [0; 0]);
        let first = bases.last_known();
        assert!(first.iter().all(|base| base.fd.is_ok() && base.stop.is_none()));
        HANGS.store(true, Ordering::Relaxed);
        for dir in &dirs {
            // Away, so that its number is not used again.
            fs::rename(dir, dir.with_extension("old")).expect("rename");
            fs::create_dir(dir).expect("mkdir");
        }
        assert!(bases.refresh_all(open).contains(&1));
        let is_same = |at: usize| Arc::ptr_eq(&first[at], &bases.last_known()[at]);
        assert!(is_same(1), "it is taken for what it was");
        // A machine that is busy may have left the others behind, too.
        while is_same(0) || is_same(2) {
            assert!(bases.refresh_all(open).contains(&1));
        }
        let begun = Instant::now();
        for _ in 0..100 {
            assert!(bases.refresh_all(open).contains(&1));
        }
        assert!(
            begun.elapsed() < 50 * LOOKUP_TIMEOUT,
            "it is waited for once: {:?}",
            begun.elapsed()
        );
        HANGS.store(false, Ordering::Relaxed);
        bases.refresh_blocking(1, open);
        assert!(!is_same(1));
    }

    #[test]
    fn a_directory_that_never_responded_is_an_error() {
        let silent = |_: &[u8]| -> Io<OwnedFd> {
            loop {
                thread::park();
            }
        };
        let bases = ConfiguredDirs::new(vec!["/tmp/".into()]);
        assert_eq!(bases.refresh_all(silent), [0]);
        let base = bases.last_known().pop().expect("one");
        assert_eq!((&*base.path, base.stop), (&b"/tmp"[..], Some(ResolveStop::Failed)));
        assert_eq!(base.fd.as_ref().err(), Some(&Errno::TIMEDOUT));
    }
}
