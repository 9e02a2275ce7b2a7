//! State of the allowed directories at one moment. Files below roots are opened only beneath the
//! descriptors of a snapshot.

mod search_links;

pub use search_links::VisibleDir;

use super::configured_dirs::AllowedDir;
use super::confined_lookup::ConfinedLookup;
use super::link_dirs::LinkDirs;
use super::open_beneath::OpenMethod;
use super::path_resolution::{
    NameLookup, PathResolution, PathStart, ResolveStop, SegmentOrigin, path_or_slash, resolve_path,
    resolve_path_with, stop_from_errno,
};
use crate::daemon::model::{PublishedRoot, ResolvedPath, RootReason};
use caproot_core::wire::RelPath;
use rustix::fs::{AtFlags, CWD, OFlags, Stat, readlinkat, statat};
use rustix::io::{Errno, Result as Io};
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// Maximum number of attempts to resolve a path whose directories are replaced in the meantime.
const TRIES: usize = 4;

/// Open descriptors of the allowed directories.
#[derive(Debug, Clone)]
pub struct AllowedDirsSnapshot {
    opener: OpenMethod,
    /// All allowed directories, in the order of the configuration.
    configured: Arc<[Arc<AllowedDir>]>,
    /// Index in `configured` of each configured path.
    index_by_path: Arc<HashMap<Box<[u8]>, usize>>,
    /// Allowed directories that lie in no other allowed directory, sorted by path segments.
    outermost: Arc<[Arc<AllowedDir>]>,
    /// Directories that are not allowed, in which links of some roots may find skills. Paths in them
    /// have an index after those of `outermost`.
    link_dirs: Arc<LinkDirs>,
    /// Entries that the configured paths of the allowed directories lead through.
    configured_steps: Arc<HashSet<Vec<u8>>>,
    /// Directories outside which nothing is resolved or opened; `None` if there is no such limit.
    pub(super) access_scope: Option<Arc<ScopedDirs>>,
    published_paths: OnceLock<(Arc<[PublishedRoot]>, Arc<PublishedPaths>)>,
}

/// Directories of an access scope.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ScopedDirs {
    paths: Vec<ResolvedPath>,
    /// Entries that the configured paths of these directories, and of the allowed directories around
    /// or inside them, lead through.
    configured_steps: HashSet<Vec<u8>>,
}

/// Resolved paths of the published roots.
#[derive(Debug)]
pub struct PublishedPaths {
    /// One for each published root; `None` if the root could not be resolved.
    pub by_root: Box<[Option<ResolvedPath>]>,
    pub all: Arc<HashSet<ResolvedPath>>,
}

/// Reason why a path or link cannot be resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResolveError {
    /// The path ends outside every allowed directory, whether its end exists or not.
    Outside,
    /// The path ends inside an allowed directory and does not exist.
    Missing,
    /// A component inside an allowed directory is not a directory.
    NotADirectory,
    /// Search permission is denied for a component inside an allowed directory.
    Denied,
    /// The links form a cycle, or there are more than 40 of them.
    Loop,
    /// The limit of open files of the process or the system is reached.
    TooManyOpenFiles,
    /// The filesystem failed.
    Failed,
}

impl AllowedDirsSnapshot {
    /// Creates a snapshot without an access scope.
    pub(super) fn new(
        opener: OpenMethod,
        configured: Vec<Arc<AllowedDir>>,
        index_by_path: Arc<HashMap<Box<[u8]>, usize>>,
        link_dirs: LinkDirs,
    ) -> Self {
        let mut dirs: Vec<_> = configured.iter().collect();
        dirs.sort_by(|a, b| cmp_by_segments(&a.path, &b.path));

        // The sort puts an outer directory directly before the directories inside it.
        let mut outermost: Vec<Arc<AllowedDir>> = Vec::new();
        for dir in dirs {
            let outer = outermost.last();
            if outer.is_none_or(|outer| strip_dir_prefix(&dir.path, &outer.path).is_none()) {
                outermost.push(dir.clone());
            }
        }

        let configured_steps = configured.iter().flat_map(|dir| dir.steps.iter().cloned());
        Self {
            opener,
            configured_steps: Arc::new(configured_steps.collect()),
            configured: configured.into(),
            index_by_path,
            outermost: outermost.into(),
            link_dirs: Arc::new(link_dirs),
            access_scope: None,
            published_paths: OnceLock::new(),
        }
    }

