//! The allowed roots: the only descriptors below which anything is ever opened. Leaves what may be
//! read there to its callers.

use super::configured_dirs::{AllowedDir, ConfiguredDirs, OpenDirFn};
use super::open_beneath::OpenMethod;
use super::path_resolution::{
    PathResolution, ResolveStop, path_lookups_from, resolve_path, resolve_path_from,
    resolve_path_reporting_exits,
};
use super::published_paths::PublishedPathCache;
use crate::domain::{RelPath, ResolvedPath, RootReason};
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
const MAX_SNAPSHOT_AGE: Duration = Duration::from_millis(500);
/// Paths of roots that are remembered; all are forgotten when there are more.
const MAX_CACHED_PATHS: usize = 1_024;

/// The directories that the operator allowed, as given. Where they really are is looked up again
/// whenever it may have changed, so that one may be re-created, or be a link that is retargeted.
#[derive(Debug)]
pub struct AllowedDirs {
    configured: ConfiguredDirs,
    /// Of these, only what lies in one of the directories, as given too.
    access_scope: Option<Vec<PathBuf>>,
    opener: OpenMethod,
    cache: Mutex<SnapshotCache>,
    /// Held by the one who looks, on behalf of all who wait: each look is at all allowed directories,
    /// and hundreds of roots may be searched at once.
    refresh_lock: Mutex<()>,
}

/// What was looked up last, and when.
#[derive(Debug)]
struct SnapshotCache {
    started_at: Option<Instant>,
    snapshot: Arc<AllowedDirsSnapshot>,
    /// The places of those that did not answer.
    unresponsive: Arc<[usize]>,
    /// Where paths of roots led on that ground.
    resolved_paths: HashMap<Box<[u8]>, ResolvedPath>,
}

/// What a look found: the ground, and the places of those that did not answer.
type RefreshOutcome = (Arc<AllowedDirsSnapshot>, Arc<[usize]>);

/// Where the allowed roots were at one moment, each held by a descriptor.
#[derive(Debug)]
pub struct AllowedDirsSnapshot {
    opener: OpenMethod,
    /// All of them, as they were given.
    configured: Arc<[Arc<AllowedDir>]>,
    /// Places in `given`, by path.
    index_by_path: Arc<HashMap<Box<[u8]>, usize>>,
    /// None lies inside another. By segments of their paths.
    outermost: Arc<[Arc<AllowedDir>]>,
    /// Where alone anything is resolved to and opened; everywhere if there are none.
    access_scope: Option<Box<[ResolvedPath]>>,
    /// What is published on it.
    pub(super) published_paths: PublishedPathCache,
}

/// A path that was resolved, and the ground on which its spot counts.
#[derive(Debug, Clone)]
pub struct ResolvedRootDir {
    /// The ground.
    pub snapshot: Arc<AllowedDirsSnapshot>,
    /// The place on it.
    pub path: ResolvedPath,
}

/// Why a link or path cannot be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResolveError {
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
    TooManyOpenFiles,
    /// The filesystem failed.
    Failed,
}

impl AllowedDirs {
    /// Keeps absolute paths as they were given, and opens below them as this process can now.
    #[must_use]
    pub fn new(given: Vec<PathBuf>) -> Self {
        Self::with_opener(OpenMethod::probe(), given)
    }

    /// The same for somebody who is bound to what lies in some directories.
    #[must_use]
    pub fn with_access_scope(opener: OpenMethod, given: Vec<PathBuf>, bound: Vec<PathBuf>) -> Self {
        Self { access_scope: Some(bound), ..Self::with_opener(opener, given) }
    }

    /// The same by a way to open that was chosen before.
    #[must_use]
    pub fn with_opener(opener: OpenMethod, given: Vec<PathBuf>) -> Self {
        let given = ConfiguredDirs::new(given);
        let nowhere = AllowedDirsSnapshot::new(opener, Vec::new(), given.index_by_path.clone());
        let (ground, silent) = (Arc::new(nowhere), Arc::default());
        let last = SnapshotCache {
            started_at: None,
            snapshot: ground,
            unresponsive: silent,
            resolved_paths: HashMap::new(),
        };
        Self {
            configured: given,
            access_scope: None,
            opener,
            cache: Mutex::new(last),
            refresh_lock: Mutex::default(),
        }
    }

