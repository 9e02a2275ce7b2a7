//! Opens one file as it was walked to: links are resolved and must end inside an allowed root, and
//! only a regular file is ever opened for reading.

use super::allowed::{Blocked, Ground, identity};
use crate::domain::{RelPath, Spot, Version};
use rustix::fs::{FileType, OFlags, Stat, fstat, readlinkat};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::OwnedFd;

/// How often a path that changes under our feet is resolved anew.
const TRIES: usize = 4;

/// A regular file, open for reading.
#[derive(Debug)]
pub(super) struct Regular {
    pub(super) file: File,
    pub(super) version: Version,
    /// Whether anybody may execute it.
    pub(super) executable: bool,
    /// Whether the file has more than one name: hard links.
    pub(super) has_other_names: bool,
    pub(super) spot: Spot,
}

impl Regular {
    /// Whether it is still the version that was opened.
    pub(super) fn is_still(&self) -> Result<bool, Unopened> {
        Ok(version(&fstat(&self.file).map_err(blocked)?) == self.version)
    }
}

/// Why a file is not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unopened {
    /// The path leads elsewhere or nowhere.
    Blocked(Blocked),
    /// A directory, fifo, socket or device.
    NotRegular,
}

/// What a path leads to, without opening it for reading.
pub(super) struct Target {
    pub(super) spot: Spot,
    pub(super) stat: Stat,
}

/// Finds what `walked` below `dir` leads to.
pub(super) fn find(ground: &Ground, dir: &Spot, walked: &RelPath) -> Result<Target, Unopened> {
    let direct = Spot { base: dir.base, rel: dir.rel.join_all(walked) };
    for _ in 0..TRIES {
        let spot = match look(ground, &direct) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink => {
                return Ok(Target { spot: direct, stat });
            }
            // A link: the file itself, or on the way.
            Ok(_) | Err(Errno::LOOP) => ground.follow(dir, walked)?,
            Err(error) => return Err(blocked(error).into()),
        };
        match look(ground, &spot) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink => {
                return Ok(Target { spot, stat });
            }
            // Exchanged since it was resolved.
            Ok(_) | Err(Errno::LOOP | Errno::AGAIN) => {}
            Err(error) => return Err(blocked(error).into()),
        }
    }
    Err(Blocked::Failed.into())
}

/// Opens the regular file that `walked` below `dir` leads to.
pub(super) fn open(ground: &Ground, dir: &Spot, walked: &RelPath) -> Result<Regular, Unopened> {
    for _ in 0..TRIES {
        let target = find(ground, dir, walked)?;
        if FileType::from_raw_mode(target.stat.st_mode) != FileType::RegularFile {
            return Err(Unopened::NotRegular);
        }
        match open_at(ground, target.spot) {
            // Exchanged since it was looked at.
            Err(Unopened::NotRegular | Unopened::Blocked(Blocked::Loop)) => {}
            done => return done,
        }
    }
    Err(Blocked::Failed.into())
}

/// Opens the regular file at a spot. Blocks on nothing: what turns out to be a fifo after all opens
/// at once and is let go.
pub(super) fn open_at(ground: &Ground, spot: Spot) -> Result<Regular, Unopened> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = ground.open(&spot, flags).map_err(|e| match e {
        Errno::NXIO | Errno::NODEV => Unopened::NotRegular,
        e => blocked(e).into(),
    })?;
    regular(fd, spot)
}

pub(super) fn regular(fd: OwnedFd, spot: Spot) -> Result<Regular, Unopened> {
    let stat = fstat(&fd).map_err(blocked)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Unopened::NotRegular);
    }
    let executable = stat.st_mode & 0o111 != 0;
    let (version, has_other_names) = (version(&stat), stat.st_nlink > 1);
    Ok(Regular { file: File::from(fd), version, executable, has_other_names, spot })
}

/// The target of a link, beside what it leads to.
pub(super) fn follow_link(
    ground: &Ground,
    dir: &Spot,
    dir_fd: &OwnedFd,
    name: &[u8],
) -> Result<Target, Unopened> {
    let target = readlinkat(dir_fd, name, Vec::new()).map_err(blocked)?;
    let spot = ground.follow_link(dir, target.as_bytes())?;
    let stat = look(ground, &spot).map_err(blocked)?;
    Ok(Target { spot, stat })
}

/// What a link of a directory leads to now; `None` where it is no link, or leads nowhere.
pub(super) fn look_at_link(ground: &Ground, dir: &Spot, name: &[u8]) -> Option<Target> {
    let fd = ground.open(dir, OFlags::PATH | OFlags::DIRECTORY).ok()?;
    follow_link(ground, dir, &fd, name).ok()
}

fn look(ground: &Ground, spot: &Spot) -> rustix::io::Result<Stat> {
    fstat(ground.open(spot, OFlags::PATH | OFlags::NOFOLLOW)?)
}

pub(super) fn version(stat: &Stat) -> Version {
    let (device, inode) = identity(stat);
    // The kernel's types differ by architecture; none of these values is negative where it counts.
    #[allow(clippy::cast_sign_loss, clippy::cast_possible_truncation, clippy::unnecessary_cast)]
    Version {
        device,
        inode,
        size: stat.st_size as u64,
        mtime: (stat.st_mtime, stat.st_mtime_nsec as u32),
        ctime: (stat.st_ctime, stat.st_ctime_nsec as u32),
    }
}

pub(super) fn blocked(error: Errno) -> Blocked {
    match error {
        Errno::NOENT | Errno::NAMETOOLONG => Blocked::Missing,
        Errno::NOTDIR => Blocked::NotADirectory,
        Errno::ACCESS | Errno::PERM => Blocked::Denied,
        Errno::LOOP => Blocked::Loop,
        Errno::XDEV => Blocked::Outside,
        Errno::MFILE | Errno::NFILE => Blocked::Exhausted,
        _ => Blocked::Failed,
    }
}

impl From<Blocked> for Unopened {
    fn from(blocked: Blocked) -> Self {
        Self::Blocked(blocked)
    }
}
