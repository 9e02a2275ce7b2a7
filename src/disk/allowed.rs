//! The allowed roots: the only descriptors below which anything is ever opened. Leaves what may be
//! read there to its callers.

use super::walk::{Stop, steps_from, walk, walk_from};
use crate::domain::{Reason, RelPath, Spot};
use rustix::fs::AtFlags;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2, statat};
use rustix::io::{Errno, Result as Io};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The directories that the operator allowed, as given. Where they really are is looked up again
/// whenever it may have changed, so that one may be re-created, or be a link that is retargeted.
#[derive(Debug)]
pub struct Allowed {
    given: Vec<PathBuf>,
    /// Of these, only what lies in one of the directories, as given too.
    bound: Option<Vec<PathBuf>>,
    last: Mutex<Arc<Ground>>,
}

/// Where the allowed roots were at one moment, each held by a descriptor.
#[derive(Debug, Default)]
pub struct Ground {
    /// None lies inside another.
    roots: Arc<[Base]>,
    /// Where alone anything is resolved to and opened; everywhere if there are none.
    bound: Option<Box<[Spot]>>,
}

#[derive(Debug)]
struct Base {
    /// Absolute, without links; raw bytes, no trailing `/`.
    path: Vec<u8>,
    /// The error says why it is no directory that can be opened now.
    fd: Io<OwnedFd>,
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
    /// The filesystem failed.
    Failed,
}

impl Allowed {
    /// Keeps absolute paths as they were given.
    #[must_use]
    pub fn new(given: Vec<PathBuf>) -> Self {
        Self { given, bound: None, last: Mutex::default() }
    }

    /// The same for somebody who is bound to what lies in some directories.
    #[must_use]
    pub fn bounded(given: Vec<PathBuf>, bound: Vec<PathBuf>) -> Self {
        Self { bound: Some(bound), ..Self::new(given) }
    }

    /// Looks up where the allowed roots are now.
    #[must_use]
    pub fn look(&self) -> Arc<Ground> {
        let ground = Arc::new(Ground::new(&self.given, self.bound.as_deref()));
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = ground.clone();
        ground
    }

    /// Resolves the path of a root, on the ground that was looked up last if it still holds.
    pub fn resolve(&self, path: &[u8]) -> Result<Resolved, Blocked> {
        let ground = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match ground.resolve(path) {
            Ok(spot) if ground.holds(&spot) => Ok(Resolved { ground, spot }),
            _ => {
                let ground = self.look();
                let spot = ground.resolve(path)?;
                Ok(Resolved { ground, spot })
            }
        }
    }
}

