//! Links of a search that lead out of the allowed directories to a skill.
//!
//! The rule is checked again at each open, on descriptors: below a link directory, a file is opened only
//! beneath a directory that has a SKILL.md at this moment. So a race of renames cannot lead to a
//! directory without a SKILL.md.

use super::{AllowedDirsSnapshot, ResolveError, finish_stop, strip_dir_prefix};
use crate::daemon::fs::confined_lookup::ConfinedLookup;
use crate::daemon::fs::path_resolution::{PathResolution, PathStart, ResolveStop};
use crate::daemon::model::ResolvedPath;
use caproot_core::wire::RelPath;
use rustix::fs::{AtFlags, FileType, OFlags, fstat, statat};
use rustix::io::{Errno, Result as Io};
use rustix::process::geteuid;
use std::os::fd::OwnedFd;
use std::slice;

const SKILL_FILE: &[u8] = b"SKILL.md";

impl AllowedDirsSnapshot {
    /// Whether a path lies in a link directory and in no allowed directory.
    pub(crate) fn is_in_link_dir(&self, path: &ResolvedPath) -> bool {
        path.dir_index >= self.outermost.len()
    }

    /// Whether links of a search below this directory may lead into link directories. A caller with an
    /// access scope sees only the directories of the scope.
    pub(super) fn may_search_links(&self, holder: &ResolvedPath) -> bool {
        self.access_scope.is_none() && self.link_rule(holder).is_some()
    }

    /// Returns the absolute path of the root that holds a directory and may link out, and the indexes of
    /// its link directories.
    fn link_rule(&self, holder: &ResolvedPath) -> Option<(&[u8], &[usize])> {
        if self.link_dirs.dirs.is_empty() {
            return None;
        }
        let holder = self.absolute_bytes(holder);
        self.link_dirs.rules.iter().find_map(|rule| {
            let root = &*self.configured[rule.root].path;
            strip_dir_prefix(&holder, root).map(|_| (root, &*rule.dirs))
        })
    }

    /// Resolves a link of a search to a skill in a link directory: to a directory with a SKILL.md, or
    /// from a `SKILL.md` to a SKILL.md. Returns `None` for every other link and target, so that no
    /// error reveals which files exist outside.
    pub(super) fn resolve_search_link(
        &self,
        holder: &ResolvedPath,
        name: &[u8],
        start: &PathStart<'_>,
    ) -> Option<ResolvedPath> {
        let (root, dirs) = self.link_rule(holder)?;
        if leaves_named_dir(start.path) || self.is_inside_skill(holder, name, root) {
            return None;
        }

        let visible = dirs.iter().map(|index| {
            let dir = &self.link_dirs.dirs[*index];
            VisibleDir {
                dir_index: self.outermost.len() + index,
                path: dir.path.clone(),
                steps: &dir.steps,
            }
        });
        let visible: Vec<_> = visible.collect();
        let lookup = ConfinedLookup {
            visible: &visible,
            ..ConfinedLookup::new(self)
        };
        let resolution = super::resolve_with(start, lookup);
        let PathResolution {
            real, stop: None, ..
        } = resolution
        else {
            return None;
        };
        // A link that leaves the allowed directories and returns is outside, as everywhere.
        if self.locate_absolute(&real).is_some() {
            return None;
        }

        let path = visible.iter().find_map(|dir| dir.locate(&real))?;
        let package = if name == SKILL_FILE {
            path.parent()
                .filter(|_| path.rel_path.file_name() == Some(SKILL_FILE))?
        } else {
            path.clone()
        };
        self.is_own_skill(&package).then_some(path)
    }

    /// Resolves a link in a skill in a link directory. As below an allowed directory, the target may lie
    /// in the same skill or in an allowed directory.
    pub(super) fn resolve_skill_link(
        &self,
        holder: &ResolvedPath,
        start: &PathStart<'_>,
    ) -> Result<ResolvedPath, ResolveError> {
        let skill = self.enclosing_skill(holder).ok_or(ResolveError::Outside)?;
        let inside = VisibleDir {
            dir_index: skill.dir_index,
            path: self.absolute_bytes(&skill),
            steps: &[],
        };
        let lookup = ConfinedLookup {
            visible: slice::from_ref(&inside),
            ..ConfinedLookup::new(self)
        };

        let resolution = super::resolve_with(start, lookup);
        let is_outside = resolution.stop == Some(ResolveStop::Outside);
        match inside.locate(&resolution.real).filter(|_| !is_outside) {
            Some(below) => {
                let rel_path = skill.rel_path.join_path(&below.rel_path);
                finish_stop(resolution.stop, ResolvedPath { rel_path, ..below })
            }
            None => self.finish_resolution(&resolution),
        }
    }

