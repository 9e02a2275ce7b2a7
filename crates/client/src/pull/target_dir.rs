//! Directory that a pull replaces, found by its name in an open directory.

use super::checksum_file::{CHECKSUM_FILE, ChecksumFile, MAX_CHECKSUM_FILE_BYTES};
use super::dir_scan::{DirScan, ScanDepth, open_dir_at, open_regular, scan_dir};
use super::pull_error::SystemResult as _;
use super::staging_dir::{STAGING_PREFIX, StagingDir};
use super::{PackageFiles, PullError, run_blocking};
use caproot_core::bounded_file;
use caproot_core::mountinfo::parse_mountinfo;
use caproot_core::wire::FileChecksum;
use rustix::fs::{
    AtFlags, Dir, FlockOperation, Mode, OFlags, RenameFlags, fchmod, fchown, flock, fstat, fsync,
    open, renameat_with, statat, syncfs, unlinkat,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use std::collections::BTreeMap;
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
    pub path: PathBuf,
    pub parent_path: PathBuf,
    pub parent: OwnedFd,
    name: OsString,
}

/// Existing target.
#[derive(Debug)]
pub struct OpenTarget {
    path: PathBuf,
    pub fd: OwnedFd,
    /// Content of the checksum file; `None` if there is none.
    pub checksums: Option<ChecksumFile>,
}

/// Existing target, compared with its checksum file.
#[derive(Debug)]
pub struct ScannedTarget {
    pub open: OpenTarget,
    pub scan: DirScan,
    /// Whether the target is not from a pull and has exactly the expected files.
    pub is_equal: bool,
}

