//! Opening of one file by its walked path. Links are resolved and must end inside an allowed
//! directory, and only regular files are opened for reading.

use super::allowed_dirs::ResolvedRootDir;
use super::content;
use super::dirs_snapshot::{AllowedDirsSnapshot, ResolveError, identity};
use super::open_beneath::is_deleted;
use super::path_resolution::stop_from_errno;
use crate::daemon::model::limits::MAX_MANIFEST_BYTES;
use crate::daemon::model::resource_filter::{PEM_HEAD_BYTES, begins_with_private_key};
use crate::daemon::model::{FileVersion, ResolvedPath};
use caproot_core::wire::RelPath;
use rustix::fs::{AtFlags, FileType, OFlags, RawDir, Stat, fstat, readlinkat, statat};
use rustix::io::{Errno, pread};
use std::fs::File;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::io;
use std::num::NonZero;
use std::os::fd::OwnedFd;

/// Maximum number of attempts to resolve a path that changes in the meantime.
const TRIES: usize = 4;

/// Regular file, open for reading.
#[derive(Debug)]
pub struct OpenFile {
    pub file: File,
    pub version: FileVersion,
    /// Whether any user may execute the file.
    pub executable: bool,
    /// Whether the file has more than one hard link.
    pub has_hard_links: bool,
    /// Whether the file has no name, although its path leads to it: it was removed where it is mounted
    /// from, or since it was opened.
    pub is_removed: bool,
    pub real_path: ResolvedPath,
}

impl OpenFile {
    /// Reads a small file. If the file exceeds the limit of parsed documents, reads one byte more
    /// than the limit, so that the parser reports the size.
    pub fn read_small(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        content::read_start(
            &self.file,
            self.version.size,
            MAX_MANIFEST_BYTES + 1,
            &mut bytes,
        )?;
        Ok(bytes)
    }

    /// Whether the file begins with a private key. A file that cannot be read has no content to serve.
    pub fn begins_with_private_key(&self) -> bool {
        let mut head = [0; PEM_HEAD_BYTES];
        let len = pread(&self.file, &mut head[..], 0).unwrap_or(0);
        begins_with_private_key(&head[..len])
    }

    /// Whether the file still has the version that was opened.
    pub fn is_unchanged(&self) -> Result<bool, OpenError> {
        Ok(version_from_stat(&fstat(&self.file)?) == self.version)
    }
}

/// Hash of a file's version, in a seventh of the version's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileFingerprint(NonZero<u64>);

impl FileFingerprint {
    /// Fingerprint of a file that was looked for and does not exist.
    pub const ABSENT: Self = Self(NonZero::<u64>::MAX);

    pub fn from_version(version: &FileVersion) -> Self {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(version);
        Self(NonZero::new(hash).unwrap_or(NonZero::<u64>::MIN))
    }

    pub fn number(self) -> NonZero<u64> {
        self.0
    }

    /// Whether `path` below `dir` leads to another version now.
    pub fn is_outdated(
        self,
        snapshot: &AllowedDirsSnapshot,
        dir: &ResolvedPath,
        path: &RelPath,
    ) -> bool {
        let now = match find_target(snapshot, dir, path) {
            Ok(target) => Some(Self::from_version(&version_from_stat(&target.stat))),
            Err(error) => error.is_absent().then_some(Self::ABSENT),
        };
        now != Some(self)
    }
}

/// Reason why a file cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenError {
    /// The path cannot be resolved.
    Resolve(ResolveError),
    /// The file is a directory, FIFO, socket or device.
    NotRegular,
}

impl OpenError {
    /// Whether nothing is at the path.
    pub fn is_absent(self) -> bool {
        matches!(
            self,
            Self::Resolve(ResolveError::Missing | ResolveError::NotADirectory)
        )
    }
}

/// File or directory to which a path leads, not opened for reading.
pub struct PathTarget {
    pub real_path: ResolvedPath,
    pub stat: Stat,
}

/// Finds the target of `walked` below `dir`.
pub fn find_target(
    snapshot: &AllowedDirsSnapshot,
    dir: &ResolvedPath,
    walked: &RelPath,
) -> Result<PathTarget, OpenError> {
    let mut real_path = dir.join_path(walked);

    for tries in 0..=TRIES {
        if tries > 0 {
            real_path = snapshot.resolve_below(dir, walked)?;
        }
        match stat_path(snapshot, &real_path) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink => {
                return Ok(PathTarget { real_path, stat });
            }
            // A component is a link, or the path was replaced after it was resolved.
            Ok(_) | Err(Errno::LOOP | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(ResolveError::Failed.into())
}

/// Opens the regular file at `walked` below `dir`.
pub fn open_file(
    snapshot: &AllowedDirsSnapshot,
    dir: &ResolvedPath,
    walked: &RelPath,
) -> Result<OpenFile, OpenError> {
    for _ in 0..TRIES {
        let target = find_target(snapshot, dir, walked)?;
        if FileType::from_raw_mode(target.stat.st_mode) != FileType::RegularFile {
            return Err(OpenError::NotRegular);
        }
        match open_real_path(snapshot, target.real_path) {
            // The file was replaced after its kind was checked.
            Err(OpenError::NotRegular | OpenError::Resolve(ResolveError::Loop)) => {}
            result => return result,
        }
    }
    Err(ResolveError::Failed.into())
}

/// Opens the regular file at a resolved path. Does not block: a FIFO opens at once, and is closed
/// again.
pub fn open_real_path(
    snapshot: &AllowedDirsSnapshot,
    real_path: ResolvedPath,
) -> Result<OpenFile, OpenError> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = snapshot.open(&real_path, flags).map_err(|e| match e {
        Errno::NXIO | Errno::NODEV => OpenError::NotRegular,
        e => e.into(),
    })?;

    let stat = fstat(&fd)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(OpenError::NotRegular);
    }

    Ok(OpenFile {
        // Some filesystems always report no links.
        is_removed: stat.st_nlink == 0 && is_deleted(&fd),
        file: File::from(fd),
        version: version_from_stat(&stat),
        executable: stat.st_mode & 0o111 != 0,
        has_hard_links: stat.st_nlink > 1,
        real_path,
    })
}

