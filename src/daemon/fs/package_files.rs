//! Paths of the files of a package, in the byte order of their handles. Links are followed. Blocks.

use super::dirs_snapshot::identity;
use super::file_page::FileReadError;
use super::open_file::{self, OpenFile, read_names};
use super::package::{ReadRules, ResolvedPackage};
use super::package_walk::{FileListToken, PackageWalk, WalkEntryKind, WalkLimits};
use crate::daemon::model::{DirIdentity, ResolvedPath, resource_filter};
use caproot_core::wire::RelPath;
use rustix::fs::{FileType, OFlags, fstat};
use std::os::fd::{AsFd as _, BorrowedFd};

/// Observer of the directories and files of a package.
pub trait PackageObserver {
    /// Called with each directory before its entries are read.
    fn on_dir(&mut self, dir: BorrowedFd<'_>);
    /// Called with each file before its content is read.
    fn on_file(&mut self, file: &OpenFile);
    /// Called after each file. Returns whether the work must end.
    fn is_cancelled(&self) -> bool;
}

/// Walk over the files of a package that may be read.
pub struct PackageFileWalk<'a> {
    pub package: &'a ResolvedPackage<'a>,
    limits: WalkLimits,
    pub walk: PackageWalk<(ResolvedPath, DirIdentity)>,
    /// Whether a link was followed.
    pub has_links: bool,
}

impl<'a> PackageFileWalk<'a> {
    /// Enters the directory of the package. `from` is the end of an earlier walk.
    pub fn enter(
        package: &'a ResolvedPackage<'a>,
        limits: WalkLimits,
        from: Option<&FileListToken>,
        observer: &mut dyn PackageObserver,
    ) -> Result<Self, FileReadError> {
        let mut files = Self {
            package,
            limits,
            walk: PackageWalk::new(limits, from),
            has_links: false,
        };
        files.enter_dir(package.real_path.clone(), RelPath::root(), observer)?;
        Ok(files)
    }

    /// Returns the path of the next regular file, or of the next link to a regular file.
    pub fn next_file(
        &mut self,
        observer: &mut dyn PackageObserver,
    ) -> Result<Option<RelPath>, FileReadError> {
        while let Some((path, kind)) = self.walk.next() {
            if observer.is_cancelled() {
                return Err(FileReadError::Failed);
            }

            match kind {
                WalkEntryKind::File => return Ok(Some(path)),
                WalkEntryKind::Link | WalkEntryKind::LinkedDirectory => {
                    self.has_links = true;
                    if self.visit_link(&path, kind, observer)? {
                        return Ok(Some(path));
                    }
                }
                WalkEntryKind::Directory => {
                    if let Some(dir_path) = self.current_entry(&path) {
                        skip_unavailable(self.enter_dir(dir_path, path, observer))?;
                    }
                }
            }
        }
        Ok(None)
    }

    /// Returns the path of an entry of the directory that was entered last.
    fn current_entry(&self, path: &RelPath) -> Option<ResolvedPath> {
        let (dir, _) = self.walk.ancestor_dirs().next_back()?;
        dir.join(path.file_name().unwrap_or_default())
    }

    /// Follows a link. Returns whether it leads to a regular file, or is named as withheld.
    fn visit_link(
        &mut self,
        path: &RelPath,
        kind: WalkEntryKind,
        observer: &mut dyn PackageObserver,
    ) -> Result<bool, FileReadError> {
        let found = open_file::find_target(self.package.snapshot, &self.package.real_path, path);
        let found = found.map_err(FileReadError::from);
        if self.package.is_withheld(&found) {
            return Ok(true);
        }
        let Some(target) = skip_unavailable(found)? else {
            return Ok(false);
        };

        // A link out of a plugin is named as withheld: nothing of a plugin is omitted in silence.
        if self.package.rules.is_plugin
            && target
                .real_path
                .strip_prefix(&self.package.real_path)
                .is_none()
        {
            return Ok(true);
        }

        let is_plain_link = kind == WalkEntryKind::Link;
        match FileType::from_raw_mode(target.stat.st_mode) {
            FileType::RegularFile => return Ok(is_plain_link),
            FileType::Directory if !self.package.may_enter(&target.real_path) => {}
            FileType::Directory if is_plain_link => self.walk.requeue_link_as_dir(path),
            // The link was resolved again, because it may lead elsewhere since it was queued.
            FileType::Directory => {
                skip_unavailable(self.enter_dir(target.real_path, path.clone(), observer))?;
            }
            _ => {}
        }
        Ok(false)
    }

    /// Enters a directory, unless the directory is an ancestor of itself by a cycle of links.
    fn enter_dir(
        &mut self,
        dir_path: ResolvedPath,
        path: RelPath,
        observer: &mut dyn PackageObserver,
    ) -> Result<(), FileReadError> {
        let ReadRules {
            skipped_dirs,
            follow_links,
            ..
        } = self.package.rules;

        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let fd = self.package.snapshot.open(&dir_path, flags)?;
        let identity = identity(&fstat(&fd)?);

        if self
            .walk
            .ancestor_dirs()
            .any(|(_, ancestor)| *ancestor == identity)
        {
            return Ok(());
        }

        // The watch comes before the read of the entries, so that no change is missed.
        observer.on_dir(fd.as_fd());
        let names = read_names(&fd, self.limits.entries, &mut Vec::new())?;
        let entries = names.into_iter().filter_map(|(name, kind)| {
            let kind = match kind {
                FileType::RegularFile => WalkEntryKind::File,
                FileType::Directory => WalkEntryKind::Directory,
                FileType::Symlink if follow_links => WalkEntryKind::Link,
                _ => return None,
            };
            // A file that is withheld is listed by its name.
            let is_withheld = kind == WalkEntryKind::File && resource_filter::is_secret_name(&name);
            let may_list = is_withheld
                || RelPath::new(&name)
                    .is_some_and(|path| resource_filter::may_serve_path(&path, skipped_dirs));
            may_list.then_some((name, kind))
        });

        self.walk.enter_dir((dir_path, identity), path, entries);
        Ok(())
    }
}

/// Returns `None` for a file that does not exist, may not be read, or is not regular. A failed
/// filesystem is an error, because the list would look complete without the file.
pub fn skip_unavailable<T>(result: Result<T, FileReadError>) -> Result<Option<T>, FileReadError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error @ (FileReadError::Failed | FileReadError::TooManyOpenFiles)) => Err(error),
        Err(
            FileReadError::NotFound
            | FileReadError::Outside
            | FileReadError::TooLarge { .. }
            | FileReadError::Changed(_)
            | FileReadError::NotApproved { .. }
            | FileReadError::Denied
            | FileReadError::Secret,
        ) => Ok(None),
    }
}
