//! The allowed roots: the only descriptors below which anything is ever opened. Leaves what may be
//! read there to its callers.

use super::bases::{Base, Bases, Open};
use super::beneath::Opener;
use super::offered::Offered;
use super::walk::{Stop, Walked, steps_from, walk, walk_from, walk_telling};
use crate::domain::{Reason, RelPath, Spot};
use rustix::fs::{AtFlags, CWD, OFlags, Stat, fstat, statat};
use rustix::io::{Errno, Result as Io};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// For how long a look will do for whoever looks from time to time.
const RECENT: Duration = Duration::from_millis(500);
/// Paths of roots that are remembered; all are forgotten when there are more.
const MAX_LED: usize = 1_024;

/// The directories that the operator allowed, as given. Where they really are is looked up again
/// whenever it may have changed, so that one may be re-created, or be a link that is retargeted.
#[derive(Debug)]
pub struct Allowed {
    given: Bases,
    /// Of these, only what lies in one of the directories, as given too.
    bound: Option<Vec<PathBuf>>,
    opener: Opener,
    last: Mutex<Last>,
    /// Held by the one who looks, on behalf of all who wait: each look is at all allowed directories,
    /// and hundreds of roots may be searched at once.
    gate: Mutex<()>,
}

/// What was looked up last, and when.
#[derive(Debug)]
struct Last {
    began: Option<Instant>,
    ground: Arc<Ground>,
    /// The places of those that did not answer.
    silent: Arc<[usize]>,
    /// Where paths of roots led on that ground.
    led: HashMap<Box<[u8]>, Spot>,
}

/// What a look found: the ground, and the places of those that did not answer.
type Looked = (Arc<Ground>, Arc<[usize]>);

/// Where the allowed roots were at one moment, each held by a descriptor.
#[derive(Debug)]
pub struct Ground {
    opener: Opener,
    /// All of them, as they were given.
    given: Arc<[Arc<Base>]>,
    /// Places in `given`, by path.
    by_path: Arc<HashMap<Box<[u8]>, usize>>,
    /// None lies inside another. By segments of their paths.
    roots: Arc<[Arc<Base>]>,
    /// Where alone anything is resolved to and opened; everywhere if there are none.
    bound: Option<Box<[Spot]>>,
    /// What is published on it.
    pub(super) offered: Offered,
}

/// A path that was resolved, and the ground on which its spot counts.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The ground.
    pub ground: Arc<Ground>,
    /// The place on it.
    pub spot: Spot,
}

/// Why a link or path cannot be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocked {
    /// It ends outside every allowed root, or would if it existed.
    Outside,
    /// It ends inside one, where nothing is.
    Missing,
    /// A component inside one is no directory.
    NotADirectory,
    /// A component inside one may not be searched.
    Denied,
    /// Its links go round in circles, or are more than 40.
    Loop,
    /// This process, or this machine, has no file descriptor left to open it with.
    Exhausted,
    /// The filesystem failed.
    Failed,
}

impl Allowed {
    /// Keeps absolute paths as they were given, and opens below them as this process can now.
    #[must_use]
    pub fn new(given: Vec<PathBuf>) -> Self {
        Self::with(Opener::probe(), given)
    }

    /// The same for somebody who is bound to what lies in some directories.
    #[must_use]
    pub fn bounded(opener: Opener, given: Vec<PathBuf>, bound: Vec<PathBuf>) -> Self {
        Self { bound: Some(bound), ..Self::with(opener, given) }
    }

    /// The same by a way to open that was chosen before.
    #[must_use]
    pub fn with(opener: Opener, given: Vec<PathBuf>) -> Self {
        let given = Bases::new(given);
        let nowhere = Ground::new(opener, Vec::new(), given.by_path.clone());
        let (ground, silent) = (Arc::new(nowhere), Arc::default());
        let last = Last { began: None, ground, silent, led: HashMap::new() };
        Self { given, bound: None, opener, last: Mutex::new(last), gate: Mutex::default() }
    }

    /// How everything below them is opened.
    #[must_use]
    pub fn opener(&self) -> Opener {
        self.opener
    }

    /// Looks up where the allowed roots are now. One that does not answer is taken for where it was;
    /// but the one that a path leads into is waited for, however long that takes.
    pub(super) fn look_for(&self, path: &[u8]) -> Arc<Ground> {
        let asked = Instant::now();
        let (ground, silent) = self.look_unless(|began| began >= asked);
        if silent.is_empty() {
            return ground;
        }
        let home = ground.spot(&walk(path).real).map(|spot| &ground.roots[spot.base]);
        for at in &*silent {
            // Where it seems to lead outside, it may lead into any that is not known.
            let is_home = home.is_none_or(|home| Arc::ptr_eq(home, &ground.given[*at]));
            if is_home || self.given.begins(*at, path) {
                self.given.wait_for(*at, self.opening());
            }
        }
        self.found(asked, silent).0
    }

