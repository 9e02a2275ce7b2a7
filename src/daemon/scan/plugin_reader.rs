//! Access to the files of one plugin. No file outside the plugin's directory is opened.

use super::file_problem::open_problem;
use super::scan_progress::ScanProgress;
use super::search::SearchRules;
use super::watches::{DirWatcher, PathRole, WatchRecorder, WatchedEntries};
use crate::daemon::fs::dirs_snapshot::AllowedDirsSnapshot;
use crate::daemon::fs::open_file::{self, OpenFile, read_names};
use crate::daemon::model::{
    DiagnosticCode, FileProblem, Limits, ResolvedPath, Severity, resource_filter, skill_file_name,
};
use caproot_core::wire::RelPath;
use rustix::fs::{FileType, OFlags};
use std::collections::BTreeSet;
use std::os::fd::AsFd as _;

/// Maximum number of entries of a directory that are looked up for a SKILL.md.
const MAX_SKILL_DIRS: usize = 256;

/// Parameters for reading a plugin.
#[derive(Debug, Clone, Copy)]
pub struct PluginReader<'a> {
    pub snapshot: &'a AllowedDirsSnapshot,
    pub limits: &'a Limits,
    pub skipped_dirs: &'a [Box<[u8]>],
    follow_links: bool,
    pub watcher: &'a dyn DirWatcher,
    pub progress: &'a ScanProgress,
}

/// File or directory at a path of the manifest.
pub enum DeclaredTarget {
    Nothing,
    File(OpenFile),
    Directory(ResolvedPath),
    Problem(FileProblem),
}

impl<'a> PluginReader<'a> {
    pub fn new(
        snapshot: &'a AllowedDirsSnapshot,
        rules: &'a SearchRules,
        watcher: &'a dyn DirWatcher,
        progress: &'a ScanProgress,
    ) -> Self {
        Self {
            snapshot,
            limits: &rules.limits,
            skipped_dirs: &rules.skipped_dirs,
            follow_links: rules.follow_links,
            watcher,
            progress,
        }
    }

    /// Watches the first component of each path below `dir`. One watch of several components costs
    /// as much as a watch of one component.
    pub fn watch_first_components<'p>(
        &self,
        dir: &ResolvedPath,
        paths: impl Iterator<Item = &'p RelPath>,
        watches: &mut WatchRecorder<'_>,
    ) {
        let names: BTreeSet<_> = paths.filter_map(|path| path.segments().next()).collect();
        // Without a name, all entries would be watched.
        if names.is_empty() {
            return;
        }
        let Ok(fd) = self.snapshot.open(dir, OFlags::PATH | OFlags::DIRECTORY) else {
            return;
        };
        let names = Vec::from_iter(names);
        watches.watch_entries(fd.as_fd(), WatchedEntries::OnPath(PathRole::File, &names));
    }

    /// Watches the way to a path below `dir`, then looks the path up. Call
    /// [`Self::watch_first_components`] before.
    pub fn watch_and_find(
        &self,
        dir: &ResolvedPath,
        path: &RelPath,
        watches: &mut WatchRecorder<'_>,
    ) -> DeclaredTarget {
        if !resource_filter::may_serve_path(path, self.skipped_dirs) {
            return DeclaredTarget::Problem(skipped_path_problem());
        }

        watches.watch_file_path(self.snapshot, dir, path);
        let target = match open_file::find_target(self.snapshot, dir, path) {
            Ok(target) => target,
            Err(e) if e.is_absent() => return DeclaredTarget::Nothing,
            Err(e) => return DeclaredTarget::Problem(open_problem(e, Severity::Warning)),
        };

        if let Err(problem) = self.check_path(dir, path, &target.real_path) {
            return DeclaredTarget::Problem(problem);
        }

        match FileType::from_raw_mode(target.stat.st_mode) {
            FileType::Directory => DeclaredTarget::Directory(target.real_path),
            kind => match self.open_listed(dir, path, kind, Some(target.real_path)) {
                Ok(file) => DeclaredTarget::File(file),
                Err(problem) => DeclaredTarget::Problem(problem),
            },
        }
    }

    /// Whether a directory or one of the directories in it has a SKILL.md.
    pub fn has_skill(&self, dir: &ResolvedPath) -> bool {
        let has_file = |dir: &ResolvedPath| {
            open_file::find_target(self.snapshot, dir, &skill_file_name()).is_ok()
        };
        if has_file(dir) {
            return true;
        }

        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let Ok(fd) = self.snapshot.open(dir, flags) else {
            return false;
        };
        let names = read_names(&fd, MAX_SKILL_DIRS, &mut Vec::new()).unwrap_or_default();
        let mut below = names.iter().filter_map(|(name, _)| dir.join(name));
        below.any(|dir| has_file(&dir))
    }

    /// Opens a file like [`Self::open`]. `kind` and `real_path` are its kind and its path without
    /// links as they were a moment ago, which saves a lookup of a regular file.
    pub fn open_listed(
        &self,
        dir: &ResolvedPath,
        path: &RelPath,
        kind: FileType,
        real_path: Option<ResolvedPath>,
    ) -> Result<OpenFile, FileProblem> {
        let real_path = real_path.filter(|_| kind == FileType::RegularFile);
        match real_path.map(|real_path| open_file::open_real_path(self.snapshot, real_path)) {
            Some(Ok(opened)) => {
                self.check_path(dir, path, &opened.real_path)?;
                Ok(opened)
            }
            // The file is no longer what it was.
            Some(Err(_)) | None => self.open(dir, path),
        }
    }

    /// Opens a regular file below a directory, if no link leads out of the directory.
    pub fn open(&self, dir: &ResolvedPath, path: &RelPath) -> Result<OpenFile, FileProblem> {
        let opened = open_file::open_file(self.snapshot, dir, path);
        let opened = opened.map_err(|e| open_problem(e, Severity::Error))?;
        self.check_path(dir, path, &opened.real_path)?;
        Ok(opened)
    }

    fn check_path(
        &self,
        dir: &ResolvedPath,
        path: &RelPath,
        real: &ResolvedPath,
    ) -> Result<(), FileProblem> {
        let walked_path = dir.join_path(path);

        match real.strip_prefix(dir) {
            None => Err(FileProblem::warning(
                DiagnosticCode::PathInvalid,
                "a link leads out of the plugin and is not followed; replace it by a copy of the \
                 file",
            )),
            Some(below) if !resource_filter::may_serve_path(&below, self.skipped_dirs) => {
                Err(skipped_path_problem())
            }
            Some(_) if !self.follow_links && *real != walked_path => Err(FileProblem::warning(
                DiagnosticCode::OutsideRoot,
                "links are not followed below this root",
            )),
            Some(_) => Ok(()),
        }
    }
}

fn skipped_path_problem() -> FileProblem {
    let why = "the path is in a skipped directory, or is named `.env`";
    FileProblem::warning(DiagnosticCode::PathInvalid, why)
}
