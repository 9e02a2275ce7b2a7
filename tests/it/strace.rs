//! Runs the real binary under strace(1), to record its system calls or to make some of them fail.

use std::path::Path;
use std::process::{Command, Stdio};

/// Command of `caproot serve` on a free TCP port under strace, which writes to `log`. Returns
/// `None` if strace cannot trace. strace detaches (`-D`), so the process id is the daemon's.
pub(crate) fn trace_daemon(log: &Path, options: &[&str]) -> Option<Command> {
    let mut command = strace_command(log, options);
    command.args([env!("CARGO_BIN_EXE_caproot"), "serve", "--listen", "tcp:127.0.0.1:0"]);
    command.env_clear().env("HOME", "/nonexistent");
    let tried = strace_command(log, options).arg("/bin/true").stderr(Stdio::null()).status();
    if tried.is_ok_and(|status| status.success()) {
        return Some(command);
    }
    println!("SKIPPED: strace is not available; {options:?} was not tested");
    None
}

fn strace_command(log: &Path, options: &[&str]) -> Command {
    let mut command = Command::new("strace");
    command.args(["-D", "-f", "-qq", "-o"]).arg(log).args(options);
    command
}
