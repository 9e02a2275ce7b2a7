//! Process groups: a program and the programs that it starts.

use rustix::process::{Pid, Signal, kill_process_group};

/// Kills a process that leads its group, and its children. Call this before the process is waited for:
/// until then, no other process has its id.
pub fn kill_group(leader: u32) {
    let group = i32::try_from(leader).ok().and_then(Pid::from_raw);
    if let Some(group) = group {
        // Fails if the group has ended.
        let _ = kill_process_group(group, Signal::KILL);
    }
}