/// Returns the target of a link in a directory.
pub fn follow_link(
    snapshot: &AllowedDirsSnapshot,
    dir: &ResolvedPath,
    dir_fd: &OwnedFd,
    name: &[u8],
) -> Result<PathTarget, OpenError> {
    let target = readlinkat(dir_fd, name, Vec::new())?;
    let real_path = snapshot.resolve_link(dir, name, target.as_bytes())?;
    let stat = stat_path(snapshot, &real_path)?;
    Ok(PathTarget { real_path, stat })
}

/// Text of a link, and whether something is at its target, wherever that is. For the operator of the
/// machine: a caller must not learn which files exist outside the allowed directories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkText {
    /// Target as the link has it.
    pub target: Vec<u8>,
    /// Whether nothing is at the target.
    pub is_dangling: bool,
}

impl LinkText {
    /// Reads a link below a root; `None` if the entry is not a link.
    #[must_use]
    pub fn read(
        snapshot: &AllowedDirsSnapshot,
        root: &ResolvedPath,
        link: &RelPath,
    ) -> Option<Self> {
        let holder = find_target(snapshot, root, &link.parent()?).ok()?.real_path;
        let dir = snapshot
            .open(&holder, OFlags::PATH | OFlags::DIRECTORY)
            .ok()?;
        let name = link.file_name()?;
        let target = readlinkat(&dir, name, Vec::new()).ok()?.into_bytes();
        let found = statat(&dir, name, AtFlags::empty());
        Some(Self {
            target,
            is_dangling: found.is_err_and(|error| error == Errno::NOENT),
        })
    }
}

/// Returns the current target of a link; `None` if the entry is not a link or its target does not
/// exist.
pub fn follow_link_now(
    snapshot: &AllowedDirsSnapshot,
    dir: &ResolvedPath,
    name: &[u8],
) -> Option<PathTarget> {
    let fd = snapshot.open(dir, OFlags::PATH | OFlags::DIRECTORY).ok()?;
    follow_link(snapshot, dir, &fd, name).ok()
}

/// Returns the names and kinds of directory entries in byte order. Returns at most `most + 1`
/// entries, the first by name: the last shows that there are more. Overwrites `buffer`.
pub fn read_names(
    dir: &OwnedFd,
    max_entries: usize,
    buffer: &mut Vec<u8>,
) -> rustix::io::Result<Vec<(Box<[u8]>, FileType)>> {
    let mut names: Vec<(Box<[u8]>, FileType)> = Vec::new();

    buffer.clear();
    buffer.reserve(32 << 10);
    let mut entries = RawDir::new(dir, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }

        let kind = match entry.file_type() {
            // Some filesystems do not report the kind.
            FileType::Unknown => match statat(dir, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                Err(_) => continue,
            },
            kind => kind,
        };

        names.push((name.into(), kind));
        if names.len() > 2 * max_entries + 2 {
            names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
            names.truncate(max_entries + 1);
        }
    }

    names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    names.truncate(max_entries + 1);
    Ok(names)
}

/// Reads the start of a regular file below a root, up to the size limit of parsed documents.
/// Returns `None` if the file cannot be read.
#[must_use]
pub fn read_source(root: &ResolvedRootDir, path: &RelPath) -> Option<Vec<u8>> {
    let opened = open_file(&root.snapshot, &root.path, path).ok()?;
    opened.read_small().ok()
}

fn stat_path(snapshot: &AllowedDirsSnapshot, real_path: &ResolvedPath) -> rustix::io::Result<Stat> {
    fstat(snapshot.open(real_path, OFlags::PATH | OFlags::NOFOLLOW)?)
}

pub fn version_from_stat(stat: &Stat) -> FileVersion {
    let (device, inode) = identity(stat);
    // The types of the kernel differ by architecture. The values are not negative.
    #[allow(
        clippy::cast_sign_loss,
        clippy::cast_possible_truncation,
        clippy::unnecessary_cast
    )]
    FileVersion {
        device,
        inode,
        size: stat.st_size as u64,
        mtime: (stat.st_mtime, stat.st_mtime_nsec as u32),
        ctime: (stat.st_ctime, stat.st_ctime_nsec as u32),
    }
}

impl From<Errno> for ResolveError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NAMETOOLONG => Self::Missing,
            errno => stop_from_errno(errno).into(),
        }
    }
}

impl From<Errno> for OpenError {
    fn from(errno: Errno) -> Self {
        Self::Resolve(errno.into())
    }
}

impl From<ResolveError> for OpenError {
    fn from(blocked: ResolveError) -> Self {
        Self::Resolve(blocked)
    }
}