impl Ground {
    fn new(given: &[PathBuf], bound: Option<&[PathBuf]>) -> Self {
        let mut paths: Vec<_> = given.iter().map(|p| walk(p.as_os_str().as_bytes()).real).collect();
        paths.sort();
        // Sorted by bytes, an outer directory comes before all that is inside it.
        let mut outer: Vec<Vec<u8>> = Vec::new();
        for path in paths {
            if !outer.iter().any(|o| below(&path, o).is_some()) {
                outer.push(path);
            }
        }
        let open = |path: &[u8]| {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
            openat2(CWD, slashed(path), flags, Mode::empty(), resolve)
        };
        let roots = outer.into_iter().map(|path| Base { fd: open(&path), path }).collect();
        let whole = Self { roots, bound: None };
        let bound = bound.map(|dirs| whole.meet(dirs));
        Self { bound, ..whole }
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
        Self { roots: self.roots.clone(), bound: None }
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

    /// Whether the allowed roots are where they were.
    pub(super) fn is_as(&self, other: &Self) -> bool {
        let of = |base: &Base| {
            let stat = base.fd.as_ref().ok().and_then(|fd| fstat(fd).ok());
            (base.path.clone(), stat.map(|stat| identity(&stat)))
        };
        self.bound == other.bound && self.roots.iter().map(of).eq(other.roots.iter().map(of))
    }

    /// What the directory at a spot is called; `None` for the root of the file system.
    pub(super) fn name<'a>(&'a self, spot: &'a Spot) -> Option<&'a [u8]> {
        let base = || self.roots[spot.base].path.rsplit(|b| *b == b'/').next();
        spot.rel.file_name().or_else(base).filter(|name| !name.is_empty())
    }

    /// Resolves an absolute path.
    pub fn resolve(&self, path: &[u8]) -> Result<Spot, Blocked> {
        self.place(&walk(path))
    }

    /// The absolute path of a spot.
    pub(super) fn native(&self, spot: &Spot) -> PathBuf {
        let rel = Path::new(std::ffi::OsStr::from_bytes(spot.rel.as_bytes()));
        let base = slashed(&self.roots[spot.base].path);
        if spot.rel.is_root() { base.to_owned() } else { base.join(rel) }
    }

    /// Resolves a link's target, which is relative to the directory that holds the link.
    pub(super) fn follow(&self, holder: &Spot, target: &[u8]) -> Result<Spot, Blocked> {
        self.place(&walk_from(self.real(holder), target))
    }

    /// The directories that following a link's target looks into, as far as they are inside, and for
    /// which name.
    pub(super) fn steps(&self, holder: &Spot, target: &[u8]) -> Vec<(Spot, Vec<u8>)> {
        let steps = steps_from(self.real(holder), target).into_iter();
        steps.filter_map(|(dir, name)| Some((self.spot(&dir)?, name))).collect()
    }

    /// The absolute path of a spot, without trailing `/`.
    fn real(&self, spot: &Spot) -> Vec<u8> {
        let mut real = self.roots[spot.base].path.clone();
        for segment in spot.rel.segments() {
            real.push(b'/');
            real.extend(segment);
        }
        real
    }

    /// The spot of an absolute path without links; `None` outside.
    fn spot(&self, path: &[u8]) -> Option<Spot> {
        let spot = self.roots.iter().enumerate().find_map(|(base, root)| {
            let rel = below(path, &root.path)?;
            Some(Spot { base, rel: RelPath::new(rel)? })
        });
        spot.filter(|spot| self.may_serve(spot))
    }

    /// Says the same of everything outside, whether it exists or not.
    fn place(&self, walked: &super::walk::Walked) -> Result<Spot, Blocked> {
        let spot = self.spot(&walked.real).ok_or(Blocked::Outside)?;
        match walked.stopped {
            None => Ok(spot),
            Some(Stop::Missing) => Err(Blocked::Missing),
            Some(Stop::NotADirectory) => Err(Blocked::NotADirectory),
            Some(Stop::Denied) => Err(Blocked::Denied),
            Some(Stop::Loop) => Err(Blocked::Loop),
            Some(Stop::Failed) => Err(Blocked::Failed),
        }
    }

    /// Opens a spot beneath the descriptor of its allowed root. The kernel refuses every link, so
    /// whatever was exchanged since the spot was resolved, nothing outside is opened: openat2(2).
    /// Since there is no link in it, a spot that lies in a bound by its name lies in it on the disk.
    pub(super) fn open(&self, spot: &Spot, flags: OFlags) -> Io<OwnedFd> {
        if !self.may_serve(spot) {
            return Err(Errno::XDEV);
        }
        let base = self.roots[spot.base].fd.as_ref().map_err(|error| *error)?;
        open_beneath(base, spot.rel.as_bytes(), flags)
    }
}

/// Opens a relative path beneath a descriptor, no link on the way; the empty path is the
/// descriptor's own directory.
pub(super) fn open_beneath(base: &OwnedFd, rel: &[u8], flags: OFlags) -> Io<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC;
    if rel.is_empty() {
        return openat(base, c".", flags, Mode::empty());
    }
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(base, rel, flags, Mode::empty(), resolve)
}

/// Device and inode.
pub(super) fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// What is left of `path` below `dir`, both absolute and without trailing `/`.
fn below<'a>(path: &'a [u8], dir: &[u8]) -> Option<&'a [u8]> {
    match path.strip_prefix(dir)? {
        [] => Some(&[]),
        [b'/', rest @ ..] => Some(rest),
        _ => None,
    }
}

fn slashed(path: &[u8]) -> &Path {
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
            Blocked::Loop | Blocked::Failed => Self::IoError,
        }
    }
}

#[cfg(test)]
mod tests;