    /// How everything below them is opened.
    #[must_use]
    pub fn opener(&self) -> OpenMethod {
        self.opener
    }

    /// Looks up where the allowed roots are now. One that does not answer is taken for where it was;
    /// but the one that a path leads into is waited for, however long that takes.
    pub(super) fn snapshot_for_path(&self, path: &[u8]) -> Arc<AllowedDirsSnapshot> {
        let asked = Instant::now();
        let (ground, silent) = self.refresh_unless(|began| began >= asked);
        if silent.is_empty() {
            return ground;
        }
        let home = ground
            .locate_absolute(&resolve_path(path).real)
            .map(|spot| &ground.outermost[spot.dir_index]);
        for at in &*silent {
            // Where it seems to lead outside, it may lead into any that is not known.
            let is_home = home.is_none_or(|home| Arc::ptr_eq(home, &ground.configured[*at]));
            if is_home || self.configured.is_prefix_of(*at, path) {
                self.configured.refresh_blocking(*at, self.open_dir_fn());
            }
        }
        self.store_snapshot(asked, silent).0
    }

    /// The same for whoever waits for none of them, and for whom a look of a moment ago will do.
    pub(super) fn recent_snapshot(&self) -> Arc<AllowedDirsSnapshot> {
        self.refresh_unless(|began| began.elapsed() < MAX_SNAPSHOT_AGE).0
    }

    /// What the last look found, if it began at a time that will do, or what another finds now.
    fn refresh_unless(&self, will_do: impl Fn(Instant) -> bool) -> RefreshOutcome {
        let _gate = self.refresh_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let last = self.cache();
        if last.started_at.is_some_and(will_do) {
            return last.outcome();
        }
        drop(last);
        let began = Instant::now();
        let silent = self.configured.refresh_all(self.open_dir_fn());
        self.store_snapshot(began, silent.into())
    }

    fn open_dir_fn(&self) -> impl OpenDirFn {
        let opener = self.opener;
        move |path: &[u8]| opener.open_absolute_dir(path)
    }

    /// What looks found last. A ground that is as it was is the very same, so that all who stand on it
    /// share its descriptors.
    fn store_snapshot(&self, began: Instant, silent: Arc<[usize]>) -> RefreshOutcome {
        let given = self.configured.last_known();
        let mut last = self.cache();
        let before = &last.snapshot.configured;
        let is_as_it_was = before.len() == given.len()
            && before.iter().zip(&given).all(|(before, now)| Arc::ptr_eq(before, now));
        let whole =
            || AllowedDirsSnapshot::new(self.opener, given, self.configured.index_by_path.clone());
        if let Some(dirs) = &self.access_scope {
            let (whole, before) = (whole(), last.snapshot.access_scope.as_ref());
            let bound = whole.resolve_access_scope(dirs);
            if !is_as_it_was || before != Some(&bound) {
                last.replace_snapshot(AllowedDirsSnapshot { access_scope: Some(bound), ..whole });
            }
        } else if !is_as_it_was {
            last.replace_snapshot(whole());
        }
        (last.started_at, last.unresponsive) = (Some(began), silent);
        last.outcome()
    }

    /// Resolves the path of a root, on the ground that was looked up last if it still holds.
    pub fn resolve(&self, path: &[u8]) -> Result<ResolvedRootDir, ResolveError> {
        let ground = self.cache().snapshot.clone();
        let resolved = match ground.resolve(path) {
            Ok(spot) if ground.is_current(&spot) => {
                ResolvedRootDir { snapshot: ground, path: spot }
            }
            _ => {
                let ground = self.snapshot_for_path(path);
                let spot = ground.resolve(path)?;
                ResolvedRootDir { snapshot: ground, path: spot }
            }
        };
        self.cache().cache_path(path, &resolved);
        Ok(resolved)
    }

    /// Where the path of a root led when it was resolved last; asks nobody whether it still does, and
    /// waits for nobody who looks just now.
    pub(super) fn cached_root(&self, path: &[u8]) -> Option<ResolvedRootDir> {
        let last = self.cache.try_lock().ok()?;
        let spot = last.resolved_paths.get(path)?.clone();
        Some(ResolvedRootDir { snapshot: last.snapshot.clone(), path: spot })
    }

