//! Directory that a pull replaces, found by its name in an open directory.

use super::PullError;
use super::checksum_file::{CHECKSUM_FILE, ChecksumFile, MAX_CHECKSUM_FILE_BYTES};
use super::dir_scan::{DIR_FLAGS, DirScan, ScanDepth, open_regular, scan_dir};
use super::staging_dir::{STAGING_PREFIX, StagingDir};
use caproot_core::bounded_file;
use caproot_core::mountinfo::parse_mountinfo;
use rustix::fs::{
    AtFlags, Dir, FlockOperation, Mode, OFlags, RenameFlags, Stat, fchmod, fchown, flock, fstat,
    fsync, open, openat, renameat_with, statat, syncfs,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MOUNTINFO_PATH: &str = "/proc/self/mountinfo";

/// Directory that may not exist yet.
#[derive(Debug)]
pub struct TargetDir {
    path: PathBuf,
    parent_path: PathBuf,
    parent: OwnedFd,
    name: OsString,
}

/// Existing target.
#[derive(Debug)]
pub struct OpenTarget {
    path: PathBuf,
    fd: OwnedFd,
    /// Content of the checksum file; `None` if there is none.
    pub checksums: Option<ChecksumFile>,
}

impl TargetDir {
    /// Opens the directory above a target.
    pub fn open_parent(dir: &Path) -> Result<Self, PullError> {
        let unusable = |reason: String| PullError::unusable(dir, reason);
        let path = std::path::absolute(dir).map_err(|error| PullError::io(dir, error))?;
        let (Some(parent_path), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(unusable(
                "the path must end with the name of a directory".to_owned(),
            ));
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = open(parent_path, flags, Mode::empty());
        let parent = parent.map_err(|error| PullError::io(parent_path, error))?;
        let (parent_path, name) = (parent_path.to_owned(), name.to_owned());
        Ok(Self {
            path,
            parent_path,
            parent,
            name,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Rejects a target that contains the working directory: the directory would be replaced, and the
    /// process would be left in the removed one.
    pub fn reject_working_directory(&self) -> Result<(), PullError> {
        let (Ok(real), Ok(current)) = (self.path.canonicalize(), std::env::current_dir()) else {
            return Ok(());
        };
        if current.starts_with(real) {
            let reason = "it contains the working directory; run the command in another directory";
            return Err(PullError::unusable(&self.path, reason));
        }
        Ok(())
    }

    pub fn parent_path(&self) -> &Path {
        &self.parent_path
    }

    pub fn parent(&self) -> BorrowedFd<'_> {
        self.parent.as_fd()
    }

    /// Removes the staging directories of pulls that were killed.
    pub fn remove_stale_staging(&self) -> Result<(), PullError> {
        let io_error = |error| PullError::io(&self.parent_path, error);
        for entry in Dir::read_from(&self.parent).map_err(io_error)? {
            let Ok(entry) = entry else { break };
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if !name.as_bytes().starts_with(STAGING_PREFIX.as_bytes()) {
                continue;
            }
            let Ok(dir) = openat(&self.parent, name, DIR_FLAGS, Mode::empty()) else {
                continue;
            };
            let is_stale = flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok();
            if is_stale && find_mount_below(dir.as_fd()).is_ok_and(|mount| mount.is_none()) {
                // Another user's directory cannot be removed, and is no obstacle.
                let _ = fs::remove_dir_all(self.parent_path.join(name));
            }
        }
        Ok(())
    }

    /// Opens the target and reads its checksum file. Returns `None` if the target does not exist. With `ignores_invalid`,
    /// an invalid checksum file is the same as none.
    pub fn open_dir(&self, ignores_invalid: bool) -> Result<Option<OpenTarget>, PullError> {
        let fd = match openat(&self.parent, &self.name, DIR_FLAGS, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                return Err(PullError::unusable(
                    &self.path,
                    "is a file or a link, not a directory",
                ));
            }
            Err(error) => return Err(PullError::io(&self.path, error)),
        };
        let checksums = match read_checksums(fd.as_fd(), &self.path) {
            Err(_) if ignores_invalid => None,
            outcome => outcome?,
        };
        Ok(Some(OpenTarget {
            path: self.path.clone(),
            fd,
            checksums,
        }))
    }

    /// Replaces the target by the staging directory. Returns `false`, and leaves the target as it is,
    /// if the target changed after the scan. With `keeps_extra`, a new file of another program is such
    /// a change.
    pub fn replace(
        &self,
        staging: &StagingDir,
        old: Option<&(Arc<OpenTarget>, DirScan)>,
        keeps_extra: bool,
    ) -> Result<bool, PullError> {
        let io_error = |error: Errno| PullError::io(&self.path, error);
        let mut mode = staging.new_dir_mode();
        if let Some((old, _)) = old {
            let stat = fstat(&old.fd).map_err(io_error)?;
            // Only root may keep another owner.
            let (owner, group) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
            let _ = fchown(staging.fd(), Some(owner), Some(group));
            mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
        }
        fchmod(staging.fd(), mode).map_err(io_error)?;
        syncfs(staging.fd()).map_err(io_error)?;
        let Some((old, scan)) = old else {
            return match self.rename(&staging.name, RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => Ok(false),
                Err(error) => Err(self.rename_error(error)),
                Ok(()) => fsync(&self.parent).map(|()| true).map_err(io_error),
            };
        };
        self.exchange(staging)?;
        // From here on, the name of the staging directory belongs to the old files.
        staging.set_disposable(false);
        let is_known = self.is_at(OsStr::new(&staging.name), &old.fd)
            && old.reject_mounts().is_ok()
            && old.is_unchanged_since(scan, keeps_extra);
        if !is_known {
            self.exchange(staging)?;
            staging.set_disposable(true);
            return Ok(false);
        }
        fsync(&self.parent).map_err(io_error)?;
        let removed = fs::remove_dir_all(self.parent_path.join(&staging.name));
        removed.map_err(|error| PullError::io(&self.parent_path.join(&staging.name), error))?;
        Ok(true)
    }

    fn exchange(&self, staging: &StagingDir) -> Result<(), PullError> {
        self.rename(&staging.name, RenameFlags::EXCHANGE)
            .map_err(|error| self.rename_error(error))
    }

    fn rename_error(&self, error: Errno) -> PullError {
        let reason = match error {
            Errno::BUSY => "it is a mount point; pull into a directory below it".to_owned(),
            Errno::INVAL | Errno::NOSYS | Errno::XDEV => {
                "its filesystem cannot replace a directory; pull into another filesystem".to_owned()
            }
            error => format!("cannot replace the directory: {}", io::Error::from(error)),
        };
        PullError::unusable(&self.path, reason)
    }

    fn rename(&self, staging: &str, flags: RenameFlags) -> Result<(), Errno> {
        renameat_with(&self.parent, staging, &self.parent, &self.name, flags)
    }

    /// Whether the target is still the open directory.
    pub fn is_current(&self, open: &OpenTarget) -> bool {
        self.is_at(&self.name, &open.fd)
    }

    /// Whether a name next to the target belongs to an open directory.
    fn is_at(&self, name: &OsStr, dir: &OwnedFd) -> bool {
        let identity = |stat: Stat| (stat.st_dev, stat.st_ino);
        let named = statat(&self.parent, name, AtFlags::SYMLINK_NOFOLLOW).map(identity);
        named.is_ok() && named == fstat(dir).map(identity)
    }
}

impl OpenTarget {
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Keeps other pulls away until the value is dropped.
    pub fn lock(&self) -> Result<(), PullError> {
        match flock(&self.fd, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Err(PullError::InUse(self.path.clone())),
            // A filesystem without locks: the exchange detects a concurrent pull.
            _ => Ok(()),
        }
    }

    /// Rejects a directory in which another filesystem is mounted: a pull removes the directory as a
    /// whole, and would delete the files of that filesystem.
    pub fn reject_mounts(&self) -> Result<(), PullError> {
        let unusable = |reason: String| Err(PullError::unusable(&self.path, reason));
        match find_mount_below(self.fd.as_fd()) {
            Ok(None) => Ok(()),
            Ok(Some(mount)) => unusable(format!(
                "{} is a mount point, and the pull would delete the files that are mounted there; \
                 unmount it, or pull into another directory",
                mount.display()
            )),
            Err(error) => unusable(format!(
                "cannot find out whether a filesystem is mounted below it, from {MOUNTINFO_PATH}: \
                 {error}; mount /proc, or pull into a new directory"
            )),
        }
    }

    /// Compares the directory with its checksum file.
    pub fn scan(&self, depth: ScanDepth) -> Result<DirScan, PullError> {
        scan_dir(self.fd.as_fd(), &self.path, self.checksums.as_ref(), depth)
    }

    fn is_unchanged_since(&self, before: &DirScan, keeps_extra: bool) -> bool {
        self.scan(ScanDepth::Attributes).is_ok_and(|now| {
            let is_same = |(name, stamp)| now.stamps.get(name) == Some(stamp);
            before.stamps.iter().all(is_same)
                && (!keeps_extra || now.differences == before.differences)
        })
    }
}

impl Drop for OpenTarget {
    fn drop(&mut self) {
        // A process that another thread is starting shares the lock between fork and exec.
        let _ = flock(&self.fd, FlockOperation::Unlock);
    }
}

/// Returns a mount point below an open directory, if there is one.
fn find_mount_below(dir: BorrowedFd<'_>) -> io::Result<Option<PathBuf>> {
    // The kernel has the path of the directory without links, as in the table of mounts.
    let mut path = fs::read_link(format!("/proc/self/fd/{}", dir.as_raw_fd()))?.into_os_string();
    path.push("/");
    let table = fs::read(MOUNTINFO_PATH)?;
    let mut mounts = parse_mountinfo(&table).map(|mount| mount.mount_point);
    let mount = mounts.find(|mount| mount.starts_with(path.as_bytes()));
    Ok(mount.map(|mount| OsStr::from_bytes(&mount).into()))
}

fn read_checksums(dir: BorrowedFd<'_>, path: &Path) -> Result<Option<ChecksumFile>, PullError> {
    let path = path.join(CHECKSUM_FILE);
    let unusable = |reason: String| PullError::unusable(&path, reason);
    let file = match open_regular(dir, CHECKSUM_FILE) {
        Ok((file, _)) => File::from(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(_) => return Err(unusable("is not a readable file".to_owned())),
    };
    let text = bounded_file::read_stream(file, MAX_CHECKSUM_FILE_BYTES)
        .map_err(|error| unusable(error.to_string()))?;
    ChecksumFile::parse(&text).map(Some).map_err(unusable)
}
