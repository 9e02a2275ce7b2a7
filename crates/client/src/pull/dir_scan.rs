//! Comparison of an open directory with its checksum file. No link is followed, and a directory
//! without files of the package is not entered.

use super::PullError;
use super::checksum_file::{CHECKSUM_FILE, ChecksumFile};
use super::package_list::{name_of_path, parse_name};
use super::pull_error::SystemResult as _;
use caproot_core::wire::{ContentDigest, FileChecksum};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Maximum number of differences. The scan ends after so many.
const MAX_DIFFERENCES: usize = 1_000;
/// Size of the buffer for digests.
const READ_BYTES: usize = 64 << 10;

/// Difference between a directory and its checksum file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirDifference {
    /// Path in the directory, percent-encoded as in handles.
    pub name: String,
    /// Kind of the difference.
    pub kind: DifferenceKind,
}

/// Kind of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DifferenceKind {
    /// The content, the mode or the type of the file differs.
    Changed,
    /// The file does not exist.
    Missing,
    /// The checksum file does not have the file or directory.
    Extra,
}

impl DifferenceKind {
    /// Returns the kind as a word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Missing => "missing",
            Self::Extra => "extra",
        }
    }
}

/// Depth of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanDepth {
    /// By size, mode and digest.
    Contents,
    /// By size and mode.
    Attributes,
}

/// Identity of a file's content, without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryStamp {
    inode: u64,
    size: i64,
    modified: (i64, u64),
}

/// Result of a comparison.
#[derive(Debug, Default)]
pub struct DirScan {
    /// Differences by name.
    pub differences: Vec<DirDifference>,
    /// Stamps of the files that are as in the checksum file, and of the checksum file, by name.
    pub stamps: BTreeMap<String, EntryStamp>,
}

/// Compares a directory with its checksum file. Without a checksum file, each entry is extra.
pub fn scan_dir(
    dir: BorrowedFd<'_>,
    dir_path: &Path,
    checksums: Option<&ChecksumFile>,
    depth: ScanDepth,
) -> Result<DirScan, PullError> {
    let mut expected = BTreeMap::new();
    let mut dirs = BTreeSet::new();
    for (name, file) in checksums.iter().flat_map(|checksums| &checksums.files) {
        let path = parse_name(name).map_err(|reason| PullError::unusable(dir_path, reason))?;
        dirs.extend(path.ancestors().skip(1).map(Path::to_owned));
        expected.insert(path, file);
    }

    let mut scanner = DirScanner {
        expected,
        dirs,
        depth,
        scan: DirScan::default(),
    };
    scanner.scan_entries(dir, Path::new("")).at(dir_path)?;
    Ok(scanner.finish())
}

struct DirScanner<'a> {
    /// Files of the package by path that the scan has not found yet.
    expected: BTreeMap<PathBuf, &'a FileChecksum>,
    /// Directories of the files.
    dirs: BTreeSet<PathBuf>,
    depth: ScanDepth,
    scan: DirScan,
}

impl DirScanner<'_> {
    /// Compares the entries of a directory whose path is `prefix`.
    fn scan_entries(&mut self, dir: BorrowedFd<'_>, prefix: &Path) -> io::Result<()> {
        for item in Dir::read_from(dir)? {
            let entry = item?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if self.scan.differences.len() >= MAX_DIFFERENCES {
                return Ok(());
            }

            let path = prefix.join(OsStr::from_bytes(name.to_bytes()));
            self.scan_entry(dir, name, &path)?;
        }
        Ok(())
    }

    fn scan_entry(&mut self, dir: BorrowedFd<'_>, name: &CStr, path: &Path) -> io::Result<()> {
        if self.dirs.contains(path) {
            match open_dir_at(dir, name) {
                Ok(inner) => self.scan_entries(inner.as_fd(), path)?,
                // A link or a file took the name of the directory.
                Err(_) => self.add_difference(path, DifferenceKind::Changed),
            }
        } else if path == Path::new(CHECKSUM_FILE) {
            let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
            self.add_stamp(path, &stat);
        } else if let Some(expected) = self.expected.get(path).copied() {
            match open_regular(dir, name) {
                Ok((file, stat)) if self.is_same(expected, &file, &stat)? => {
                    self.add_stamp(path, &stat);
                }
                _ => self.add_difference(path, DifferenceKind::Changed),
            }
        } else {
            self.add_difference(path, DifferenceKind::Extra);
        }
        Ok(())
    }

    fn add_stamp(&mut self, path: &Path, stat: &Stat) {
        self.expected.remove(path);
        let stamp = EntryStamp {
            inode: stat.st_ino,
            size: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
        };
        self.scan.stamps.insert(name_of_path(path), stamp);
    }

    fn add_difference(&mut self, path: &Path, kind: DifferenceKind) {
        self.expected.remove(path);
        let name = name_of_path(path);
        self.scan.differences.push(DirDifference { name, kind });
    }

    /// Adds the files that do not exist, and sorts the differences.
    fn finish(self) -> DirScan {
        let mut scan = self.scan;
        // A scan that ended early has not seen every file, so none is certainly missing.
        if scan.differences.len() < MAX_DIFFERENCES {
            let missing = self.expected.keys().map(|path| DirDifference {
                name: name_of_path(path),
                kind: DifferenceKind::Missing,
            });
            scan.differences.extend(missing.take(MAX_DIFFERENCES));
        }

        scan.differences.sort();
        scan.differences.truncate(MAX_DIFFERENCES);
        scan
    }

    fn is_same(&self, expected: &FileChecksum, file: &OwnedFd, stat: &Stat) -> io::Result<bool> {
        let is_executable = stat.st_mode & 0o111 != 0;
        let size = u64::try_from(stat.st_size).unwrap_or_default();
        if (size, is_executable) != (expected.bytes, expected.executable) {
            return Ok(false);
        }
        if self.depth == ScanDepth::Attributes {
            return Ok(true);
        }

        // A file that grows during the comparison is read only up to its size.
        let mut content = File::from(file.try_clone()?).take(size);
        let mut hasher = Sha256::new();
        let mut buffer = vec![0; READ_BYTES];
        loop {
            match content.read(&mut buffer)? {
                0 => return Ok(ContentDigest(hasher.finalize().into()) == expected.digest),
                count => hasher.update(&buffer[..count]),
            }
        }
    }
}

/// Opens a directory that is no link.
pub fn open_dir_at(dir: impl AsFd, name: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(dir, name, flags, Mode::empty())
}

/// Opens a regular file that is no link.
pub fn open_regular(
    dir: BorrowedFd<'_>,
    name: impl rustix::path::Arg,
) -> io::Result<(OwnedFd, Stat)> {
    // `NONBLOCK` does not wait for the writer of a fifo.
    let flags =
        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(dir, name, flags, Mode::empty())?;
    // The open file is checked, because another program may replace the name at any time.
    let stat = fstat(&file)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok((file, stat)),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}
