//! Runs the real binary under strace(1), to record its system calls or to make some of them fail.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

use crate::harness::process::{caproot, serve, wrap, wrap_command};

const SKIPPED: &str = "strace is missing or may not trace";

/// Command of `caproot serve` on a free TCP port under strace, which writes to `log`. Returns
/// `None` if strace cannot trace. strace detaches (`-D`), so the process id is the daemon's.
pub(crate) fn trace_daemon(log: &Path, options: &[&str]) -> Option<Command> {
    trace_command(log, options, serve([""; 0]))
}

/// Command under strace, which writes to `log`. Returns `None` if strace cannot trace. strace
/// detaches (`-D`), so the process id is the command's.
pub(crate) fn trace_command(log: &Path, options: &[&str], command: Command) -> Option<Command> {
    wrap_command(strace_words(log, options), command, SKIPPED)
}

/// Whether strace can trace.
pub(crate) fn can_trace() -> bool {
    wrap_command(
        strace_words(Path::new("/dev/null"), &[]),
        caproot([""; 0]),
        SKIPPED,
    )
    .is_some()
}

/// Command that is killed at its system call `name` with this number, counted in each thread.
pub(crate) fn kill_at_call(command: &Command, name: &str, number: usize) -> Command {
    let (trace, inject) = (
        format!("trace={name}"),
        format!("inject={name}:signal=KILL:when={number}"),
    );
    wrap(
        &strace_words(Path::new("/dev/null"), &["-e", &trace, "-e", &inject]),
        command,
    )
}

fn strace_words(log: &Path, options: &[&str]) -> Vec<OsString> {
    let strace = ["strace", "-D", "-f", "-qq", "-o"].map(OsStr::new);
    let options = options.iter().map(OsStr::new);
    let words = strace.into_iter().chain([log.as_os_str()]).chain(options);
    words.map(OsStr::to_owned).collect()
}
