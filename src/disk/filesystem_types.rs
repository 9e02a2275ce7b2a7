//! Which filesystems a root spans, and what their events are worth. Source: statfs(2).

use super::allowed_dirs::AllowedDirsSnapshot;
use crate::domain::ResolvedPath;
use rustix::fs::{OFlags, StatFs, fstatfs};
use std::collections::HashMap;
use std::fs::File;

/// Filesystems on which others change files without an event here.
const NO_INOTIFY_MAGICS: [(u32, &str); 6] = [
    (0x6969, "NFS"),
    (0x6573_5546, "FUSE"),
    (0x0102_1997, "9p"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
];
/// Changes behind an overlay's back are not told.
const OVERLAYFS_MAGIC: u32 = 0x794c_7630;

/// Filesystems of disks of this machine, which tell what is in memory from what they must wait for:
/// ext2 to ext4, XFS, btrfs and F2FS.
const LOCAL_DISK_MAGICS: [u32; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010];

/// Whether an open file is on a disk of this machine.
pub(super) fn is_on_local_disk(file: &File) -> bool {
    fstatfs(file).is_ok_and(|stat| LOCAL_DISK_MAGICS.contains(&filesystem_magic(&stat)))
}

/// The kernel's type differs by architecture; the magic numbers are 32 bits wide.
#[allow(clippy::cast_sign_loss, clippy::cast_possible_truncation)]
fn filesystem_magic(stat: &StatFs) -> u32 {
    stat.f_type as u32
}

/// The filesystems met so far, by device.
#[derive(Debug, Default)]
pub(super) struct FilesystemTypes(HashMap<u64, u32>);

impl FilesystemTypes {
    /// Notes the filesystem of a directory on this device.
    pub(super) fn record_filesystem(
        &mut self,
        ground: &AllowedDirsSnapshot,
        dir: &ResolvedPath,
        device: u64,
    ) {
        if self.0.contains_key(&device) {
            return;
        }
        let fd = ground.open(dir, OFlags::PATH | OFlags::DIRECTORY);
        // Where it cannot be asked now, the next directory on it is.
        let Ok(stat) = fd.and_then(|fd| fstatfs(&fd)) else { return };
        self.0.insert(device, filesystem_magic(&stat));
    }

    pub(super) fn no_inotify_support(&self) -> Option<&'static str> {
        let name =
            |kind: &u32| NO_INOTIFY_MAGICS.iter().find(|(magic, _)| magic == kind).map(|(_, n)| *n);
        self.0.values().find_map(name)
    }

    pub(super) fn has_overlay(&self) -> bool {
        self.0.values().any(|kind| *kind == OVERLAYFS_MAGIC)
    }
}
