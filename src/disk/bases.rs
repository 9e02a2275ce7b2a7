//! Where the directories that were given are now. Each is looked up on a thread that can be left
//! behind: one on a filesystem that does not answer is taken for what it was before, and holds up
//! nobody who asks for others. Leaves what may be opened below them to `allowed`.

use super::allowed::identity;
use super::walk::{Stop, walk};
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
const PATIENCE: Duration = Duration::from_millis(200);

/// The directories that were given.
#[derive(Debug)]
pub(super) struct Bases {
    given: Vec<Arc<Given>>,
    /// Places in `given`, by path.
    pub(super) by_path: Arc<HashMap<Box<[u8]>, usize>>,
}

/// What a given directory is.
#[derive(Debug)]
pub(super) struct Base {
    /// Absolute, without links; raw bytes, no trailing `/`.
    pub(super) path: Vec<u8>,
    /// Why it leads no further, if it does not.
    pub(super) stopped: Option<Stop>,
    /// The error says why it is no directory that can be opened now.
    pub(super) fd: Io<OwnedFd>,
    pub(super) identity: Option<(u64, u64)>,
}

/// Opens a directory at an absolute path without links, for what is below it.
pub(super) trait Open: Fn(&[u8]) -> Io<OwnedFd> + Copy + Send + 'static {}
impl<T: Fn(&[u8]) -> Io<OwnedFd> + Copy + Send + 'static> Open for T {}

#[derive(Debug)]
struct Given {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: Option<Arc<Base>>,
    /// When the look began that found it.
    found_at: Option<Instant>,
    /// When the looks began that have not ended.
    under_way: Vec<Instant>,
}

impl Bases {
    /// Takes absolute paths.
    pub(super) fn new(given: Vec<PathBuf>) -> Self {
        let by_path = given.iter().enumerate().map(|(at, p)| (p.as_os_str().as_bytes().into(), at));
        let by_path = Arc::new(by_path.collect());
        let given = given.into_iter().map(|path| Given { path, state: Mutex::default() });
        Self { given: given.map(Arc::new).collect(), by_path }
    }

    /// Looks all of them up. Gives the places of those that do not answer.
    pub(super) fn look(&self, open: impl Open) -> Vec<usize> {
        let (mut next, mut silent) = (0, Vec::new());
        while next < self.given.len() {
            let (tell, told) = channel();
            let todo = self.given[next..].to_vec();
            let look = move || {
                for given in todo {
                    let answers = !given.is_silent();
                    if answers {
                        given.look(open);
                    }
                    // Left behind: others have gone on without this one.
                    if tell.send(answers).is_err() {
                        return;
                    }
                }
            };
            if let Err(error) = thread::Builder::new().spawn(look) {
                tracing::warn!(%error, "no thread to look up the allowed directories");
                silent.extend(next..self.given.len());
                break;
            }
            while next < self.given.len() {
                let answer = told.recv_timeout(PATIENCE);
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
    pub(super) fn wait_for(&self, at: usize, open: impl Open) {
        self.given[at].look(open);
    }

    /// What each of them was when it was looked up last. One that is as it was is the very same.
    pub(super) fn last(&self) -> Vec<Arc<Base>> {
        self.given.iter().map(|given| given.last()).collect()
    }

    /// Whether a path begins with the one that was given at a place.
    pub(super) fn begins(&self, at: usize, path: &[u8]) -> bool {
        Path::new(OsStr::from_bytes(path)).starts_with(&self.given[at].path)
    }
}

impl Given {
    /// Whether it is known not to answer.
    fn is_silent(&self) -> bool {
        self.lock().under_way.iter().any(|begun| begun.elapsed() >= PATIENCE)
    }

    fn look(&self, open: impl Open) {
        let begun = Instant::now();
        self.lock().under_way.push(begun);
        let base = Base::look(self.path.as_os_str().as_bytes(), open);
        let mut state = self.lock();
        state.under_way.retain(|other| *other != begun);
        if state.found_at.is_some_and(|at| at > begun) {
            // One that began later was faster.
            return;
        }
        state.found_at = Some(begun);
        if !state.last.as_ref().is_some_and(|last| last.is_as(&base)) {
            state.last = Some(Arc::new(base));
        }
    }

    fn last(&self) -> Arc<Base> {
        let unknown = || {
            let path = self.path.as_os_str().as_bytes();
            let path = path.strip_suffix(b"/").unwrap_or(path).to_vec();
            let fd = Err(Errno::TIMEDOUT);
            Arc::new(Base { path, stopped: Some(Stop::Failed), fd, identity: None })
        };
        self.lock().last.get_or_insert_with(unknown).clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Base {
    fn look(path: &[u8], open: impl Open) -> Self {
        let walked = walk(path);
        let fd = open(&walked.real);
        let stat = fd.as_ref().ok().and_then(|fd| fstat(fd).ok());
        let identity = stat.map(|stat| identity(&stat));
        Self { path: walked.real, stopped: walked.stopped, fd, identity }
    }

    fn is_as(&self, other: &Self) -> bool {
        let of = |base: &Self| {
            let error = base.fd.as_ref().err().copied();
            (base.path.clone(), base.stopped, error, base.identity)
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
    fn one_that_does_not_answer_is_as_it_was_and_holds_up_no_other() {
        let tmp = tempfile::tempdir().expect("temp dir");
        let dirs = ["a", "slow", "z"].map(|name| tmp.path().join(name));
        for dir in &dirs {
            fs::create_dir(dir).expect("mkdir");
        }
        let bases = Bases::new(dirs.to_vec());
        assert_eq!(bases.look(open), [0; 0]);
        let first = bases.last();
        assert!(first.iter().all(|base| base.fd.is_ok() && base.stopped.is_none()));
        HANGS.store(true, Ordering::Relaxed);
        for dir in &dirs {
            // Away, so that its number is not used again.
            fs::rename(dir, dir.with_extension("old")).expect("rename");
            fs::create_dir(dir).expect("mkdir");
        }
        assert!(bases.look(open).contains(&1));
        let is_same = |at: usize| Arc::ptr_eq(&first[at], &bases.last()[at]);
        assert!(is_same(1), "it is taken for what it was");
        // A machine that is busy may have left the others behind, too.
        while is_same(0) || is_same(2) {
            assert!(bases.look(open).contains(&1));
        }
        let begun = Instant::now();
        for _ in 0..100 {
            assert!(bases.look(open).contains(&1));
        }
        assert!(begun.elapsed() < 50 * PATIENCE, "it is waited for once: {:?}", begun.elapsed());
        HANGS.store(false, Ordering::Relaxed);
        bases.wait_for(1, open);
        assert!(!is_same(1));
    }

    #[test]
    fn one_that_never_answered_is_nothing_yet() {
        let silent = |_: &[u8]| -> Io<OwnedFd> {
            loop {
                thread::park();
            }
        };
        let bases = Bases::new(vec!["/tmp/".into()]);
        assert_eq!(bases.look(silent), [0]);
        let base = bases.last().pop().expect("one");
        assert_eq!((&*base.path, base.stopped), (&b"/tmp"[..], Some(Stop::Failed)));
        assert_eq!(base.fd.as_ref().err(), Some(&Errno::TIMEDOUT));
    }
}