    /// Limits the snapshot to the directories of an access scope, if there is one.
    pub(super) fn with_access_scope(self, dirs: Option<&[PathBuf]>) -> Self {
        Self {
            access_scope: dirs.map(|dirs| Arc::new(self.resolve_access_scope(dirs))),
            ..self
        }
    }

    /// Resolves the directories of an access scope. A directory above allowed directories stands
    /// for these allowed directories.
    fn resolve_access_scope(&self, dirs: &[PathBuf]) -> ScopedDirs {
        let mut scope = ScopedDirs::default();
        for dir in dirs {
            let PathResolution { real, lookups, .. } = resolve_path(dir.as_os_str().as_bytes());

            let inside = (0..self.outermost.len())
                .filter(|index| strip_dir_prefix(&self.outermost[*index].path, &real).is_some());
            scope.paths.extend(inside.map(|index| ResolvedPath {
                dir_index: index,
                rel_path: RelPath::root(),
            }));
            scope.paths.extend(self.locate_absolute(&real));

            let steps = lookups.iter().map(NameLookup::entry_path);
            scope.configured_steps.extend(steps);
            let related = self.configured.iter().filter(|dir| {
                strip_dir_prefix(&dir.path, &real).is_some()
                    || strip_dir_prefix(&real, &dir.path).is_some()
            });
            let steps = related.flat_map(|dir| dir.steps.iter().cloned());
            scope.configured_steps.extend(steps);
        }
        scope
    }

    /// Returns the snapshot without its access scope, for names and disable rules: they are the
    /// same for every caller. Files that are read through this snapshot must not be served.
    pub(crate) fn without_access_scope(&self) -> Self {
        Self {
            access_scope: None,
            published_paths: OnceLock::new(),
            ..self.clone()
        }
    }

    /// Whether a path may be served.
    pub(crate) fn is_in_access_scope(&self, path: &ResolvedPath) -> bool {
        self.access_scope.as_ref().is_none_or(|scope| {
            let mut dirs = scope.paths.iter();
            dirs.any(|dir| path.strip_prefix(dir).is_some())
        })
    }

    /// Whether the snapshot has exactly these descriptors.
    pub(super) fn has_dirs(&self, dirs: &[Arc<AllowedDir>]) -> bool {
        let own = self.configured.iter().chain(&self.link_dirs.dirs);
        own.map(Arc::as_ptr).eq(dirs.iter().map(Arc::as_ptr))
    }

    /// Whether the allowed directory of a path is the configured directory of this index.
    pub(super) fn is_dir_of(&self, index: usize, path: &ResolvedPath) -> bool {
        let configured = self.configured.get(index);
        configured.is_some_and(|dir| Arc::ptr_eq(self.dir_at(path.dir_index), dir))
    }

    /// Whether the allowed directory of a resolved path is still the directory at its path.
    pub(super) fn is_current(&self, path: &ResolvedPath) -> bool {
        let dir = self.dir_at(path.dir_index);
        let now = statat(CWD, path_or_slash(&dir.path), AtFlags::SYMLINK_NOFOLLOW);
        now.is_ok_and(|now| dir.identity == Some(identity(&now)))
    }

    /// Returns the name of a directory; `None` for the root of the file system.
    pub(crate) fn dir_name<'a>(&'a self, path: &'a ResolvedPath) -> Option<&'a [u8]> {
        let dir = &self.dir_at(path.dir_index).path;
        path.rel_path
            .file_name()
            .or_else(|| dir.rsplit(|b| *b == b'/').next())
            .filter(|name| !name.is_empty())
    }

    /// Resolves an absolute path.
    pub fn resolve(&self, path: &[u8]) -> Result<ResolvedPath, ResolveError> {
        self.finish_resolution(&self.resolve_absolute(path))
    }

    fn resolve_absolute(&self, path: &[u8]) -> PathResolution {
        // A path from the configuration may leave the allowed directories on the way.
        if self.index_by_path.contains_key(path) {
            resolve_path(path)
        } else {
            self.resolve_confined(&PathStart::absolute(path))
        }
    }

    /// Resolves a path that a caller or a link provides.
    fn resolve_confined(&self, start: &PathStart<'_>) -> PathResolution {
        resolve_with(start, ConfinedLookup::new(self))
    }

