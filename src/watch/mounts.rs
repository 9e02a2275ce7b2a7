//! Where filesystems are mounted and taken away in the daemon's mount namespace, which no event of a
//! directory tells. Source: `proc_pid_mountinfo(5)`.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};

const TABLE: &str = "/proc/self/mountinfo";

/// The mounts as they were when they were looked at last.
#[derive(Debug)]
pub(super) struct Mounts {
    table: File,
    known: HashSet<Mount>,
}

/// What tells a mount from another one, of a line: its ids, device, root and place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Mount {
    head: Box<[u8]>,
    /// Absolute, raw bytes.
    place: Box<[u8]>,
}

impl Mounts {
    pub(super) fn open() -> io::Result<Self> {
        let mut mounts = Self { table: File::open(TABLE)?, known: HashSet::new() };
        mounts.known = mounts.read()?;
        Ok(mounts)
    }

    /// The places at which something was mounted or taken away since the last time. Asks the kernel
    /// whether there may be any before it reads the table.
    pub(super) fn changed(&mut self) -> io::Result<Vec<Box<[u8]>>> {
        let mut ask = [PollFd::new(&self.table, PollFlags::PRI)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut ask, Some(&at_once))? == 0 {
            return Ok(Vec::new());
        }
        let now = self.read()?;
        let places = self.known.symmetric_difference(&now).map(|mount| mount.place.clone());
        let places = places.collect();
        self.known = now;
        Ok(places)
    }

    fn read(&mut self) -> io::Result<HashSet<Mount>> {
        let mut text = Vec::new();
        self.table.rewind()?;
        self.table.read_to_end(&mut text)?;
        Ok(text.split(|b| *b == b'\n').filter_map(mount).collect())
    }
}

/// Reads a line: `36 35 98:0 /root /place …`.
fn mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.splitn(6, |b| *b == b' ');
    let place = fields.nth(4)?;
    fields.next()?;
    let head = line.split(|b| *b == b' ').take(4).collect::<Vec<_>>().join(&b' ');
    Some(Mount { head: head.into(), place: unescape(place).into() })
}

/// Spaces and the like are three octal digits behind a backslash.
fn unescape(text: &[u8]) -> Vec<u8> {
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
    use super::{Mount, Mounts, mount};

    #[test]
    fn a_line_is_read() {
        let line = br"36 35 98:0 /mnt1 /mnt\0402/\134x rw,noatime master:1 - ext3 /dev/root rw";
        let read = Mount { head: (*b"36 35 98:0 /mnt1").into(), place: (*br"/mnt 2/\x").into() };
        assert_eq!(mount(line), Some(read));
        assert_eq!(mount(b""), None);
        assert_eq!(mount(b"36 35 98:0 /mnt1 /mnt2"), None);
    }

    #[test]
    fn the_table_is_read() {
        let mut mounts = Mounts::open().expect("a table");
        assert!(mounts.known.iter().any(|mount| *mount.place == *b"/"));
        mounts.changed().expect("it can be read again");
    }
}