    /// The same for whoever waits for none of them, and for whom a look of a moment ago will do.
    pub(super) fn recent(&self) -> Arc<Ground> {
        self.look_unless(|began| began.elapsed() < RECENT).0
    }

    /// What the last look found, if it began at a time that will do, or what another finds now.
    fn look_unless(&self, will_do: impl Fn(Instant) -> bool) -> Looked {
        let _gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        let last = self.last();
        if last.began.is_some_and(will_do) {
            return last.looked();
        }
        drop(last);
        let began = Instant::now();
        let silent = self.given.look(self.opening());
        self.found(began, silent.into())
    }

    fn opening(&self) -> impl Open {
        let opener = self.opener;
        move |path: &[u8]| opener.directory(path)
    }

    /// What looks found last. A ground that is as it was is the very same, so that all who stand on it
    /// share its descriptors.
    fn found(&self, began: Instant, silent: Arc<[usize]>) -> Looked {
        let given = self.given.last();
        let mut last = self.last();
        let before = &last.ground.given;
        let is_as_it_was = before.len() == given.len()
            && before.iter().zip(&given).all(|(before, now)| Arc::ptr_eq(before, now));
        let whole = || Ground::new(self.opener, given, self.given.by_path.clone());
        if let Some(dirs) = &self.bound {
            let (whole, before) = (whole(), last.ground.bound.as_ref());
            let bound = whole.meet(dirs);
            if !is_as_it_was || before != Some(&bound) {
                last.stand_on(Ground { bound: Some(bound), ..whole });
            }
        } else if !is_as_it_was {
            last.stand_on(whole());
        }
        (last.began, last.silent) = (Some(began), silent);
        last.looked()
    }

    /// Resolves the path of a root, on the ground that was looked up last if it still holds.
    pub fn resolve(&self, path: &[u8]) -> Result<Resolved, Blocked> {
        let ground = self.last().ground.clone();
        let resolved = match ground.resolve(path) {
            Ok(spot) if ground.holds(&spot) => Resolved { ground, spot },
            _ => {
                let ground = self.look_for(path);
                let spot = ground.resolve(path)?;
                Resolved { ground, spot }
            }
        };
        self.last().remember(path, &resolved);
        Ok(resolved)
    }

