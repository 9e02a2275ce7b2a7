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
        self.0.entry(device).or_insert_with(|| {
            let fd = ground.open(dir, OFlags::PATH | OFlags::DIRECTORY);
            let stat = fd.and_then(|fd| fstatfs(&fd));
            // The kernel's type differs by architecture; the magic numbers are 32 bits wide.
            #[allow(clippy::cast_sign_loss, clippy::cast_possible_truncation)]
            stat.map_or(0, |stat| stat.f_type as u32)
        });
    }

    pub(super) fn eventless(&self) -> Option<&'static str> {
        let name = |kind: &u32| EVENTLESS.iter().find(|(magic, _)| magic == kind).map(|(_, n)| *n);
        self.0.values().find_map(name)
    }

    pub(super) fn has_overlay(&self) -> bool {
        self.0.values().any(|kind| *kind == OVERLAY)
    }
}