    /// Resolves the path of a root to the place that it may have if a directory does not respond.
    pub(super) fn locate_root(&self, path: &[u8]) -> Option<ResolvedPath> {
        let resolution = self.resolve_confined(&PathStart::absolute(path));
        let is_outside = resolution.stop == Some(ResolveStop::Outside);
        self.locate_absolute(&resolution.real)
            .filter(|_| !is_outside)
    }

    /// Whether the path of a root leads to this directory, by names that the kernel has cached.
    pub(super) fn leads_to_cached(&self, path: &[u8], dir: &ResolvedPath) -> bool {
        let mut lookup = ConfinedLookup {
            cached_only: true,
            ..ConfinedLookup::new(self)
        };
        let resolution = resolve_path_with(PathStart::absolute(path), &mut lookup);
        self.finish_resolution(&resolution).as_ref() == Ok(dir)
    }

    /// Returns the resolved paths of the published roots. The result is cached for one list of
    /// roots, because nearly all callers pass the same list.
    pub(crate) fn published_paths_of(
        &self,
        published: &Arc<[PublishedRoot]>,
    ) -> Arc<PublishedPaths> {
        if let Some((roots, paths)) = self.published_paths.get()
            && Arc::ptr_eq(roots, published)
        {
            return paths.clone();
        }

        let by_root = published
            .iter()
            .map(|root| self.resolve_published(&root.path).ok());
        let by_root: Box<[_]> = by_root.collect();
        let all = Arc::new(by_root.iter().flatten().cloned().collect());
        let paths = Arc::new(PublishedPaths { by_root, all });

        // The path of any other root may lead elsewhere the next time.
        if published
            .iter()
            .all(|root| self.index_by_path.contains_key(&root.path))
        {
            // If another thread was first, it stored the same paths.
            let _ = self.published_paths.set((published.clone(), paths.clone()));
        }

        paths
    }

    /// Resolves the path of a published root. If the path is an allowed directory, uses the result
    /// of the snapshot, because the filesystem may have stopped responding since.
    pub(super) fn resolve_published(&self, path: &[u8]) -> Result<ResolvedPath, ResolveError> {
        let Some(index) = self.index_by_path.get(path) else {
            return self.resolve(path);
        };
        let AllowedDir { path, stop, .. } = &*self.configured[*index];
        self.finish_resolution(&PathResolution {
            real: path.clone(),
            stop: *stop,
            lookups: Vec::new(),
        })
    }

    /// Resolves a path relative to a directory. All components are confined like those of a link: an
    /// earlier component may be a link to a directory above.
    pub(super) fn resolve_below(
        &self,
        dir: &ResolvedPath,
        walked: &RelPath,
    ) -> Result<ResolvedPath, ResolveError> {
        if self.is_in_link_dir(dir) {
            return self.resolve_each_link(dir, walked);
        }
        let resolution = self.resolve_confined(&self.start_at(dir, walked.as_bytes(), 0));
        match self.finish_resolution(&resolution) {
            // A link on the way may be a link of a search.
            Err(ResolveError::Outside) if self.may_search_links(dir) => {
                self.resolve_each_link(dir, walked)
            }
            resolved => resolved,
        }
    }

    /// Resolves a path relative to a directory. Each link is judged by the directory that holds it.
    fn resolve_each_link(
        &self,
        dir: &ResolvedPath,
        walked: &RelPath,
    ) -> Result<ResolvedPath, ResolveError> {
        let mut resolved = dir.clone();
        for name in walked.segments() {
            let entry = resolved.join(name).ok_or(ResolveError::Missing)?;
            let opened = self.open(&entry, OFlags::PATH | OFlags::NOFOLLOW);
            let opened = opened.map_err(|error| ResolveError::from(stop_from_errno(error)))?;
            resolved = match readlinkat(opened, c"", Vec::new()) {
                Ok(target) => self.resolve_link(&resolved, name, target.as_bytes())?,
                // readlinkat(2): the error of an entry that is not a link.
                Err(Errno::NOENT | Errno::INVAL) => entry,
                Err(error) => return Err(stop_from_errno(error).into()),
            };
        }
        Ok(resolved)
    }

    /// Resolves the target of the link `name` in the directory `holder`.
    pub(super) fn resolve_link(
        &self,
        holder: &ResolvedPath,
        name: &[u8],
        target: &[u8],
    ) -> Result<ResolvedPath, ResolveError> {
        let start = self.start_at(holder, target, 1);
        if self.is_in_link_dir(holder) {
            return self.resolve_skill_link(holder, &start);
        }
        match self.finish_resolution(&self.resolve_confined(&start)) {
            Err(ResolveError::Outside) if self.may_search_links(holder) => self
                .resolve_search_link(holder, name, &start)
                .ok_or(ResolveError::Outside),
            resolved => resolved,
        }
    }

