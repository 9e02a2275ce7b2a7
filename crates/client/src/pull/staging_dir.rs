//! Directory next to the target in which a pull prepares the package.

use super::PullError;
use super::checksum_file::CHECKSUM_FILE;
use super::dir_scan::open_dir_at;
use super::package_list::{listed_path, parse_name};
use super::pull_error::SystemResult as _;
use super::target_dir::TargetDir;
use rustix::fs::{
    AtFlags, FlockOperation, Mode, OFlags, fchmod, flock, fstat, linkat, mkdirat, openat, unlinkat,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::hash::{BuildHasher as _, RandomState};
use std::io::Write as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Start of the names. A daemon does not scan names that begin with `..`, so a root that contains
/// the target never shows an unfinished package.
pub const STAGING_PREFIX: &str = "..caproot-pull-";
/// Attempts to find an unused name.
const MAX_NAMES: usize = 100;

/// Staging directory. The lock on it shows other pulls that this pull is running. Dropping it
/// removes it.
#[derive(Debug)]
pub struct StagingDir {
    target: Arc<TargetDir>,
    pub name: String,
    pub fd: OwnedFd,
    /// Mode of a new directory, as the umask has it. The staging directory is closed to other users.
    pub new_dir_mode: Mode,
    /// Whether the directory with the name may be removed.
    is_disposable: AtomicBool,
}

impl StagingDir {
    pub fn create(target: &Arc<TargetDir>) -> Result<Self, PullError> {
        for number in 0..MAX_NAMES {
            let random = RandomState::new().hash_one(number);
            let name = format!("{STAGING_PREFIX}{random:016x}");
            match mkdirat(&target.parent, &name, Mode::from_raw_mode(0o777)) {
                Err(Errno::EXIST) => continue,
                outcome => outcome.at(&target.parent_path)?,
            }

            // Another pull may take the new directory for an abandoned one until it is locked.
            let Ok(fd) = open_dir_at(&target.parent, &name) else {
                continue;
            };
            match flock(&fd, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => continue,
                Err(_) => {
                    let _ = unlinkat(&target.parent, &name, AtFlags::REMOVEDIR);
                    let reason = "its filesystem cannot lock directories";
                    return Err(PullError::unusable(&target.parent_path, reason));
                }
                Ok(()) => {}
            }

            let stat = fstat(&fd).at(&target.parent_path)?;
            if stat.st_nlink > 0 {
                let new_dir_mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
                // The target may be closed to other users. New files keep their group.
                fchmod(&fd, Mode::RWXU | (new_dir_mode & Mode::SGID)).at(&target.parent_path)?;
                return Ok(Self {
                    target: target.clone(),
                    name,
                    fd,
                    new_dir_mode,
                    is_disposable: AtomicBool::new(true),
                });
            }
        }
        Err(PullError::io(&target.parent_path, Errno::EXIST))
    }

    /// Sets whether dropping the value removes the directory with the name.
    pub fn set_disposable(&self, is_disposable: bool) {
        self.is_disposable.store(is_disposable, Ordering::Relaxed);
    }

    /// Creates a file for writing. Returns the file and its path, for messages.
    pub fn create_file(&self, name: &str, executable: bool) -> Result<(File, PathBuf), PullError> {
        let path = listed_path(name)?;
        let mode = if executable { 0o777 } else { 0o666 };
        self.create_at(&path, mode)
    }

    /// Writes the checksum file.
    pub fn write_checksum_file(&self, text: &str) -> Result<(), PullError> {
        let (mut file, path) = self.create_at(Path::new(CHECKSUM_FILE), 0o666)?;
        file.write_all(text.as_bytes()).at(&path)
    }

    /// Links a file of another directory of the same filesystem. No link on the path is followed.
    /// Returns `None` if the file cannot be linked.
    pub fn link_file(&self, from: BorrowedFd<'_>, from_name: &str, name: &str) -> Option<()> {
        let from_path = parse_name(from_name).ok()?;
        let path = parse_name(name).ok()?;
        let from = open_parents(from, &from_path, false).ok()?;
        let to = open_parents(self.fd.as_fd(), &path, true).ok()?;
        linkat(&from.dir, from.name, &to.dir, to.name, AtFlags::empty()).ok()
    }

    fn create_at(&self, path: &Path, mode: u32) -> Result<(File, PathBuf), PullError> {
        let shown = self.target.path.join(path);
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = open_parents(self.fd.as_fd(), path, true)
            .and_then(|parent| openat(&parent.dir, parent.name, flags, Mode::from_raw_mode(mode)))
            .at(&shown)?;
        Ok((file.into(), shown))
    }
}

impl Drop for StagingDir {
    fn drop(&mut self) {
        if self.is_disposable.load(Ordering::Relaxed) {
            // The next pull removes a directory that cannot be removed now.
            let _ = fs::remove_dir_all(self.target.parent_path.join(&self.name));
        }
        // A process that another thread is starting shares the lock between fork and exec.
        let _ = flock(&self.fd, FlockOperation::Unlock);
    }
}

/// Place of a file: its directory, and its name in the directory.
struct FilePlace<'a> {
    dir: OwnedFd,
    name: &'a OsStr,
}

/// Opens the directory of a relative path, component by component, so that no link is followed.
fn open_parents<'a>(
    top: BorrowedFd<'_>,
    path: &'a Path,
    creates: bool,
) -> Result<FilePlace<'a>, Errno> {
    let mut dir = open_dir_at(top, c".")?;
    let parents = path.parent().into_iter().flat_map(Path::components);
    for component in parents {
        let name = component.as_os_str();
        if creates {
            match mkdirat(&dir, name, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
        }
        dir = open_dir_at(&dir, name)?;
    }

    let name = path.file_name().ok_or(Errno::INVAL)?;
    Ok(FilePlace { dir, name })
}