    fn cache(&self) -> MutexGuard<'_, SnapshotCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SnapshotCache {
    fn outcome(&self) -> RefreshOutcome {
        (self.snapshot.clone(), self.unresponsive.clone())
    }

    fn replace_snapshot(&mut self, ground: AllowedDirsSnapshot) {
        self.snapshot = Arc::new(ground);
        self.resolved_paths.clear();
    }

    fn cache_path(&mut self, path: &[u8], resolved: &ResolvedRootDir) {
        let is_here = Arc::ptr_eq(&self.snapshot, &resolved.snapshot);
        if !is_here || self.resolved_paths.get(path) == Some(&resolved.path) {
            return;
        }
        if self.resolved_paths.len() == MAX_CACHED_PATHS {
            self.resolved_paths.clear();
        }
        self.resolved_paths.insert(path.into(), resolved.path.clone());
    }
}

impl AllowedDirsSnapshot {
    fn new(
        opener: OpenMethod,
        given: Vec<Arc<AllowedDir>>,
        by_path: Arc<HashMap<Box<[u8]>, usize>>,
    ) -> Self {
        let mut bases: Vec<_> = given.iter().collect();
        bases.sort_by(|a, b| cmp_by_segments(&a.path, &b.path));
        // An outer directory comes right before all that is inside it.
        let mut roots: Vec<Arc<AllowedDir>> = Vec::new();
        for base in bases {
            if roots.last().is_none_or(|outer| strip_dir_prefix(&base.path, &outer.path).is_none())
            {
                roots.push(base.clone());
            }
        }
        let (given, roots) = (given.into(), roots.into());
        Self {
            opener,
            configured: given,
            index_by_path: by_path,
            outermost: roots,
            access_scope: None,
            published_paths: PublishedPathCache::default(),
        }
    }

    /// Where some directories are on this ground; of one that holds an allowed root, that root.
    fn resolve_access_scope(&self, dirs: &[PathBuf]) -> Box<[ResolvedPath]> {
        let spots = dirs.iter().flat_map(|dir| {
            let real = resolve_path(dir.as_os_str().as_bytes()).real;
            let held = (0..self.outermost.len())
                .filter(|base| strip_dir_prefix(&self.outermost[*base].path, &real).is_some());
            let held = held.map(|base| ResolvedPath { dir_index: base, rel_path: RelPath::root() });
            held.chain(self.locate_absolute(&real)).collect::<Vec<_>>()
        });
        spots.collect()
    }

    /// All of the ground, for whoever asks about names and rules: these are the operator's and the
    /// same for everybody. Nothing that is read there is served.
    pub(super) fn without_access_scope(&self) -> Self {
        Self {
            opener: self.opener,
            configured: self.configured.clone(),
            index_by_path: self.index_by_path.clone(),
            outermost: self.outermost.clone(),
            access_scope: None,
            published_paths: PublishedPathCache::default(),
        }
    }

    /// Whether a place is one that may be served.
    pub(super) fn is_in_access_scope(&self, spot: &ResolvedPath) -> bool {
        let is_in = |dirs: &[ResolvedPath]| dirs.iter().any(|dir| spot.strip_prefix(dir).is_some());
        self.access_scope.as_deref().is_none_or(is_in)
    }

    /// Whether the base of a spot is still the directory at its path.
    fn is_current(&self, spot: &ResolvedPath) -> bool {
        let base = &self.outermost[spot.dir_index];
        let Ok(fd) = &base.fd else { return false };
        let (Ok(held), Ok(now)) =
            (fstat(fd), statat(CWD, path_or_slash(&base.path), AtFlags::SYMLINK_NOFOLLOW))
        else {
            return false;
        };
        identity(&held) == identity(&now)
    }

    /// What the directory at a spot is called; `None` for the root of the file system.
    pub(super) fn dir_name<'a>(&'a self, spot: &'a ResolvedPath) -> Option<&'a [u8]> {
        let base = || self.outermost[spot.dir_index].path.rsplit(|b| *b == b'/').next();
        spot.rel_path.file_name().or_else(base).filter(|name| !name.is_empty())
    }

