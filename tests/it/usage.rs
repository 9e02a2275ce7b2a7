//! What a process has used, as the kernel counts it.

use std::fs;
use std::time::Duration;

/// The processor time of a process.
pub(crate) fn processor_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("a live process");
    let (_, fields) = stat.rsplit_once(") ").expect("a name in brackets");
    let fields: Vec<_> = fields.split(' ').collect();
    let ticks = |at: usize| fields[at].parse::<u64>().expect("a number");
    let a_second = rustix::param::clock_ticks_per_second();
    Duration::from_millis((ticks(11) + ticks(12)) * 1_000 / a_second)
}

/// The memory that a process holds now, in KiB.
pub(crate) fn resident(pid: u32) -> u64 {
    status(pid, "VmRSS:")
}

/// The most that it ever held, in KiB.
pub(crate) fn most_resident(pid: u32) -> u64 {
    status(pid, "VmHWM:")
}

fn status(pid: u32, key: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a live process");
    let value = status.lines().find_map(|line| line.strip_prefix(key)).expect("the field");
    value.trim().strip_suffix(" kB").and_then(|kib| kib.parse().ok()).expect("a number of kB")
}
