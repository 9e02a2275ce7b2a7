//! Exit codes for scripts. `--help`, the manual pages and the reference page use the same table,
//! [`EXIT_CODES`]. Codes from 70 up are the codes of sysexits.h.

use crate::cli::definitions::command_set::CommandSet;
use tonic::Code;

/// Exit code with its documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExitCodeEntry {
    /// Code of the process.
    pub code: u8,
    /// Name of the constant.
    pub name: &'static str,
    /// Meaning in a few words.
    pub summary: &'static str,
    /// Meaning in sentences.
    pub meaning: &'static str,
    /// Commands that can exit with the code.
    pub commands: CommandSet,
}

/// Defines a constant for each exit code, and the table of all codes. The doc comment is the
/// meaning.
macro_rules! exit_codes {
    ($($(#[doc = $meaning:literal])+ $name:ident = $code:literal, $summary:literal, $commands:expr;)+) => {
        $($(#[doc = $meaning])+ pub const $name: u8 = $code;)+

        /// All exit codes, in ascending order.
        pub const EXIT_CODES: &[ExitCodeEntry] = &[$(ExitCodeEntry {
            code: $code,
            name: stringify!($name),
            summary: $summary,
            meaning: concat!($($meaning),+).trim_ascii(),
            commands: $commands,
        }),+];
    };
}

/// Commands that report their own failures by these codes. `exec` has the codes of its script, and three
/// codes of its own.
const ALL_BUT_EXEC: CommandSet = CommandSet::Without(&CommandSet::All, "exec");
const CLIENT_BUT_EXEC: CommandSet = CommandSet::Without(&CommandSet::Client, "exec");

exit_codes! {
    /// The command succeeded. If the reader of stdout closes the pipe early, as `head` does, the code
    /// is the same.
    OK = 0, "success", CommandSet::All;
    /// The command succeeded, and its result reports problems. For `list`, `search` and `resolve`,
    /// a root is not ready or an executor does not respond. For `prompt`, a source does not respond or has a problem.
    /// For `status`, the daemon is not serving. For `fleet list`, an executor does not serve or a
    /// published root is not ready. For `check`, a
    /// skill or plugin has an error, or a directory has neither a skill nor a plugin. For `pull`, the
    /// directory has files that are not as the last pull wrote them. For `pull --lock`, the
    /// lock does not approve a package. For `lock`, the skills differ from the lock, or a skill cannot be
    /// approved.
    PROBLEMS_FOUND = 1, "problems found",
        CommandSet::Only(&[
            "status", "resolve", "list", "search", "check", "pull", "lock", "fleet list",
            "prompt",
        ]);
    /// The command line is invalid, or `explain` does not know the code.
    USAGE = 2, "invalid usage", ALL_BUT_EXEC;
    /// No daemon answers at the endpoint, another program answers, or the TLS certificate of the
    /// daemon is not trusted.
    NO_DAEMON = 3, "no daemon answers", CommandSet::Only(&[
        "status", "resolve", "list", "search", "resources", "read", "pull", "lock", "watch",
        "call", "prompt",
    ]);
    /// The call was rejected as invalid: an unknown root, skill or file, a name of several skills, or
    /// a value that the daemon does not accept. The same call will be rejected again.
    REJECTED = 4, "call rejected as invalid", CLIENT_BUT_EXEC;
    /// The caller may not use the socket, make the call or read the file, or the daemon rejected the
    /// client certificate.
    NOT_PERMITTED = 5, "not permitted", CLIENT_BUT_EXEC;
    /// The daemon cannot respond now: a limit is reached, the timeout is over, or the connection was
    /// lost. Try again later.
    TRY_LATER = 6, "try later", CLIENT_BUT_EXEC;
    /// The command needs Linux, and this is another system: `serve`, `config`, `link`, `exec`, `pull`, `lock`, `new`,
    /// `check`, `explain` or `man`.
    NEEDS_LINUX = 69, "needs Linux", CommandSet::Only(&[]);
    /// Internal error, or a response of the daemon that is not valid.
    INTERNAL = 70, "internal error", ALL_BUT_EXEC;
    /// The command cannot listen: the address is in use, or the directory of the socket is unsafe.
    CANNOT_LISTEN = 73, "cannot listen", CommandSet::Only(&["serve", "link", "mcp"]);
    /// The output cannot be written, for example because the disk is full.
    OUTPUT_FAILED = 74, "cannot write output", ALL_BUT_EXEC;
    /// The daemon ended because a reload needs a new process. The service manager starts the daemon
    /// again.
    NEEDS_RESTART = 75, "restart required", CommandSet::Only(&["serve"]);
    /// The daemon has another version and does not know the call.
    VERSION_MISMATCH = 76, "version mismatch", CLIENT_BUT_EXEC;
    /// The configuration is invalid: a file or directory that the command names cannot be used,
    /// values conflict, the limit of open files is too low, or the kernel lacks a required sandbox.
    /// The command also refuses to send a token or to serve skills where others could read them.
    BAD_CONFIG = 78, "invalid configuration",
        CommandSet::Without(
            &CommandSet::ClientAnd(&[
                "serve", "link", "link check", "config check", "new", "check", "fleet check",
                "fleet list",
            ]),
            "exec",
        );
    /// `exec` could not start the script or print its path: the command line is invalid, the daemon does not answer or
    /// rejects the call, or the copy cannot be written. A script may exit with the same code: stderr of
    /// `exec` then has no line that begins with `caproot:`.
    NOT_STARTED = 125, "script not started", CommandSet::Only(&["exec"]);
    /// The script is not the expected one: its digest differs from `--digest`, the lock does not approve
    /// the skill, or the skill changed during each attempt to copy it.
    SCRIPT_CHANGED = 126, "script changed", CommandSet::Only(&["exec"]);
    /// The argument is no listed file of a skill, or this machine has no interpreter for the file.
    NOT_RUNNABLE = 127, "not listed, or no interpreter", CommandSet::Only(&["exec"]);
}

/// Returns the exit code of a command that succeeded: whether its result is without problems.
#[must_use]
pub fn code_for_result(is_well: bool) -> u8 {
    if is_well { OK } else { PROBLEMS_FOUND }
}

/// Returns the exit code of a call with this status.
#[must_use]
pub fn code_for_status(code: Code) -> u8 {
    match code {
        Code::Ok => OK,
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::OutOfRange => REJECTED,
        Code::Unimplemented => VERSION_MISMATCH,
        Code::PermissionDenied | Code::Unauthenticated => NOT_PERMITTED,
        Code::Unavailable | Code::ResourceExhausted | Code::DeadlineExceeded | Code::Cancelled => {
            TRY_LATER
        }
        Code::Unknown | Code::Internal | Code::DataLoss => INTERNAL,
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    #[test]
    fn every_code_has_its_exit_code() {
        let codes: Vec<u8> = (0..=16)
            .map(|code| super::code_for_status(Code::from_i32(code)))
            .collect();
        assert_eq!(
            codes,
            [0, 6, 70, 4, 6, 4, 4, 5, 6, 4, 4, 4, 76, 70, 6, 70, 5]
        );
    }
}
