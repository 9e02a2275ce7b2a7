//! Access to the files of one plugin. No file outside the plugin's directory is opened.

use super::file_problem::{link_not_followed_problem, open_problem};
use super::scanned_root::ScanContext;
use super::search::SearchRules;
use super::watches::{DIR_FLAGS, PathRole, WatchRecorder};
use crate::daemon::fs::dirs_snapshot::AllowedDirsSnapshot;
use crate::daemon::fs::open_file::{self, OpenFile, read_names};
use crate::daemon::model::{
    DiagnosticCode, FileProblem, ResolvedPath, Severity, resource_filter, skill_file_name,
};
use caproot_core::wire::RelPath;
use rustix::fs::{FileType, OFlags};
use std::collections::BTreeSet;
use std::os::fd::AsFd as _;

/// Maximum number of entries of a directory that are looked up for a SKILL.md.
const MAX_SKILL_DIRS: usize = 256;

/// Parameters for reading a plugin.
pub struct PluginReader<'a> {
    pub snapshot: &'a AllowedDirsSnapshot,
    pub rules: &'a SearchRules,
    /// Root of the scan.
    pub root: &'a ResolvedPath,
    pub context: &'a ScanContext<'a>,
}

/// File or directory at a path of the manifest.
pub enum DeclaredTarget {
    Nothing,
    File(OpenFile),
    Directory(ResolvedPath),
    Problem(FileProblem),
}

impl PluginReader<'_> {
    /// Watches the first component of each path below `dir`. One watch of several components costs
    /// as much as a watch of one component.
    pub fn watch_first_components<'p>(
        &self,
        dir: &ResolvedPath,
        paths: impl IntoIterator<Item = &'p RelPath>,
        watches: &mut WatchRecorder<'_>,
    ) {
        let first_names = paths.into_iter().filter_map(|path| path.segments().next());
        let names: BTreeSet<_> = first_names.collect();
        // Without a name, all entries would be watched.
        if names.is_empty() {
            return;
        }
        let Ok(fd) = self.snapshot.open(dir, DIR_FLAGS) else {
            return;
        };
        watches.watch_on_path(fd.as_fd(), PathRole::File, &Vec::from_iter(names));
    }

    /// Watches the way to a path below `dir`, then looks the path up. Call
    /// [`Self::watch_first_components`] before.
    pub fn watch_and_find(
        &self,
        dir: &ResolvedPath,
        path: &RelPath,
        watches: &mut WatchRecorder<'_>,
    ) -> DeclaredTarget {
        if !resource_filter::may_serve_path(path, &self.rules.skipped_dirs) {
            return DeclaredTarget::Problem(skipped_path_problem());
        }

        watches.watch_file_path(self.snapshot, dir, path);
        let target = match open_file::find_target(self.snapshot, dir, path) {
            Ok(target) => target,
            Err(e) if e.is_absent() => return DeclaredTarget::Nothing,
            Err(e) => {
                return DeclaredTarget::Problem(FileProblem {
                    severity: Severity::Warning,
                    ..open_problem(e)
                });
            }
        };

        let kind = FileType::from_raw_mode(target.stat.st_mode);
        let checked = self.check_path(dir, path, &target.real_path);
        let found = checked.and_then(|()| {
            if kind == FileType::Directory {
                return Ok(DeclaredTarget::Directory(target.real_path));
            }
            let file = self.open_listed(dir, path, kind, Some(target.real_path))?;
            Ok(DeclaredTarget::File(file))
        });
        found.unwrap_or_else(DeclaredTarget::Problem)
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
        let opened = real_path.map(|path| open_file::open_real_path(self.snapshot, path));
        let Some(Ok(opened)) = opened else {
            // The file is no longer what it was.
            return self.open(dir, path);
        };
        self.check_path(dir, path, &opened.real_path)?;
        Ok(opened)
    }

    /// Opens a regular file below a directory, if no link leads out of the directory.
    pub fn open(&self, dir: &ResolvedPath, path: &RelPath) -> Result<OpenFile, FileProblem> {
        let opened = open_file::open_file(self.snapshot, dir, path);
        let opened = opened.map_err(open_problem)?;
        self.check_path(dir, path, &opened.real_path)?;
        Ok(opened)
    }

    fn check_path(
        &self,
        dir: &ResolvedPath,
        path: &RelPath,
        real: &ResolvedPath,
    ) -> Result<(), FileProblem> {
        match real.strip_prefix(dir) {
            None => Err(FileProblem::warning(
                DiagnosticCode::PathInvalid,
                "a link leads out of the plugin and is not followed; replace it by a copy of the \
                 file",
            )),
            Some(below) if !resource_filter::may_serve_path(&below, &self.rules.skipped_dirs) => {
                Err(skipped_path_problem())
            }
            Some(below) if !self.rules.follow_links && below != *path => {
                Err(link_not_followed_problem())
            }
            Some(_) => Ok(()),
        }
    }
}

fn skipped_path_problem() -> FileProblem {
    let why = "the path is in a skipped directory, or is named `.env`";
    FileProblem::warning(DiagnosticCode::PathInvalid, why)
}