    /// Returns the start of a path that is confined like that of a link. `links` were followed before.
    fn start_at<'a>(&self, dir: &ResolvedPath, path: &'a [u8], links: u32) -> PathStart<'a> {
        PathStart {
            real: self.absolute_bytes(dir),
            path,
            origin: SegmentOrigin::InsideLink,
            links,
        }
    }

    /// Whether a directory lies in an allowed directory, or above one or above the access scope.
    pub(super) fn is_inside_or_above(&self, dir: &[u8]) -> bool {
        let mut scope = self.access_scope.iter().flat_map(|scope| &scope.paths);
        self.locate_absolute(dir).is_some()
            || self
                .outermost
                .iter()
                .any(|outer| strip_dir_prefix(&outer.path, dir).is_some())
            || scope.any(|path| strip_dir_prefix(&self.absolute_bytes(path), dir).is_some())
    }

    /// Whether an entry is on the configured path of an allowed directory.
    pub(super) fn is_configured_step(&self, entry: &[u8]) -> bool {
        match &self.access_scope {
            Some(scope) => scope.configured_steps.contains(entry),
            None => self.configured_steps.contains(entry),
        }
    }

    /// Returns each name that is looked up when the path of a root is resolved.
    pub(crate) fn root_lookups(&self, path: &[u8]) -> Vec<NameLookup> {
        self.resolve_absolute(path).lookups
    }

    /// Resolves a path below a directory, and calls `visit` with each directory and name before the
    /// name is looked up. If a watch of the name is set then, each later change of the way is
    /// reported. Directories outside the allowed directories are omitted.
    pub(crate) fn visit_lookups(
        &self,
        dir: &ResolvedPath,
        walked: &RelPath,
        mut visit: impl FnMut(&ResolvedPath, &[u8]),
    ) {
        let mut visit_allowed = |dir: &[u8], name: &[u8]| {
            if let Some(dir) = self.locate_absolute(dir) {
                visit(&dir, name);
            }
        };
        let lookup = ConfinedLookup {
            visit: Some(&mut visit_allowed),
            ..ConfinedLookup::new(self)
        };
        resolve_with(&self.start_at(dir, walked.as_bytes(), 0), lookup);
    }

    /// Returns the absolute path of a resolved path, without trailing `/`.
    pub(crate) fn absolute_bytes(&self, path: &ResolvedPath) -> Vec<u8> {
        let mut absolute = self.dir_at(path.dir_index).path.clone();
        for segment in path.rel_path.segments() {
            absolute.push(b'/');
            absolute.extend(segment);
        }
        absolute
    }

    /// Returns the resolved path of an absolute path without links; `None` outside the allowed
    /// directories and the access scope.
    pub(crate) fn locate_absolute(&self, path: &[u8]) -> Option<ResolvedPath> {
        let (dir_index, rel_path) = self.split_at_dir(path)?;
        let located = Some(ResolvedPath {
            dir_index,
            rel_path: RelPath::new(rel_path)?,
        });
        located.filter(|path| self.is_in_access_scope(path))
    }

    /// Splits an absolute path without links into the index of the allowed directory that holds it,
    /// and the rest. Ignores the access scope.
    pub(super) fn split_at_dir<'a>(&self, path: &'a [u8]) -> Option<(usize, &'a [u8])> {
        // The last directory that sorts before the path is the only one that can hold it.
        let after = self
            .outermost
            .partition_point(|outer| cmp_by_segments(&outer.path, path).is_le());
        let dir_index = after.checked_sub(1)?;
        let rel_path = strip_dir_prefix(path, &self.outermost[dir_index].path)?;
        Some((dir_index, rel_path))
    }

    /// Opens an entry beneath its directory. Ignores the access scope: use the descriptor only to read
    /// the target of a link.
    pub(super) fn open_entry(
        &self,
        dir_index: usize,
        rel_path: &[u8],
        flags: OFlags,
        cached_only: bool,
    ) -> Io<OwnedFd> {
        let dir = self.dir_at(dir_index).descriptor()?;
        if cached_only {
            self.opener.open_cached(dir, rel_path, flags)
        } else {
            self.opener.open(dir, rel_path, flags)
        }
    }

    pub(super) fn dir_at(&self, dir_index: usize) -> &Arc<AllowedDir> {
        let outermost = self.outermost.get(dir_index);
        outermost.unwrap_or_else(|| &self.link_dirs.dirs[dir_index - self.outermost.len()])
    }

    pub(super) fn opener(&self) -> OpenMethod {
        self.opener
    }

    /// Returns the same error for every path outside, whether it exists or not.
    fn finish_resolution(&self, resolution: &PathResolution) -> Result<ResolvedPath, ResolveError> {
        if resolution.stop == Some(ResolveStop::Outside) {
            return Err(ResolveError::Outside);
        }
        let path = self
            .locate_absolute(&resolution.real)
            .ok_or(ResolveError::Outside)?;
        finish_stop(resolution.stop, path)
    }

    /// Opens a path beneath the descriptor of its allowed directory without following links. If a
    /// component was replaced by a link since the path was resolved, the call fails. Because there
    /// is no link in the path, its text alone decides whether it is in the access scope.
    pub(crate) fn open(&self, path: &ResolvedPath, flags: OFlags) -> Io<OwnedFd> {
        if self.is_in_link_dir(path) {
            return self.open_in_skill(path, flags);
        }
        if !self.is_in_access_scope(path) {
            return Err(Errno::XDEV);
        }
        // Not `open_entry`, which also opens below link directories: files below a directory of links
        // are never opened.
        let dir = self.outermost[path.dir_index].descriptor()?;
        self.opener.open(dir, path.rel_path.as_bytes(), flags)
    }

    /// Opens a path like [`Self::open`], but fails if the kernel does not have it in its cache.
    pub(super) fn open_cached(&self, path: &ResolvedPath, flags: OFlags) -> Io<OwnedFd> {
        if self.is_in_link_dir(path) {
            return Err(Errno::AGAIN);
        }
        if !self.is_in_access_scope(path) {
            return Err(Errno::XDEV);
        }
        // Not `open_entry`, as in `open`: files below a directory of links are never opened.
        let dir = self.outermost[path.dir_index].descriptor()?;
        self.opener
            .open_cached(dir, path.rel_path.as_bytes(), flags)
    }
}

