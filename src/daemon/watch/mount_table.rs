//! Mounts in the daemon's mount namespace. Inotify does not report mounts and unmounts. Source:
//! `proc_pid_mountinfo(5)`.

use caproot_core::mountinfo::{MountEntry, parse_mountinfo};
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

impl MountTable {
    pub fn open() -> io::Result<Self> {
        let mut table = Self {
            file: File::open(MOUNTINFO_PATH)?,
            mounts: HashSet::new(),
        };
        table.mounts = table.read()?;
        Ok(table)
    }

    /// Returns the paths at which filesystems were mounted or unmounted since the last call, or `None`
    /// if the table did not change. A change that was undone has no path. Reads the table only if
    /// poll(2) reports a change.
    pub fn take_changed_mount_points(&mut self) -> io::Result<Option<Vec<Box<[u8]>>>> {
        let mut poll_fds = [PollFd::new(&self.file, PollFlags::PRI)];
        // The default is no wait.
        if poll(&mut poll_fds, Some(&Timespec::default()))? == 0 {
            return Ok(None);
        }
        let mounts = self.read()?;
        let changed = self.mounts.symmetric_difference(&mounts);
        let mount_points = changed.map(|mount| mount.mount_point.clone()).collect();
        self.mounts = mounts;
        Ok(Some(mount_points))
    }

    fn read(&mut self) -> io::Result<HashSet<MountEntry>> {
        let mut text = Vec::new();
        self.file.rewind()?;
        self.file.read_to_end(&mut text)?;
        Ok(parse_mountinfo(&text).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::MountTable;

    #[test]
    fn mount_table_contains_the_root() {
        let mut table = MountTable::open().expect("mount table");
        assert!(table.mounts.iter().any(|mount| *mount.mount_point == *b"/"));
        table
            .take_changed_mount_points()
            .expect("readable mount table");
    }
}