    /// Resolves an absolute path.
    pub fn resolve(&self, path: &[u8]) -> Result<ResolvedPath, ResolveError> {
        // What the operator wrote may take any way.
        self.resolve_without_escape(Vec::new(), path, 0, self.index_by_path.contains_key(path))
    }

    /// Whether a path is one that the operator allowed, as given: where it leads was looked up.
    pub(super) fn is_configured(&self, path: &[u8]) -> bool {
        self.index_by_path.contains_key(path)
    }

    /// Resolves the path of a published root, which is allowed too, to where it was when the ground was
    /// looked up: it may be on a filesystem that does not answer.
    pub(super) fn resolve_published(&self, path: &[u8]) -> Result<ResolvedPath, ResolveError> {
        let Some(at) = self.index_by_path.get(path) else { return self.resolve(path) };
        let AllowedDir { path, stop: stopped, .. } = &*self.configured[*at];
        self.finish_resolution(&PathResolution { real: path.clone(), stop: *stopped })
    }

    /// The absolute path of a spot.
    pub(super) fn absolute_path(&self, spot: &ResolvedPath) -> PathBuf {
        let rel = Path::new(std::ffi::OsStr::from_bytes(spot.rel_path.as_bytes()));
        let base = path_or_slash(&self.outermost[spot.dir_index].path);
        if spot.rel_path.is_root() { base.to_owned() } else { base.join(rel) }
    }

    /// Resolves a path as it was walked to below a directory.
    pub(super) fn resolve_below(
        &self,
        dir: &ResolvedPath,
        walked: &RelPath,
    ) -> Result<ResolvedPath, ResolveError> {
        self.finish_resolution(&resolve_path_from(self.absolute_bytes(dir), walked.as_bytes(), 0))
    }

    /// Resolves a link's target, which is relative to the directory that holds the link.
    pub(super) fn resolve_link(
        &self,
        holder: &ResolvedPath,
        target: &[u8],
    ) -> Result<ResolvedPath, ResolveError> {
        self.resolve_without_escape(self.absolute_bytes(holder), target, 1, false)
    }

    /// Walks a path that somebody wrote. Where it goes out of the ground and comes back by `..`, it is
    /// refused whether the place that it comes back from exists or not: else it would tell.
    fn resolve_without_escape(
        &self,
        real: Vec<u8>,
        path: &[u8],
        links: u32,
        may_come_back: bool,
    ) -> Result<ResolvedPath, ResolveError> {
        let mut tells = false;
        let walked = resolve_path_reporting_exits(real, path, links, |dir| {
            tells |= !self.is_inside_or_above(dir)
        });
        if tells && !may_come_back {
            return Err(ResolveError::Outside);
        }
        self.finish_resolution(&walked)
    }

    /// Whether a place is on the ground, or leads to it.
    fn is_inside_or_above(&self, dir: &[u8]) -> bool {
        let bound = || {
            self.access_scope
                .iter()
                .flatten()
                .any(|spot| strip_dir_prefix(&self.absolute_bytes(spot), dir).is_some())
        };
        self.locate_absolute(dir).is_some()
            || self.outermost.iter().any(|root| strip_dir_prefix(&root.path, dir).is_some())
            || bound()
    }

    /// The directories that following a link's target looks into, as far as they are inside, and for
    /// which name.
    pub(super) fn link_lookups(
        &self,
        holder: &ResolvedPath,
        target: &[u8],
    ) -> Vec<(ResolvedPath, Vec<u8>)> {
        let steps = path_lookups_from(self.absolute_bytes(holder), target).into_iter();
        steps.filter_map(|(dir, name)| Some((self.locate_absolute(&dir)?, name))).collect()
    }

    /// The absolute path of a spot, without trailing `/`.
    pub(super) fn absolute_bytes(&self, spot: &ResolvedPath) -> Vec<u8> {
        let mut real = self.outermost[spot.dir_index].path.clone();
        for segment in spot.rel_path.segments() {
            real.push(b'/');
            real.extend(segment);
        }
        real
    }