/// Returns the path, or the error of a resolution that stopped before the end of the path.
fn finish_stop(
    stop: Option<ResolveStop>,
    path: ResolvedPath,
) -> Result<ResolvedPath, ResolveError> {
    stop.map_or(Ok(path), |stop| Err(stop.into()))
}

impl From<ResolveStop> for ResolveError {
    fn from(stop: ResolveStop) -> Self {
        match stop {
            ResolveStop::Missing => Self::Missing,
            ResolveStop::NotADirectory => Self::NotADirectory,
            ResolveStop::Denied => Self::Denied,
            ResolveStop::Loop => Self::Loop,
            ResolveStop::MagicLink | ResolveStop::Outside => Self::Outside,
            ResolveStop::TooManyOpenFiles => Self::TooManyOpenFiles,
            ResolveStop::Replaced | ResolveStop::Failed => Self::Failed,
        }
    }
}

/// Device and inode.
pub fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// Compares absolute paths without trailing `/`. The contents of a directory sort directly after
/// the directory.
fn cmp_by_segments(a: &[u8], b: &[u8]) -> Ordering {
    let rank = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
    a.iter().map(rank).cmp(b.iter().map(rank))
}

/// Returns `path` relative to `dir`; both are absolute and have no trailing `/`.
pub fn strip_dir_prefix<'a>(path: &'a [u8], dir: &[u8]) -> Option<&'a [u8]> {
    match path.strip_prefix(dir)? {
        [] => Some(&[]),
        [b'/', rest @ ..] => Some(rest),
        _ => None,
    }
}

impl From<ResolveError> for RootReason {
    fn from(error: ResolveError) -> Self {
        match error {
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

/// Resolves a path, again if an entry on the way was replaced meanwhile.
fn resolve_with(start: &PathStart<'_>, mut lookup: ConfinedLookup<'_>) -> PathResolution {
    let mut resolution = resolve_path_with(start.clone(), &mut lookup);
    for _ in 1..TRIES {
        if resolution.stop != Some(ResolveStop::Replaced) {
            break;
        }
        resolution = resolve_path_with(start.clone(), &mut lookup);
    }
    resolution
}
