//! One page of one file out of the kernel's memory, where no disk and no server is waited for: of a
//! root and a file that were read before, on a disk of this machine, and in the kernel's caches since.
//! Whatever is otherwise, an error included, is left to `read`, which blocks.

use super::allowed::{Allowed, Resolved, slashed};
use super::package::Package;
use super::read::{Page, Read};
use super::versions::Versions;
use crate::domain::{RelPath, Spot, Version};
use rustix::fs::{AtFlags, FileType, OFlags, Statx, StatxFlags, makedev, statx};
use rustix::io::{ReadWriteFlags, Result as Io, preadv2};
use std::io::IoSliceMut;
use std::os::fd::{AsFd, OwnedFd};

/// What is copied at most: more would hold up others for longer than a thread of its own costs.
const MAX_BYTES: usize = 64 << 10;

/// Reads a page of a file below the root of a path; `None` where that might wait.
#[must_use]
pub fn read_cached(
    allowed: &Allowed,
    root: &[u8],
    page: &Page<'_>,
    versions: &Versions,
) -> Option<Read> {
    let resolved = allowed.remembered(root)?;
    // With a link on the way, nothing is opened below.
    let package = Package::unlinked(&resolved, page.package, page.rule);
    package.permit_walked(page.resource).ok()?;
    let place = package.place(page.resource);
    package.permit_real(page.resource, &place).ok()?;
    let version = seen(&resolved, root, &place)?;
    // What is no disk could have the opening wait, too.
    let known = versions.get(&version).filter(|known| known.on_disk)?;
    if version.size > page.max_file_bytes {
        return None;
    }
    let Some(offset) = page.begin(&version, &known.digest).ok()? else {
        return Some(Read { version, digest: known.digest, body: None, next: None });
    };
    let len = usize::try_from(version.size - offset).unwrap_or(usize::MAX).min(page.max_bytes);
    if len > MAX_BYTES {
        return None;
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = resolved.ground.open_cached(&place, flags).ok()?;
    let bytes = bytes(&file, offset, len)?;
    // What is no regular file, or another one, was read for nothing.
    let is_still = self::version(&file) == Some(version);
    is_still.then(|| Read::new(version, known.digest, known.utf8, offset, bytes.into()).ok())?
}

/// The version of a file, by a look that does not open it, where the path of its root leads to where it
/// led.
fn seen(root: &Resolved, path: &[u8], place: &Spot) -> Option<Version> {
    let (base, opener) = root.ground.base(&root.spot);
    if path == below(&base.path, &root.spot.rel) {
        // Without a link from the top, whatever is there lies below this path: one look for both.
        return version(opener.look_cached_unlinked(&below(&base.path, &place.rel)).ok()?);
    }
    if !still_leads(root, path)? {
        return None;
    }
    version(root.ground.open_cached(place, OFlags::PATH | OFlags::NOFOLLOW).ok()?)
}

/// The path of a place below an allowed root.
fn below(base: &[u8], place: &RelPath) -> Vec<u8> {
    let slash: &[u8] = if place.is_root() { b"" } else { b"/" };
    [base, slash, place.as_bytes()].concat()
}

/// Whether the path of a root leads to where it led, and the allowed root above is still where it was.
fn still_leads(root: &Resolved, path: &[u8]) -> Option<bool> {
    let (base, opener) = root.ground.base(&root.spot);
    let at = |path: &[u8]| identity(opener.look_cached(path).ok()?);
    if at(slashed(&base.path).as_os_str().as_encoded_bytes())? != base.identity? {
        return Some(false);
    }
    let spot = root.ground.open_cached(&root.spot, OFlags::PATH | OFlags::NOFOLLOW);
    Some(at(path)? == identity(spot.ok()?)?)
}

fn identity(fd: OwnedFd) -> Option<(u64, u64)> {
    let stat = stat(fd).ok()?;
    Some((makedev(stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino))
}

/// The version of a regular file; `None` of anything else.
fn version(fd: impl AsFd) -> Option<Version> {
    let stat = stat(fd).ok()?;
    let is_regular = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::RegularFile;
    is_regular.then(|| Version {
        device: makedev(stat.stx_dev_major, stat.stx_dev_minor),
        inode: stat.stx_ino,
        size: stat.stx_size,
        mtime: (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
        ctime: (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
    })
}

/// What the kernel has in memory, which on a disk of this machine is all there is: a server is not
/// asked.
fn stat(fd: impl AsFd) -> Io<Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    statx(fd, c"", flags, StatxFlags::BASIC_STATS)
}

/// All of them, or none.
fn bytes(file: &OwnedFd, offset: u64, len: usize) -> Option<Vec<u8>> {
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