    /// Where the path of a root led when it was resolved last; asks nobody whether it still does, and
    /// waits for nobody who looks just now.
    pub(super) fn remembered(&self, path: &[u8]) -> Option<Resolved> {
        let last = self.last.try_lock().ok()?;
        let spot = last.led.get(path)?.clone();
        Some(Resolved { ground: last.ground.clone(), spot })
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Last {
    fn looked(&self) -> Looked {
        (self.ground.clone(), self.silent.clone())
    }

    fn stand_on(&mut self, ground: Ground) {
        self.ground = Arc::new(ground);
        self.led.clear();
    }

    fn remember(&mut self, path: &[u8], resolved: &Resolved) {
        let is_here = Arc::ptr_eq(&self.ground, &resolved.ground);
        if !is_here || self.led.get(path) == Some(&resolved.spot) {
            return;
        }
        if self.led.len() == MAX_LED {
            self.led.clear();
        }
        self.led.insert(path.into(), resolved.spot.clone());
    }
}

impl Ground {
    fn new(opener: Opener, given: Vec<Arc<Base>>, by_path: Arc<HashMap<Box<[u8]>, usize>>) -> Self {
        let mut bases: Vec<_> = given.iter().collect();
        bases.sort_by(|a, b| by_segments(&a.path, &b.path));
        // An outer directory comes right before all that is inside it.
        let mut roots: Vec<Arc<Base>> = Vec::new();
        for base in bases {
            if roots.last().is_none_or(|outer| below(&base.path, &outer.path).is_none()) {
                roots.push(base.clone());
            }
        }
        let (given, roots) = (given.into(), roots.into());
        Self { opener, given, by_path, roots, bound: None, offered: Offered::default() }
    }

    /// Where some directories are on this ground; of one that holds an allowed root, that root.
    fn meet(&self, dirs: &[PathBuf]) -> Box<[Spot]> {
        let spots = dirs.iter().flat_map(|dir| {
            let real = walk(dir.as_os_str().as_bytes()).real;
            let held = (0..self.roots.len())
                .filter(|base| below(&self.roots[*base].path, &real).is_some());
            let held = held.map(|base| Spot { base, rel: RelPath::root() });
            held.chain(self.spot(&real)).collect::<Vec<_>>()
        });
        spots.collect()
    }

    /// All of the ground, for whoever asks about names and rules: these are the operator's and the
    /// same for everybody. Nothing that is read there is served.
    pub(super) fn unbounded(&self) -> Self {
        Self {
            opener: self.opener,
            given: self.given.clone(),
            by_path: self.by_path.clone(),
            roots: self.roots.clone(),
            bound: None,
            offered: Offered::default(),
        }
    }

    /// Whether a place is one that may be served.
    pub(super) fn may_serve(&self, spot: &Spot) -> bool {
        let is_in = |dirs: &[Spot]| dirs.iter().any(|dir| spot.below(dir).is_some());
        self.bound.as_deref().is_none_or(is_in)
    }

    /// Whether the base of a spot is still the directory at its path.
    fn holds(&self, spot: &Spot) -> bool {
        let base = &self.roots[spot.base];
        let Ok(fd) = &base.fd else { return false };
        let (Ok(held), Ok(now)) =
            (fstat(fd), statat(CWD, slashed(&base.path), AtFlags::SYMLINK_NOFOLLOW))
        else {
            return false;
        };
        identity(&held) == identity(&now)
    }

    /// What the directory at a spot is called; `None` for the root of the file system.
    pub(super) fn name<'a>(&'a self, spot: &'a Spot) -> Option<&'a [u8]> {
        let base = || self.roots[spot.base].path.rsplit(|b| *b == b'/').next();
        spot.rel.file_name().or_else(base).filter(|name| !name.is_empty())
    }

    /// Resolves an absolute path.
    pub fn resolve(&self, path: &[u8]) -> Result<Spot, Blocked> {
        // What the operator wrote may take any way.
        self.wander(Vec::new(), path, 0, self.by_path.contains_key(path))
    }

    /// Whether a path is one that the operator allowed, as given: where it leads was looked up.
    pub(super) fn is_given(&self, path: &[u8]) -> bool {
        self.by_path.contains_key(path)
    }

    /// Resolves the path of a published root, which is allowed too, to where it was when the ground was
    /// looked up: it may be on a filesystem that does not answer.
    pub(super) fn resolve_published(&self, path: &[u8]) -> Result<Spot, Blocked> {
        let Some(at) = self.by_path.get(path) else { return self.resolve(path) };
        let Base { path, stopped, .. } = &*self.given[*at];
        self.place(&Walked { real: path.clone(), stopped: *stopped })
    }

    /// The absolute path of a spot.
    pub(super) fn native(&self, spot: &Spot) -> PathBuf {
        let rel = Path::new(std::ffi::OsStr::from_bytes(spot.rel.as_bytes()));
        let base = slashed(&self.roots[spot.base].path);
        if spot.rel.is_root() { base.to_owned() } else { base.join(rel) }
    }

    /// Resolves a path as it was walked to below a directory.
    pub(super) fn follow(&self, dir: &Spot, walked: &RelPath) -> Result<Spot, Blocked> {
        self.place(&walk_from(self.real(dir), walked.as_bytes(), 0))
    }

    /// Resolves a link's target, which is relative to the directory that holds the link.
    pub(super) fn follow_link(&self, holder: &Spot, target: &[u8]) -> Result<Spot, Blocked> {
        self.wander(self.real(holder), target, 1, false)
    }

    /// Walks a path that somebody wrote. Where it goes out of the ground and comes back by `..`, it is
    /// refused whether the place that it comes back from exists or not: else it would tell.
    fn wander(
        &self,
        real: Vec<u8>,
        path: &[u8],
        links: u32,
        may_come_back: bool,
    ) -> Result<Spot, Blocked> {
        let mut tells = false;
        let walked = walk_telling(real, path, links, |dir| tells |= !self.is_known(dir));
        if tells && !may_come_back {
            return Err(Blocked::Outside);
        }
        self.place(&walked)
    }

    /// Whether a place is on the ground, or leads to it.
    fn is_known(&self, dir: &[u8]) -> bool {
        let bound =
            || self.bound.iter().flatten().any(|spot| below(&self.real(spot), dir).is_some());
        self.spot(dir).is_some()
            || self.roots.iter().any(|root| below(&root.path, dir).is_some())
            || bound()
    }

    /// The directories that following a link's target looks into, as far as they are inside, and for
    /// which name.
    pub(super) fn steps(&self, holder: &Spot, target: &[u8]) -> Vec<(Spot, Vec<u8>)> {
        let steps = steps_from(self.real(holder), target).into_iter();
        steps.filter_map(|(dir, name)| Some((self.spot(&dir)?, name))).collect()
    }

    /// The absolute path of a spot, without trailing `/`.
    pub(super) fn real(&self, spot: &Spot) -> Vec<u8> {
        let mut real = self.roots[spot.base].path.clone();
        for segment in spot.rel.segments() {
            real.push(b'/');
            real.extend(segment);
        }
        real
    }

    /// The spot of an absolute path without links; `None` outside.
    pub(super) fn spot(&self, path: &[u8]) -> Option<Spot> {
        // Of those that come before it, the last: others inside that one would have come too.
        let after = self.roots.partition_point(|root| by_segments(&root.path, path).is_le());
        let base = after.checked_sub(1)?;
        let rel = RelPath::new(below(path, &self.roots[base].path)?)?;
        let spot = Some(Spot { base, rel });
        spot.filter(|spot| self.may_serve(spot))
    }

    /// Says the same of everything outside, whether it exists or not.
    fn place(&self, walked: &Walked) -> Result<Spot, Blocked> {
        let spot = self.spot(&walked.real).ok_or(Blocked::Outside)?;
        match walked.stopped {
            None => Ok(spot),
            Some(Stop::Missing) => Err(Blocked::Missing),
            Some(Stop::NotADirectory) => Err(Blocked::NotADirectory),
            Some(Stop::Denied) => Err(Blocked::Denied),
            Some(Stop::Loop) => Err(Blocked::Loop),
            Some(Stop::Magic) => Err(Blocked::Outside),
            Some(Stop::Failed) => Err(Blocked::Failed),
        }
    }

    /// Opens a spot beneath the descriptor of its allowed root. No link is followed, so whatever was
    /// exchanged since the spot was resolved, nothing outside is opened.
    /// Since there is no link in it, a spot that lies in a bound by its name lies in it on the disk.
    pub(super) fn open(&self, spot: &Spot, flags: OFlags) -> Io<OwnedFd> {
        if !self.may_serve(spot) {
            return Err(Errno::XDEV);
        }
        let base = self.roots[spot.base].fd.as_ref().map_err(|error| *error)?;
        self.opener.open(base, spot.rel.as_bytes(), flags)
    }

    /// The same with what the kernel has in memory; else an error.
    pub(super) fn open_cached(&self, spot: &Spot, flags: OFlags) -> Io<OwnedFd> {
        if !self.may_serve(spot) {
            return Err(Errno::XDEV);
        }
        let base = self.roots[spot.base].fd.as_ref().map_err(|error| *error)?;
        self.opener.open_cached(base, spot.rel.as_bytes(), flags)
    }

    /// The allowed root that a spot is below, and how things are opened there.
    pub(super) fn base(&self, spot: &Spot) -> (&Base, Opener) {
        (&self.roots[spot.base], self.opener)
    }
}

/// Device and inode.
pub(super) fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// The order of absolute paths without trailing `/` in which what is inside a directory comes right
/// behind it.
fn by_segments(a: &[u8], b: &[u8]) -> Ordering {
    let rank = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
    a.iter().map(rank).cmp(b.iter().map(rank))
}

/// What is left of `path` below `dir`, both absolute and without trailing `/`.
fn below<'a>(path: &'a [u8], dir: &[u8]) -> Option<&'a [u8]> {
    match path.strip_prefix(dir)? {
        [] => Some(&[]),
        [b'/', rest @ ..] => Some(rest),
        _ => None,
    }
}

pub(super) fn slashed(path: &[u8]) -> &Path {
    let path = if path.is_empty() { b"/" } else { path };
    Path::new(std::ffi::OsStr::from_bytes(path))
}

impl From<Blocked> for Reason {
    fn from(blocked: Blocked) -> Self {
        match blocked {
            Blocked::Outside => Self::NotAllowed,
            Blocked::Missing => Self::NotFound,
            Blocked::NotADirectory => Self::NotADirectory,
            Blocked::Denied => Self::PermissionDenied,
            Blocked::Loop | Blocked::Exhausted | Blocked::Failed => Self::IoError,
        }
    }
}

#[cfg(test)]
mod tests;
