//! Reads of a file page from the page cache of the kernel, without blocking. The root and the file
//! must have been read before, from a local disk. In all other cases, including errors,
//! [`read_page`] must be used, which blocks.
//!
//! [`read_page`]: super::file_page::read_page

use super::allowed_dirs::{AllowedDirs, ResolvedRootDir};
use super::approved_page::{ApprovedPage, BLOCK_BYTES};
use super::file_page::{FilePage, FilePageRequest, ReadCaches};
use super::package::ResolvedPackage;
use super::path_resolution::path_or_slash;
use crate::daemon::model::{FileVersion, ResolvedPath};
use rustix::fs::{AtFlags, FileType, OFlags, Statx, StatxFlags, makedev, statx};
use rustix::io::{ReadWriteFlags, preadv2};
use std::io::IoSliceMut;
use std::os::fd::{AsFd, OwnedFd};

/// Maximum size of a page. Copying more would delay other tasks for longer than a blocking thread
/// costs.
const MAX_CACHED_READ_BYTES: usize = 64 << 10;
/// Maximum size of a page that is a whole file, which is digested. The digest takes about 1 µs for each
/// KiB with the SHA instructions of x86-64.
const MAX_CACHED_DIGEST_BYTES: usize = 16 << 10;
/// Flags of an open that must not block.
const READ_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Reads a page of a file below the root at this path. Returns `None` if the read might block.
#[must_use]
pub fn read_page_cached(
    allowed: &AllowedDirs,
    root: &[u8],
    page: &FilePageRequest<'_>,
    caches: &ReadCaches,
) -> Option<FilePage> {
    let resolved = allowed.cached_root(root)?;
    // If a component is a link, every open below fails.
    let file_path =
        ResolvedPackage::unlinked_file_path(&resolved, page.package, page.rules, page.resource)?;
    let version = cached_version(&resolved, root, &file_path)?;

    // On other filesystems even the open could block.
    let known = caches
        .digests
        .get(&version)
        .filter(|known| known.is_on_local_disk)?;
    if version.size > page.max_file_bytes {
        return None;
    }

    if let Some(approved) = page.approved_page().ok()? {
        return read_approved_cached(&resolved, &file_path, approved, caches);
    }

    let Some(offset) = page.start_offset(&version, &known.digest).ok()? else {
        return Some(FilePage::not_modified(version, known.digest));
    };
    let len = usize::try_from(version.size - offset)
        .unwrap_or(usize::MAX)
        .min(page.max_bytes);
    let is_whole = len as u64 == version.size;
    let max_len = if is_whole {
        MAX_CACHED_DIGEST_BYTES
    } else {
        MAX_CACHED_READ_BYTES
    };
    if len > max_len {
        return None;
    }

    let file = resolved.snapshot.open_cached(&file_path, READ_FLAGS).ok()?;
    let bytes = read_bytes_cached(&file, offset, len)?;
    // Nothing is returned if the file is not regular or was replaced in the meantime.
    if file_version(&file) != Some(version) {
        return None;
    }
    FilePage::new(version, known, offset, bytes.into(), &caches.digests).ok()
}

/// Reads a page of an approved file. Returns `None` if the read might block, or if the file has other
/// bytes.
fn read_approved_cached(
    root: &ResolvedRootDir,
    file_path: &ResolvedPath,
    page: ApprovedPage<'_>,
    caches: &ReadCaches,
) -> Option<FilePage> {
    let Some(offset) = page.start_offset().ok()? else {
        return Some(page.not_modified());
    };
    if page.request.max_bytes > MAX_CACHED_READ_BYTES && page.approved.bytes > BLOCK_BYTES as u64 {
        return None;
    }

    let blocks = page.known_blocks(&caches.blocks)?;
    let file = root.snapshot.open_cached(file_path, READ_FLAGS).ok()?;
    file_version(&file)?;
    let read = |at, len| read_bytes_cached(&file, at, len);
    page.verified_page(offset, &blocks, read)?.ok()
}

/// Returns the version of a file without opening the file, if the root's path leads to the same
/// directory as before.
fn cached_version(
    root: &ResolvedRootDir,
    path: &[u8],
    file_path: &ResolvedPath,
) -> Option<FileVersion> {
    let snapshot = &root.snapshot;
    if path == snapshot.absolute_bytes(&root.path) {
        // If no component is a link, the file lies below this path, and one call checks both.
        let file_path = snapshot.absolute_bytes(file_path);
        return file_version(
            snapshot
                .opener()
                .open_path_cached_no_links(&file_path)
                .ok()?,
        );
    }

    // The allowed directory must still be at its path, and the root's path must lead to the same
    // directory.
    let dir = snapshot.dir_at(root.path.dir_index);
    let dir_path = path_or_slash(&dir.path).as_os_str().as_encoded_bytes();
    let dir_now = statx_cached(snapshot.opener().open_path_cached(dir_path).ok()?)?;
    let device = makedev(dir_now.stx_dev_major, dir_now.stx_dev_minor);
    if (device, dir_now.stx_ino) != dir.identity? || !snapshot.leads_to_cached(path, &root.path) {
        return None;
    }

    file_version(
        snapshot
            .open_cached(file_path, OFlags::PATH | OFlags::NOFOLLOW)
            .ok()?,
    )
}

/// Returns the version of a regular file; `None` for other files.
fn file_version(fd: impl AsFd) -> Option<FileVersion> {
    let stat = statx_cached(fd)?;
    let is_regular = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::RegularFile;
    is_regular.then(|| FileVersion {
        device: makedev(stat.stx_dev_major, stat.stx_dev_minor),
        inode: stat.stx_ino,
        size: stat.stx_size,
        mtime: (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
        ctime: (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
    })
}

/// Reads attributes without asking a file server. On a local disk the kernel has them in memory.
fn statx_cached(fd: impl AsFd) -> Option<Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    statx(fd, c"", flags, StatxFlags::BASIC_STATS).ok()
}

/// Reads exactly `len` bytes; `None` if fewer are in memory.
fn read_bytes_cached(file: &OwnedFd, offset: u64, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    if len > 0 {
        let read = preadv2(
            file,
            &mut [IoSliceMut::new(&mut bytes)],
            offset,
            ReadWriteFlags::NOWAIT,
        );
        if read != Ok(len) {
            return None;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests;
