//! Opens one file as it was walked to: links are resolved and must end inside an allowed root, and
//! only a regular file is ever opened for reading.

use super::allowed_dirs::{AllowedDirsSnapshot, ResolveError, identity};
use crate::domain::{FileVersion, RelPath, ResolvedPath};
use rustix::fs::{FileType, OFlags, Stat, fstat, readlinkat};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::OwnedFd;

/// How often a path that changes under our feet is resolved anew.
const TRIES: usize = 4;

/// A regular file, open for reading.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) file: File,
    pub(super) version: FileVersion,
    /// Whether anybody may execute it.
    pub(super) executable: bool,
    /// Whether the file has more than one name: hard links.
    pub(super) has_hard_links: bool,
    pub(super) real_path: ResolvedPath,
}

impl OpenFile {
    /// Whether it is still the version that was opened.
    pub(super) fn is_unchanged(&self) -> Result<bool, OpenError> {
        Ok(version_from_stat(&fstat(&self.file).map_err(resolve_error)?) == self.version)
    }
}

/// Why a file is not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenError {
    /// The path leads elsewhere or nowhere.
    Resolve(ResolveError),
    /// A directory, fifo, socket or device.
    NotRegular,
}

/// What a path leads to, without opening it for reading.
pub(super) struct PathTarget {
    pub(super) real_path: ResolvedPath,
    pub(super) stat: Stat,
}

/// Finds what `walked` below `dir` leads to.
pub(super) fn find_target(
    ground: &AllowedDirsSnapshot,
    dir: &ResolvedPath,
    walked: &RelPath,
) -> Result<PathTarget, OpenError> {
    let direct =
        ResolvedPath { dir_index: dir.dir_index, rel_path: dir.rel_path.join_path(walked) };
    for _ in 0..TRIES {
        let spot = match stat_path(ground, &direct) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink => {
                return Ok(PathTarget { real_path: direct, stat });
            }
            // A link: the file itself, or on the way.
            Ok(_) | Err(Errno::LOOP) => ground.resolve_below(dir, walked)?,
            Err(error) => return Err(resolve_error(error).into()),
        };
        match stat_path(ground, &spot) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink => {
                return Ok(PathTarget { real_path: spot, stat });
            }
            // Exchanged since it was resolved.
            Ok(_) | Err(Errno::LOOP | Errno::AGAIN) => {}
            Err(error) => return Err(resolve_error(error).into()),
        }
    }
    Err(ResolveError::Failed.into())
}

/// Opens the regular file that `walked` below `dir` leads to.
pub(super) fn open_file(
    ground: &AllowedDirsSnapshot,
    dir: &ResolvedPath,
    walked: &RelPath,
) -> Result<OpenFile, OpenError> {
    for _ in 0..TRIES {
        let target = find_target(ground, dir, walked)?;
        if FileType::from_raw_mode(target.stat.st_mode) != FileType::RegularFile {
            return Err(OpenError::NotRegular);
        }
        match open_real_path(ground, target.real_path) {
            // Exchanged since it was looked at.
            Err(OpenError::NotRegular | OpenError::Resolve(ResolveError::Loop)) => {}
            done => return done,
        }
    }
    Err(ResolveError::Failed.into())
}

/// Opens the regular file at a spot. Blocks on nothing: what turns out to be a fifo after all opens
/// at once and is let go.
pub(super) fn open_real_path(
    ground: &AllowedDirsSnapshot,
    spot: ResolvedPath,
) -> Result<OpenFile, OpenError> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = ground.open(&spot, flags).map_err(|e| match e {
        Errno::NXIO | Errno::NODEV => OpenError::NotRegular,
        e => resolve_error(e).into(),
    })?;
    check_regular_file(fd, spot)
}

pub(super) fn check_regular_file(fd: OwnedFd, spot: ResolvedPath) -> Result<OpenFile, OpenError> {
    let stat = fstat(&fd).map_err(resolve_error)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(OpenError::NotRegular);
    }
    let executable = stat.st_mode & 0o111 != 0;
    let (version, has_other_names) = (version_from_stat(&stat), stat.st_nlink > 1);
    Ok(OpenFile {
        file: File::from(fd),
        version,
        executable,
        has_hard_links: has_other_names,
        real_path: spot,
    })
}

/// The target of a link, beside what it leads to.
pub(super) fn follow_link(
    ground: &AllowedDirsSnapshot,
    dir: &ResolvedPath,
    dir_fd: &OwnedFd,
    name: &[u8],
) -> Result<PathTarget, OpenError> {
    let target = readlinkat(dir_fd, name, Vec::new()).map_err(resolve_error)?;
    let spot = ground.resolve_link(dir, target.as_bytes())?;
    let stat = stat_path(ground, &spot).map_err(resolve_error)?;
    Ok(PathTarget { real_path: spot, stat })
}

/// What a link of a directory leads to now; `None` where it is no link, or leads nowhere.
pub(super) fn follow_link_now(
    ground: &AllowedDirsSnapshot,
    dir: &ResolvedPath,
    name: &[u8],
) -> Option<PathTarget> {
    let fd = ground.open(dir, OFlags::PATH | OFlags::DIRECTORY).ok()?;
    follow_link(ground, dir, &fd, name).ok()
}

fn stat_path(ground: &AllowedDirsSnapshot, spot: &ResolvedPath) -> rustix::io::Result<Stat> {
    fstat(ground.open(spot, OFlags::PATH | OFlags::NOFOLLOW)?)
}

pub(super) fn version_from_stat(stat: &Stat) -> FileVersion {
    let (device, inode) = identity(stat);
    // The kernel's types differ by architecture; none of these values is negative where it counts.
    #[allow(clippy::cast_sign_loss, clippy::cast_possible_truncation, clippy::unnecessary_cast)]
    FileVersion {
        device,
        inode,
        size: stat.st_size as u64,
        mtime: (stat.st_mtime, stat.st_mtime_nsec as u32),
        ctime: (stat.st_ctime, stat.st_ctime_nsec as u32),
    }
}

pub(super) fn resolve_error(error: Errno) -> ResolveError {
    match error {
        Errno::NOENT | Errno::NAMETOOLONG => ResolveError::Missing,
        Errno::NOTDIR => ResolveError::NotADirectory,
        Errno::ACCESS | Errno::PERM => ResolveError::Denied,
        Errno::LOOP => ResolveError::Loop,
        Errno::XDEV => ResolveError::Outside,
        Errno::MFILE | Errno::NFILE => ResolveError::TooManyOpenFiles,
        _ => ResolveError::Failed,
    }
}

impl From<ResolveError> for OpenError {
    fn from(blocked: ResolveError) -> Self {
        Self::Resolve(blocked)
    }
}
