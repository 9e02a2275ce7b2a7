//! The real binary under strace(1): its system calls are recorded, and some of them made to fail.

use std::path::Path;
use std::process::{Command, Stdio};

/// `caproot serve` on a free TCP port under strace, which writes to `log`; `None`, said loudly, where
/// nothing can be traced. The process is the daemon's own: strace only looks on.
pub(crate) fn trace_daemon(log: &Path, options: &[&str]) -> Option<Command> {
    let mut command = strace(log, options);
    command.args([env!("CARGO_BIN_EXE_caproot"), "serve", "--listen", "tcp:127.0.0.1:0"]);
    command.env_clear().env("HOME", "/nonexistent");
    let tried = strace(log, options).arg("/bin/true").stderr(Stdio::null()).status();
    if tried.is_ok_and(|status| status.success()) {
        return Some(command);
    }
    println!("SKIPPED: there is no strace here, or it may not trace: {options:?} was not tried");
    None
}

fn strace(log: &Path, options: &[&str]) -> Command {
    let mut command = Command::new("strace");
    command.args(["-D", "-f", "-qq", "-o"]).arg(log).args(options);
    command
}
