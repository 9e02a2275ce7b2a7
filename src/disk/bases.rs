//! Where the directories that were given are now. Each is looked up on a thread that can be left
//! behind: one on a filesystem that does not answer is taken for what it was before, and holds up
//! nobody who asks for others. Leaves what may be opened below them to `allowed`.

use super::allowed::identity;
use super::walk::{Stop, walk};
use rustix::fs::fstat;
use rustix::io::{Errno, Result as Io};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long one directory is waited for. A longer wait would only hold up others; one that is slower
/// is there by the next look.
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
    identity: Option<(u64, u64)>,
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

    /// Looks all of them up. One that is as it was is the very same.
    pub(super) fn look(&self, open: impl Open) -> Vec<Arc<Base>> {
        let mut rest = &self.given[..];
        while !rest.is_empty() {
            let (tell, told) = channel();
            let todo = rest.to_vec();
            let look = move || {
                for given in todo {
                    given.look(open);
                    // Left behind: others have gone on without this one.
                    if tell.send(()).is_err() {
                        return;
                    }
                }
            };
            if let Err(error) = thread::Builder::new().spawn(look) {
                tracing::warn!(%error, "no thread to look up the allowed directories");
                break;
            }
            while let ([_, after @ ..], Ok(())) = (rest, told.recv_timeout(PATIENCE)) {
                rest = after;
            }
            rest = rest.get(1..).unwrap_or_default();
        }
        self.given.iter().map(|given| given.last()).collect()
    }
}

impl Given {
    fn look(&self, open: impl Open) {
        let begun = Instant::now();
        {
            let mut state = self.lock();
            if state.under_way.iter().any(|begun| begun.elapsed() >= PATIENCE) {
                // Known not to answer.
                return;
            }
            state.under_way.push(begun);
        }
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
        let first = bases.look(open);
        assert!(first.iter().all(|base| base.fd.is_ok() && base.stopped.is_none()));
        HANGS.store(true, Ordering::Relaxed);
        for dir in &dirs {
            // Away, so that its number is not used again.
            fs::rename(dir, dir.with_extension("old")).expect("rename");
            fs::create_dir(dir).expect("mkdir");
        }
        let second = bases.look(open);
        let same = |a: &[Arc<Base>], b: &[Arc<Base>]| {
            a.iter().zip(b).map(|(a, b)| Arc::ptr_eq(a, b)).collect::<Vec<_>>()
        };
        assert_eq!(same(&first, &second), [false, true, false]);
        let begun = Instant::now();
        for _ in 0..100 {
            assert_eq!(same(&second, &bases.look(open)), [true, true, true]);
        }
        assert!(begun.elapsed() < 50 * PATIENCE, "it is waited for once: {:?}", begun.elapsed());
        HANGS.store(false, Ordering::Relaxed);
        while same(&second, &bases.look(open)) != [true, false, true] {
            thread::yield_now();
        }
    }

    #[test]
    fn one_that_never_answered_is_nothing_yet() {
        let silent = |_: &[u8]| -> Io<OwnedFd> {
            loop {
                thread::park();
            }
        };
        let bases = Bases::new(vec!["/tmp/".into()]);
        let base = bases.look(silent).pop().expect("one");
        assert_eq!((&*base.path, base.stopped), (&b"/tmp"[..], Some(Stop::Failed)));
        assert_eq!(base.fd.as_ref().err(), Some(&Errno::TIMEDOUT));
    }
}
