//! Replacement of files below an allowed directory, for `caproot check --fix`. A file is changed only
//! if its path has no link, so that no file outside the checked directory changes.

use super::allowed_dirs::ResolvedRootDir;
use super::open_file::{self, version_from_stat};
use crate::daemon::model::{FileVersion, ResolvedPath};
use caproot_core::bounded_file;
use caproot_core::wire::RelPath;
use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, RenameFlags, Uid, fchmod, fchown, fstat, fsync, openat, renameat,
    renameat_with, statat, unlinkat,
};
use rustix::rand::{GetRandomFlags, getrandom};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;

/// Maximum size of a file that is read for a change.
const MAX_BYTES: u64 = 16 << 20;

/// Whole content of a regular file that is reached without a link and that has no second hard link.
#[derive(Debug)]
pub struct EditableFile {
    pub content: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
    path: ResolvedPath,
    version: FileVersion,
}

impl EditableFile {
    /// Reads a file below a root. Returns `None` if the file cannot be read or must not be changed.
    pub fn read(root: &ResolvedRootDir, path: &RelPath) -> Option<Self> {
        let opened = open_file::open_file(&root.snapshot, &root.path, path).ok()?;
        let is_direct = opened.real_path == root.path.join_path(path);
        if !is_direct || opened.has_hard_links || opened.version.size > MAX_BYTES {
            return None;
        }

        let content = bounded_file::read_stream(&opened.file, MAX_BYTES).ok()?;

        let mode = fstat(&opened.file).ok()?.st_mode & 0o7777;
        let is_whole = content.len() as u64 == opened.version.size && opened.is_unchanged().ok()?;
        is_whole.then_some(Self {
            content,
            mode,
            path: opened.real_path,
            version: opened.version,
        })
    }

    /// Replaces the content by renaming a new file over the file. Mode and owner stay. Fails if the
    /// file changed since it was read.
    pub fn replace_content(&self, root: &ResolvedRootDir, content: &[u8]) -> io::Result<()> {
        let (dir, name) = self.open_parent(root)?;

        let temporary = temporary_name(name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file = openat(
            &dir,
            &*temporary,
            flags | OFlags::CLOEXEC,
            Mode::from_raw_mode(0o600),
        )?;

        let written = self.write_copy(&dir, name, file, content);
        let renamed = written.and_then(|()| Ok(renameat(&dir, &*temporary, &dir, name)?));

        if renamed.is_err() {
            // The first error is reported.
            let _ = unlinkat(&dir, &*temporary, AtFlags::empty());
        }
        renamed.and_then(|()| Ok(fsync(&dir)?))
    }

    fn write_copy(
        &self,
        dir: &OwnedFd,
        name: &[u8],
        copy: OwnedFd,
        content: &[u8],
    ) -> io::Result<()> {
        let mut copy = File::from(copy);
        copy.write_all(content)?;

        let original = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let new = fstat(&copy)?;
        if (original.st_uid, original.st_gid) != (new.st_uid, new.st_gid) {
            let owner = Uid::from_raw(original.st_uid);
            let group = Gid::from_raw(original.st_gid);
            fchown(&copy, Some(owner), Some(group))?;
        }

        fchmod(&copy, Mode::from_raw_mode(self.mode))?;
        copy.sync_all()?;

        let now = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if version_from_stat(&now) == self.version {
            Ok(())
        } else {
            Err(changed_error())
        }
    }

    /// Sets the permission bits.
    pub fn set_mode(&self, root: &ResolvedRootDir, mode: u32) -> io::Result<()> {
        let opened = open_file::open_real_path(&root.snapshot, self.path.clone());
        let opened = opened.map_err(|_| io::Error::other("the file cannot be opened"))?;
        if opened.version != self.version {
            return Err(changed_error());
        }
        Ok(fchmod(&opened.file, Mode::from_raw_mode(mode))?)
    }

    /// Renames the file within its directory. Fails if a file with the new name exists.
    pub fn rename(&self, root: &ResolvedRootDir, new_name: &[u8]) -> io::Result<()> {
        let (dir, name) = self.open_parent(root)?;
        renameat_with(&dir, name, &dir, new_name, RenameFlags::NOREPLACE)?;
        Ok(fsync(&dir)?)
    }

    fn open_parent(&self, root: &ResolvedRootDir) -> io::Result<(OwnedFd, &[u8])> {
        let parent = self.path.parent().unwrap_or_else(|| self.path.clone());
        let dir = root
            .snapshot
            .open(&parent, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let name = self.path.rel_path.file_name().unwrap_or_default();
        Ok((dir, name))
    }
}

fn changed_error() -> io::Error {
    io::Error::other("the file changed meanwhile; run the command again")
}

/// Returns a hidden name for a new file next to `name`.
fn temporary_name(name: &[u8]) -> io::Result<Vec<u8>> {
    let mut random = [0; 8];
    getrandom(&mut random, GetRandomFlags::empty())?;
    let suffix = format!(".{:016x}", u64::from_ne_bytes(random));
    Ok([b".", name, suffix.as_bytes()].concat())
}
