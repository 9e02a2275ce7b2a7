//! Where filesystems are mounted and taken away in the daemon's mount namespace, which no event of a
//! directory tells. Source: `proc_pid_mountinfo(5)`.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};

const MOUNTINFO_PATH: &str = "/proc/self/mountinfo";

/// The mounts as they were when they were looked at last.
#[derive(Debug)]
pub(super) struct MountTable {
    file: File,
    mounts: HashSet<MountEntry>,
}

/// What tells a mount from another one, of a line: its ids, device, root and place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct MountEntry {
    identity: Box<[u8]>,
    /// Absolute, raw bytes.
    mount_point: Box<[u8]>,
}

impl MountTable {
    pub(super) fn open() -> io::Result<Self> {
        let mut mounts = Self { file: File::open(MOUNTINFO_PATH)?, mounts: HashSet::new() };
        mounts.mounts = mounts.read()?;
        Ok(mounts)
    }

    /// The places at which something was mounted or taken away since the last time. Asks the kernel
    /// whether there may be any before it reads the table.
    pub(super) fn take_changed_mount_points(&mut self) -> io::Result<Vec<Box<[u8]>>> {
        let mut ask = [PollFd::new(&self.file, PollFlags::PRI)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut ask, Some(&at_once))? == 0 {
            return Ok(Vec::new());
        }
        let now = self.read()?;
        let places = self.mounts.symmetric_difference(&now).map(|mount| mount.mount_point.clone());
        let places = places.collect();
        self.mounts = now;
        Ok(places)
    }

    fn read(&mut self) -> io::Result<HashSet<MountEntry>> {
        let mut text = Vec::new();
        self.file.rewind()?;
        self.file.read_to_end(&mut text)?;
        Ok(text.split(|b| *b == b'\n').filter_map(parse_mount_line).collect())
    }
}

/// Reads a line: `36 35 98:0 /root /place …`.
fn parse_mount_line(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.splitn(6, |b| *b == b' ');
    let place = fields.nth(4)?;
    fields.next()?;
    let head = line.split(|b| *b == b' ').take(4).collect::<Vec<_>>().join(&b' ');
    Some(MountEntry { identity: head.into(), mount_point: unescape_octal(place).into() })
}

/// Spaces and the like are three octal digits behind a backslash.
fn unescape_octal(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let code = tail.get(..3).filter(|_| *first == b'\\');
        let code = code.and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(byte) = code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            bytes.push(byte);
            rest = &tail[3..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::{MountEntry, MountTable, parse_mount_line};

    #[test]
    fn a_line_is_read() {
        let line = br"36 35 98:0 /mnt1 /mnt\0402/\134x rw,noatime master:1 - ext3 /dev/root rw";
        let read = MountEntry {
            identity: (*b"36 35 98:0 /mnt1").into(),
            mount_point: (*br"/mnt 2/\x").into(),
        };
        assert_eq!(parse_mount_line(line), Some(read));
        assert_eq!(parse_mount_line(b""), None);
        assert_eq!(parse_mount_line(b"36 35 98:0 /mnt1 /mnt2"), None);
    }

    #[test]
    fn the_table_is_read() {
        let mut mounts = MountTable::open().expect("a table");
        assert!(mounts.mounts.iter().any(|mount| *mount.mount_point == *b"/"));
        mounts.take_changed_mount_points().expect("it can be read again");
    }
}
