//! Mounts in the daemon's mount namespace. Inotify does not report mounts and unmounts. Source:
//! `proc_pid_mountinfo(5)`.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};

const MOUNTINFO_PATH: &str = "/proc/self/mountinfo";

/// Mount table of the daemon, as of the last read.
#[derive(Debug)]
pub struct MountTable {
    file: File,
    mounts: HashSet<MountEntry>,
}

/// Fields of a line that identify a mount.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct MountEntry {
    /// Mount id, parent id, device and root.
    identity: Box<[u8]>,
    /// Absolute path in raw bytes.
    mount_point: Box<[u8]>,
}

impl MountTable {
    pub fn open() -> io::Result<Self> {
        let mut table = Self { file: File::open(MOUNTINFO_PATH)?, mounts: HashSet::new() };
        table.mounts = table.read()?;
        Ok(table)
    }

    /// Returns the paths at which filesystems were mounted or unmounted since the last call. Reads
    /// the table only if poll(2) reports a change.
    pub fn take_changed_mount_points(&mut self) -> io::Result<Vec<Box<[u8]>>> {
        let mut poll_fds = [PollFd::new(&self.file, PollFlags::PRI)];
        let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut poll_fds, Some(&no_wait))? == 0 {
            return Ok(Vec::new());
        }
        let mounts = self.read()?;
        let changed = self.mounts.symmetric_difference(&mounts);
        let mount_points = changed.map(|mount| mount.mount_point.clone()).collect();
        self.mounts = mounts;
        Ok(mount_points)
    }

    fn read(&mut self) -> io::Result<HashSet<MountEntry>> {
        let mut text = Vec::new();
        self.file.rewind()?;
        self.file.read_to_end(&mut text)?;
        Ok(text.split(|b| *b == b'\n').filter_map(parse_mount_line).collect())
    }
}

/// Parses a line: `36 35 98:0 /root /mount/point …`.
fn parse_mount_line(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.splitn(6, |b| *b == b' ');
    let mount_point = fields.nth(4)?;
    fields.next()?;
    let identity = line.split(|b| *b == b' ').take(4).collect::<Vec<_>>().join(&b' ');
    Some(MountEntry { identity: identity.into(), mount_point: unescape_octal(mount_point).into() })
}

/// Decodes escapes of three octal digits, such as `\040` for a space.
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
    fn mount_line_is_parsed() {
        let line = br"36 35 98:0 /mnt1 /mnt\0402/\134x rw,noatime master:1 - ext3 /dev/root rw";
        let entry = MountEntry {
            identity: (*b"36 35 98:0 /mnt1").into(),
            mount_point: (*br"/mnt 2/\x").into(),
        };
        assert_eq!(parse_mount_line(line), Some(entry));
        assert_eq!(parse_mount_line(b""), None);
        assert_eq!(parse_mount_line(b"36 35 98:0 /mnt1 /mnt2"), None);
    }

    #[test]
    fn mount_table_contains_the_root() {
        let mut table = MountTable::open().expect("mount table");
        assert!(table.mounts.iter().any(|mount| *mount.mount_point == *b"/"));
        table.take_changed_mount_points().expect("readable mount table");
    }
}