    /// Whether a directory from the root down to the holder of a link has a SKILL.md. The holder of a
    /// link `SKILL.md` has one by the link itself.
    fn is_inside_skill(&self, holder: &ResolvedPath, name: &[u8], root: &[u8]) -> bool {
        let mut dirs = std::iter::successors(Some(holder.clone()), ResolvedPath::parent)
            .take_while(|dir| strip_dir_prefix(&self.absolute_bytes(dir), root).is_some())
            .skip(usize::from(name == SKILL_FILE));
        dirs.any(|dir| {
            let opened = self.open(&dir, OFlags::PATH | OFlags::DIRECTORY);
            // A directory that cannot be opened may be a skill.
            opened.map_or(true, |dir| has_skill_file(&dir))
        })
    }

    /// Whether a directory in a link directory has a SKILL.md, and belongs to the daemon's user or root.
    fn is_own_skill(&self, package: &ResolvedPath) -> bool {
        let opened = self.open_in_skill(package, OFlags::PATH | OFlags::DIRECTORY);
        opened.is_ok_and(|dir| {
            let owner = fstat(&dir).map(|stat| stat.st_uid);
            let is_own = owner.is_ok_and(|uid| uid == 0 || uid == geteuid().as_raw());
            is_own && has_skill_file(&dir)
        })
    }

    /// Returns the nearest directory with a SKILL.md, from a directory upwards.
    fn enclosing_skill(&self, dir: &ResolvedPath) -> Option<ResolvedPath> {
        let mut above = std::iter::successors(Some(dir.clone()), ResolvedPath::parent);
        above.find(|dir| {
            let opened = self.open_in_skill(dir, OFlags::PATH | OFlags::DIRECTORY);
            opened.is_ok_and(|dir| has_skill_file(&dir))
        })
    }

    /// Opens a path in a link directory beneath the first directory on its way that has a SKILL.md.
    /// Refuses a path without such a directory, and every path for a caller with an access scope.
    pub(super) fn open_in_skill(&self, path: &ResolvedPath, flags: OFlags) -> Io<OwnedFd> {
        if self.access_scope.is_some() {
            return Err(Errno::XDEV);
        }
        let top = self.dir_at(path.dir_index).descriptor()?;

        let dir_flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let mut dir = self
            .opener
            .open(top, b"", OFlags::PATH | OFlags::DIRECTORY)?;
        let mut rest = path.rel_path.as_bytes();
        loop {
            // The descriptor stays with the directory, even if its path leads elsewhere by now.
            if has_skill_file(&dir) {
                return self.opener.open(&dir, rest, flags);
            }
            if rest.is_empty() {
                return Err(Errno::XDEV);
            }
            let end = rest.iter().position(|b| *b == b'/').unwrap_or(rest.len());
            dir = match self.opener.open(&dir, &rest[..end], dir_flags) {
                Err(Errno::NOTDIR) => return Err(Errno::XDEV),
                opened => opened?,
            };
            rest = rest.get(end + 1..).unwrap_or_default();
        }
    }
}

/// Directory in which a lookup may look up names, although no allowed directory holds it.
#[derive(Debug)]
pub struct VisibleDir<'a> {
    pub dir_index: usize,
    /// Absolute path.
    pub path: Vec<u8>,
    /// Entries that the configured path of the directory leads through.
    pub steps: &'a [Vec<u8>],
}

impl VisibleDir<'_> {
    /// Returns the place of an absolute path below the directory.
    pub fn locate(&self, path: &[u8]) -> Option<ResolvedPath> {
        Some(ResolvedPath {
            dir_index: self.dir_index,
            rel_path: RelPath::new(strip_dir_prefix(path, &self.path)?)?,
        })
    }
}

/// Whether a path leaves a directory that it names, as `a/../b` does. Whether such a path leads anywhere
/// reveals whether `a` exists.
fn leaves_named_dir(path: &[u8]) -> bool {
    let mut names = path
        .split(|b| *b == b'/')
        .skip_while(|name| matches!(*name, b"" | b"." | b".."));
    names.any(|name| name == b"..")
}

/// Whether a directory has an entry `SKILL.md` that is no directory.
fn has_skill_file(dir: &OwnedFd) -> bool {
    statat(dir, SKILL_FILE, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) != FileType::Directory)
}
