//! Which filesystems a root spans, and what their events are worth. Source: statfs(2).

use super::allowed::Ground;
use crate::domain::Spot;
use rustix::fs::{OFlags, fstatfs};
use std::collections::HashMap;

/// Filesystems on which others change files without an event here.
const EVENTLESS: [(u32, &str); 6] = [
    (0x6969, "NFS"),
    (0x6573_5546, "FUSE"),
    (0x0102_1997, "9p"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
];
/// Changes behind an overlay's back are not told.
const OVERLAY: u32 = 0x794c_7630;

/// The filesystems met so far, by device.
#[derive(Debug, Default)]
pub(super) struct Kinds(HashMap<u64, u32>);

impl Kinds {
    /// Notes the filesystem of a directory on this device.
    pub(super) fn note(&mut self, ground: &Ground, dir: &Spot, device: u64) {
        if self.0.contains_key(&device) {
            return;
        }
        let fd = ground.open(dir, OFlags::PATH | OFlags::DIRECTORY);
        // Where it cannot be asked now, the next directory on it is.
        let Ok(stat) = fd.and_then(|fd| fstatfs(&fd)) else { return };
        // The kernel's type differs by architecture; the magic numbers are 32 bits wide.
        #[allow(clippy::cast_sign_loss, clippy::cast_possible_truncation)]
        self.0.insert(device, stat.f_type as u32);
    }

    pub(super) fn eventless(&self) -> Option<&'static str> {
        let name = |kind: &u32| EVENTLESS.iter().find(|(magic, _)| magic == kind).map(|(_, n)| *n);
        self.0.values().find_map(name)
    }

    pub(super) fn has_overlay(&self) -> bool {
        self.0.values().any(|kind| *kind == OVERLAY)
    }
}
