//! Filesystems of a root, and whether inotify reports all their changes. Source: statfs(2).

use super::dirs_snapshot::AllowedDirsSnapshot;
use crate::daemon::model::ResolvedPath;
use rustix::fs::{OFlags, StatFs, fstatfs};
use std::collections::HashMap;
use std::fs::File;

/// Filesystems on which other machines or processes change files without an event: those on which `tail -f`
/// of GNU coreutils polls (`src/stat.c`).
const NO_INOTIFY_MAGICS: [(u32, &str); 26] = [
    (0x6969, "NFS"),
    (0x6573_5546, "FUSE"),
    (0x0102_1997, "9p"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x786f_4256, "vboxsf"),
    (0x7c7c_6673, "prl_fs"),
    (0xbacb_acbc, "vmhgfs"),
    (0x5346_4846, "wslfs"),
    (0x0bd0_0bd0, "Lustre"),
    (0x00c3_6400, "Ceph"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x7461_636f, "OCFS2"),
    (0x7375_7245, "Coda"),
    (0x0116_1970, "GFS2"),
    (0x6163_6673, "ACFS"),
    (0x0131_11a8, "IBRIX"),
    (0x2003_0528, "OrangeFS"),
    (0xaad7_aaea, "PanFS"),
    (0xbeef_dead, "SNFS"),
    (0xa501_fcf5, "VxFS"),
    (0x564c, "NCP"),
];
/// Changes of the lower layers of an overlay cause no event.
const OVERLAYFS_MAGIC: u32 = 0x794c_7630;

/// Filesystems on local disks, which know whether data is in memory: ext2 to ext4, XFS, btrfs and
/// F2FS.
const LOCAL_DISK_MAGICS: [u32; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010];

/// Whether an open file is on a local disk.
pub fn is_on_local_disk(file: &File) -> bool {
    fstatfs(file).is_ok_and(|stat| LOCAL_DISK_MAGICS.contains(&filesystem_magic(&stat)))
}

/// Returns the magic number. Its type in the kernel differs by architecture, but it has 32 bits.
#[allow(clippy::cast_sign_loss, clippy::cast_possible_truncation)]
fn filesystem_magic(stat: &StatFs) -> u32 {
    stat.f_type as u32
}

/// Filesystems found so far, by device.
#[derive(Debug, Default)]
pub struct FilesystemTypes(HashMap<u64, u32>);

impl FilesystemTypes {
    /// Records the filesystem of a directory on this device.
    pub fn record_filesystem(
        &mut self,
        snapshot: &AllowedDirsSnapshot,
        dir: &ResolvedPath,
        device: u64,
    ) {
        if self.0.contains_key(&device) {
            return;
        }
        let fd = snapshot.open(dir, OFlags::PATH | OFlags::DIRECTORY);
        // If the call fails, the next directory on the device is tried.
        let Ok(stat) = fd.and_then(|fd| fstatfs(&fd)) else {
            return;
        };
        self.0.insert(device, filesystem_magic(&stat));
    }

    pub fn no_inotify_support(&self) -> Option<&'static str> {
        self.0.values().find_map(|kind| {
            let known = NO_INOTIFY_MAGICS.iter().find(|(magic, _)| magic == kind);
            known.map(|(_, name)| *name)
        })
    }

    pub fn has_overlay(&self) -> bool {
        self.0.values().any(|kind| *kind == OVERLAYFS_MAGIC)
    }
}