impl TargetDir {
    /// Opens the directory above a target.
    pub fn open_parent(dir: &Path) -> Result<Self, PullError> {
        let path = std::path::absolute(dir).at(dir)?;
        let Some((parent_path, name)) = path.parent().zip(path.file_name()) else {
            let reason = "the path must end with the name of a directory";
            return Err(PullError::unusable(dir, reason));
        };

        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = open(parent_path, flags, Mode::empty()).at(parent_path)?;
        Ok(Self {
            parent_path: parent_path.to_owned(),
            name: name.to_owned(),
            parent,
            path,
        })
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

    /// Removes the staging directories of pulls that were killed.
    pub fn remove_stale_staging(&self) -> Result<(), PullError> {
        let entries = Dir::read_from(&self.parent).at(&self.parent_path)?;
        for entry in entries {
            let Ok(entry) = entry else { break };
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if !name.as_bytes().starts_with(STAGING_PREFIX.as_bytes()) {
                continue;
            }
            let Ok(dir) = open_dir_at(&self.parent, name) else {
                continue;
            };
            let is_stale = flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok();
            // A removal would also delete the files of a filesystem that is mounted below.
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
        let fd = match open_dir_at(&self.parent, &self.name) {
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
        old: Option<&ScannedTarget>,
        keeps_extra: bool,
    ) -> Result<bool, PullError> {
        // The new files reach the disk first, so that a crash leaves one whole state.
        Self::prepare(staging, old).at(&self.path)?;
        let Some(old) = old else {
            let is_new = self.rename(staging, RenameFlags::NOREPLACE)?;
            if is_new {
                fsync(&self.parent).at(&self.path)?;
            }
            return Ok(is_new);
        };

        self.rename(staging, RenameFlags::EXCHANGE)?;
        // From here on, the name of the staging directory belongs to the old files.
        staging.set_disposable(false);
        // The check follows the exchange: until then, another program could write by the name.
        let is_known = self.is_at(OsStr::new(&staging.name), &old.open.fd)
            && old.open.reject_mounts().is_ok()
            && old.is_unchanged(keeps_extra);
        if !is_known {
            self.rename(staging, RenameFlags::EXCHANGE)?;
            staging.set_disposable(true);
            return Ok(false);
        }

        fsync(&self.parent).at(&self.path)?;
        let removed = self.parent_path.join(&staging.name);
        fs::remove_dir_all(&removed).at(&removed)?;
        Ok(true)
    }

    /// Removes the target, which an empty staging directory replaces first. Returns `false`, and leaves
    /// the target as it is, if the target changed after the scan.
    pub fn remove(&self, empty: &StagingDir, old: &ScannedTarget) -> Result<bool, PullError> {
        let is_removed = self.replace(empty, Some(old), true)?;
        if is_removed {
            // A file that another program wrote meanwhile stays, and so does its directory.
            let _ = unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR);
        }
        Ok(is_removed)
    }

    /// Gives the staging directory the owner and the mode of the target, and writes it to the disk.
    fn prepare(staging: &StagingDir, old: Option<&ScannedTarget>) -> Result<(), Errno> {
        let mut mode = staging.new_dir_mode;
        if let Some(old) = old {
            let stat = fstat(&old.open.fd)?;
            let owner = Uid::from_raw(stat.st_uid);
            let group = Gid::from_raw(stat.st_gid);
            // Only root may keep another owner.
            let _ = fchown(&staging.fd, Some(owner), Some(group));
            mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
        }

        fchmod(&staging.fd, mode)?;
        syncfs(&staging.fd)
    }

    /// Gives the staging directory the name of the target. Returns `false` if another directory must not
    /// be replaced and exists.
    fn rename(&self, staging: &StagingDir, flags: RenameFlags) -> Result<bool, PullError> {
        let reason =
            match renameat_with(&self.parent, &staging.name, &self.parent, &self.name, flags) {
                Ok(()) => return Ok(true),
                Err(Errno::EXIST) if flags == RenameFlags::NOREPLACE => return Ok(false),
                Err(Errno::INVAL | Errno::NOSYS | Errno::XDEV) => {
                    return Err(PullError::NoExchange(self.path.clone()));
                }
                Err(Errno::BUSY) => {
                    "it is a mount point; pull into a directory below it".to_owned()
                }
                Err(error) => format!("cannot replace the directory: {}", io::Error::from(error)),
            };
        Err(PullError::unusable(&self.path, reason))
    }

    /// Whether the target is still the open directory.
    pub fn is_current(&self, open: &OpenTarget) -> bool {
        self.is_at(&self.name, &open.fd)
    }

    /// Whether a name next to the target belongs to an open directory.
    fn is_at(&self, name: &OsStr, dir: &OwnedFd) -> bool {
        let named = statat(&self.parent, name, AtFlags::SYMLINK_NOFOLLOW);
        named.is_ok_and(|named| {
            fstat(dir).is_ok_and(|open| (named.st_dev, named.st_ino) == (open.st_dev, open.st_ino))
        })
    }
}

impl OpenTarget {
    /// Rejects a directory in which another filesystem is mounted: a pull removes the directory as a
    /// whole, and would delete the files of that filesystem.
    pub fn reject_mounts(&self) -> Result<(), PullError> {
        let reason = match find_mount_below(self.fd.as_fd()) {
            Ok(None) => return Ok(()),
            Ok(Some(mount)) => format!(
                "{} is a mount point, and the pull would delete the files that are mounted there; \
                 unmount it, or pull into another directory",
                mount.display()
            ),
            Err(error) => format!(
                "cannot find out whether a filesystem is mounted below it, from {MOUNTINFO_PATH}: \
                 {error}; mount /proc, or pull into a new directory"
            ),
        };
        Err(PullError::unusable(&self.path, reason))
    }

    /// Compares the directory with its checksum file.
    pub fn scan(&self, depth: ScanDepth) -> Result<DirScan, PullError> {
        scan_dir(self.fd.as_fd(), &self.path, self.checksums.as_ref(), depth)
    }
}

impl ScannedTarget {
    /// Whether the files of the scan are as they were.
    fn is_unchanged(&self, keeps_extra: bool) -> bool {
        self.open.scan(ScanDepth::Attributes).is_ok_and(|now| {
            let mut stamps = self.scan.stamps.iter();
            stamps.all(|(name, stamp)| now.stamps.get(name) == Some(stamp))
                && (!keeps_extra || now.differences == self.scan.differences)
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
    let shown = path.join(CHECKSUM_FILE);
    let file = match open_regular(dir, CHECKSUM_FILE) {
        Ok((file, _)) => File::from(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(_) => return Err(PullError::unusable(&shown, "is not a readable file")),
    };
    let text = bounded_file::read_stream(file, MAX_CHECKSUM_FILE_BYTES)
        .map_err(|error| PullError::unusable(&shown, error.to_string()))?;
    ChecksumFile::parse(&text)
        .map(Some)
        .map_err(|reason| PullError::unusable(&shown, reason))
}

/// Locks the target and compares it with its checksum file. Without a checksum file, compares it with
/// `equal_files`, too. Returns `None` if the target does not exist.
pub async fn scan_target(
    target: &Arc<TargetDir>,
    ignores_invalid: bool,
    equal_files: Option<PackageFiles>,
) -> Result<Option<ScannedTarget>, PullError> {
    let scanned = target.clone();
    run_blocking(move || {
        let Some(open) = scanned.open_dir(ignores_invalid)? else {
            return Ok(None);
        };
        // A filesystem without locks: the exchange detects a concurrent pull.
        if flock(&open.fd, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
            return Err(PullError::InUse(open.path.clone()));
        }
        // Another pull may have replaced the directory before the lock.
        if !scanned.is_current(&open) {
            return Err(PullError::KeepsChanging);
        }

        open.reject_mounts()?;
        let scan = open.scan(ScanDepth::Contents)?;
        let is_equal = match equal_files {
            Some(files) if open.checksums.is_none() => {
                let expected = ChecksumFile::new("", files);
                let dir = open.fd.as_fd();
                let scan = scan_dir(dir, &open.path, Some(&expected), ScanDepth::Contents)?;
                scan.differences.is_empty()
            }
            _ => false,
        };
        Ok(Some(ScannedTarget {
            open,
            scan,
            is_equal,
        }))
    })
    .await
}

/// Returns the files of the directory that are as the last pull wrote them.
pub fn intact_files(local: &ScannedTarget) -> BTreeMap<&String, &FileChecksum> {
    let known = local.open.checksums.iter().flat_map(|known| &known.files);
    known
        .filter(|(name, _)| local.scan.stamps.contains_key(*name))
        .collect()
}