    /// The spot of an absolute path without links; `None` outside.
    pub(super) fn locate_absolute(&self, path: &[u8]) -> Option<ResolvedPath> {
        // Of those that come before it, the last: others inside that one would have come too.
        let after =
            self.outermost.partition_point(|root| cmp_by_segments(&root.path, path).is_le());
        let base = after.checked_sub(1)?;
        let rel = RelPath::new(strip_dir_prefix(path, &self.outermost[base].path)?)?;
        let spot = Some(ResolvedPath { dir_index: base, rel_path: rel });
        spot.filter(|spot| self.is_in_access_scope(spot))
    }

    /// Says the same of everything outside, whether it exists or not.
    fn finish_resolution(&self, walked: &PathResolution) -> Result<ResolvedPath, ResolveError> {
        let spot = self.locate_absolute(&walked.real).ok_or(ResolveError::Outside)?;
        match walked.stop {
            None => Ok(spot),
            Some(ResolveStop::Missing) => Err(ResolveError::Missing),
            Some(ResolveStop::NotADirectory) => Err(ResolveError::NotADirectory),
            Some(ResolveStop::Denied) => Err(ResolveError::Denied),
            Some(ResolveStop::Loop) => Err(ResolveError::Loop),
            Some(ResolveStop::MagicLink) => Err(ResolveError::Outside),
            Some(ResolveStop::Failed) => Err(ResolveError::Failed),
        }
    }

    /// Opens a spot beneath the descriptor of its allowed root. No link is followed, so whatever was
    /// exchanged since the spot was resolved, nothing outside is opened.
    /// Since there is no link in it, a spot that lies in a bound by its name lies in it on the disk.
    pub(super) fn open(&self, spot: &ResolvedPath, flags: OFlags) -> Io<OwnedFd> {
        if !self.is_in_access_scope(spot) {
            return Err(Errno::XDEV);
        }
        let base = self.outermost[spot.dir_index].fd.as_ref().map_err(|error| *error)?;
        self.opener.open(base, spot.rel_path.as_bytes(), flags)
    }

    /// The same with what the kernel has in memory; else an error.
    pub(super) fn open_cached(&self, spot: &ResolvedPath, flags: OFlags) -> Io<OwnedFd> {
        if !self.is_in_access_scope(spot) {
            return Err(Errno::XDEV);
        }
        let base = self.outermost[spot.dir_index].fd.as_ref().map_err(|error| *error)?;
        self.opener.open_cached(base, spot.rel_path.as_bytes(), flags)
    }

    /// The allowed root that a spot is below, and how things are opened there.
    pub(super) fn dir_and_opener(&self, spot: &ResolvedPath) -> (&AllowedDir, OpenMethod) {
        (&self.outermost[spot.dir_index], self.opener)
    }
}

/// Device and inode.
pub(super) fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// The order of absolute paths without trailing `/` in which what is inside a directory comes right
/// behind it.
fn cmp_by_segments(a: &[u8], b: &[u8]) -> Ordering {
    let rank = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
    a.iter().map(rank).cmp(b.iter().map(rank))
}

/// What is left of `path` below `dir`, both absolute and without trailing `/`.
fn strip_dir_prefix<'a>(path: &'a [u8], dir: &[u8]) -> Option<&'a [u8]> {
    match path.strip_prefix(dir)? {
        [] => Some(&[]),
        [b'/', rest @ ..] => Some(rest),
        _ => None,
    }
}

pub(super) fn path_or_slash(path: &[u8]) -> &Path {
    let path = if path.is_empty() { b"/" } else { path };
    Path::new(std::ffi::OsStr::from_bytes(path))
}

impl From<ResolveError> for RootReason {
    fn from(blocked: ResolveError) -> Self {
        match blocked {
            ResolveError::Outside => Self::NotAllowed,
            ResolveError::Missing => Self::NotFound,
            ResolveError::NotADirectory => Self::NotADirectory,
            ResolveError::Denied => Self::PermissionDenied,
            ResolveError::Loop | ResolveError::TooManyOpenFiles | ResolveError::Failed => {
                Self::IoError
            }
        }
    }
}

#[cfg(test)]
mod tests;
