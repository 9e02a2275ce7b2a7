//! Resource usage of a process according to /proc.

use std::fs;
use std::time::Duration;

/// Processor time of a process.
pub(crate) fn processor_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("a live process");
    let (_, fields) = stat.rsplit_once(") ").expect("a name in brackets");
    let fields: Vec<_> = fields.split(' ').collect();
    let ticks = |at: usize| fields[at].parse::<u64>().expect("a number");
    let ticks_per_second = rustix::param::clock_ticks_per_second();
    Duration::from_millis((ticks(11) + ticks(12)) * 1_000 / ticks_per_second)
}

/// Resident memory of a process in KiB.
pub(crate) fn resident(pid: u32) -> u64 {
    status(pid, "VmRSS:")
}

/// Peak resident memory in KiB.
pub(crate) fn most_resident(pid: u32) -> u64 {
    status(pid, "VmHWM:")
}

/// Peak resident memory in KiB besides the pages of the binary, which a debug build has many of.
pub(crate) fn most_anonymous(pid: u32) -> u64 {
    most_resident(pid) - status(pid, "RssFile:")
}

/// Number of threads.
pub(crate) fn threads(pid: u32) -> u64 {
    status(pid, "Threads:")
}

/// Number of open descriptors.
pub(crate) fn descriptors(pid: u32) -> u64 {
    fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("a live process")
        .count() as u64
}

/// Number of inotify watches in all instances of the process.
pub(crate) fn watches(pid: u32) -> u64 {
    let infos = fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("a live process");
    let count = |info: std::io::Result<fs::DirEntry>| {
        // A descriptor that was closed meanwhile has no watches.
        let text = info
            .and_then(|info| fs::read_to_string(info.path()))
            .unwrap_or_default();
        text.lines()
            .filter(|line| line.starts_with("inotify "))
            .count() as u64
    };
    infos.map(count).sum()
}

fn status(pid: u32, key: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a live process");
    let value = status
        .lines()
        .find_map(|line| line.strip_prefix(key))
        .expect("the field");
    value
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .expect("a number")
}
