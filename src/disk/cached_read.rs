//! One page of one file out of the kernel's memory, where no disk and no server is waited for: of a
//! root and a file that were read before, on a disk of this machine, and in the kernel's caches since.
//! Whatever is otherwise, an error included, is left to `read`, which blocks.

use super::allowed_dirs::{AllowedDirs, ResolvedRootDir, path_or_slash};
use super::digest_cache::DigestCache;
use super::file_page::{FilePage, FilePageRequest};
use super::package::ResolvedPackage;
use crate::domain::{FileVersion, RelPath, ResolvedPath};
use rustix::fs::{AtFlags, FileType, OFlags, Statx, StatxFlags, makedev, statx};
use rustix::io::{ReadWriteFlags, Result as Io, preadv2};
use std::io::IoSliceMut;
use std::os::fd::{AsFd, OwnedFd};

/// What is copied at most: more would hold up others for longer than a thread of its own costs.
const MAX_CACHED_READ_BYTES: usize = 64 << 10;

/// Reads a page of a file below the root of a path; `None` where that might wait.
#[must_use]
pub fn read_page_cached(
    allowed: &AllowedDirs,
    root: &[u8],
    page: &FilePageRequest<'_>,
    versions: &DigestCache,
) -> Option<FilePage> {
    let resolved = allowed.cached_root(root)?;
    // With a link on the way, nothing is opened below.
    let package = ResolvedPackage::at_walked_path(&resolved, page.package, page.rules);
    package.check_walked_path(page.resource).ok()?;
    let place = package.unlinked_path(page.resource);
    package.check_real_path(page.resource, &place).ok()?;
    let version = cached_version(&resolved, root, &place)?;
    // What is no disk could have the opening wait, too.
    let known = versions.get(&version).filter(|known| known.is_on_local_disk)?;
    if version.size > page.max_file_bytes {
        return None;
    }
    let Some(offset) = page.start_offset(&version, &known.digest).ok()? else {
        return Some(FilePage { version, digest: known.digest, body: None, next: None });
    };
    let len = usize::try_from(version.size - offset).unwrap_or(usize::MAX).min(page.max_bytes);
    if len > MAX_CACHED_READ_BYTES {
        return None;
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = resolved.snapshot.open_cached(&place, flags).ok()?;
    let bytes = read_bytes_cached(&file, offset, len)?;
    // What is no regular file, or another one, was read for nothing.
    let is_still = file_version(&file) == Some(version);
    is_still.then(|| FilePage::new(version, known.digest, known.utf8, offset, bytes.into()).ok())?
}

/// The version of a file, by a look that does not open it, where the path of its root leads to where it
/// led.
fn cached_version(
    root: &ResolvedRootDir,
    path: &[u8],
    place: &ResolvedPath,
) -> Option<FileVersion> {
    let (base, opener) = root.snapshot.dir_and_opener(&root.path);
    if path == join_path(&base.path, &root.path.rel_path) {
        // Without a link from the top, whatever is there lies below this path: one look for both.
        return file_version(
            opener.stat_cached_no_links(&join_path(&base.path, &place.rel_path)).ok()?,
        );
    }
    if !still_resolves(root, path)? {
        return None;
    }
    file_version(root.snapshot.open_cached(place, OFlags::PATH | OFlags::NOFOLLOW).ok()?)
}

/// The path of a place below an allowed root.
fn join_path(base: &[u8], place: &RelPath) -> Vec<u8> {
    let slash: &[u8] = if place.is_root() { b"" } else { b"/" };
    [base, slash, place.as_bytes()].concat()
}

/// Whether the path of a root leads to where it led, and the allowed root above is still where it was.
fn still_resolves(root: &ResolvedRootDir, path: &[u8]) -> Option<bool> {
    let (base, opener) = root.snapshot.dir_and_opener(&root.path);
    let at = |path: &[u8]| identity(opener.stat_cached(path).ok()?);
    if at(path_or_slash(&base.path).as_os_str().as_encoded_bytes())? != base.identity? {
        return Some(false);
    }
    let spot = root.snapshot.open_cached(&root.path, OFlags::PATH | OFlags::NOFOLLOW);
    Some(at(path)? == identity(spot.ok()?)?)
}

fn identity(fd: OwnedFd) -> Option<(u64, u64)> {
    let stat = statx_cached(fd).ok()?;
    Some((makedev(stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino))
}

/// The version of a regular file; `None` of anything else.
fn file_version(fd: impl AsFd) -> Option<FileVersion> {
    let stat = statx_cached(fd).ok()?;
    let is_regular = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::RegularFile;
    is_regular.then(|| FileVersion {
        device: makedev(stat.stx_dev_major, stat.stx_dev_minor),
        inode: stat.stx_ino,
        size: stat.stx_size,
        mtime: (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
        ctime: (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
    })
}

/// What the kernel has in memory, which on a disk of this machine is all there is: a server is not
/// asked.
fn statx_cached(fd: impl AsFd) -> Io<Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    statx(fd, c"", flags, StatxFlags::BASIC_STATS)
}

/// All of them, or none.
fn read_bytes_cached(file: &OwnedFd, offset: u64, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    if len > 0 {
        let read =
            preadv2(file, &mut [IoSliceMut::new(&mut bytes)], offset, ReadWriteFlags::NOWAIT);
        if read != Ok(len) {
            return None;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests;
