//! Environment variables and files of the commands. The manual pages and the reference page use the
//! same tables.

use super::command_set::CommandSet;

/// Environment variable with its documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnvironmentVariable {
    /// Name of the variable.
    pub name: &'static str,
    /// Effect of the value.
    pub meaning: &'static str,
    /// Commands that read the variable.
    pub commands: CommandSet,
}

/// File or directory with its documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileEntry {
    /// Path, which may contain variables.
    pub path: &'static str,
    /// Purpose of the file.
    pub meaning: &'static str,
    /// Commands that use the file.
    pub commands: CommandSet,
}

/// Commands that know the default roots.
const ROOTS: CommandSet = CommandSet::Only(&["serve", "config check"]);
/// Commands that know the default sockets.
const SOCKETS: CommandSet = CommandSet::ClientAnd(&["serve", "config check"]);
/// Commands that trust the authorities of the machine.
const TLS_CLIENTS: CommandSet =
    CommandSet::ClientAnd(&["fleet check", "fleet list", "fleet watch"]);
const EXEC: CommandSet = CommandSet::Only(&["exec"]);
const SERVE: CommandSet = CommandSet::Only(&["serve"]);

/// All environment variables that the program reads.
pub const ENVIRONMENT_VARIABLES: &[EnvironmentVariable] = &[
    EnvironmentVariable {
        name: "CAPROOT_ENDPOINT",
        meaning: "Address of the daemon. `--endpoint` takes precedence.",
        commands: CommandSet::Client,
    },
    EnvironmentVariable {
        name: "CAPROOT_CA",
        meaning: "File of the authorities that the daemon's certificate must come from. `--ca` takes precedence.",
        commands: CommandSet::Client,
    },
    EnvironmentVariable {
        name: "CAPROOT_CERT",
        meaning: "File of the client certificate. `--cert` takes precedence.",
        commands: CommandSet::Client,
    },
    EnvironmentVariable {
        name: "CAPROOT_KEY",
        meaning: "File of the client certificate's key. `--key` takes precedence.",
        commands: CommandSet::Client,
    },
    EnvironmentVariable {
        name: "CAPROOT_TOKEN_FILE",
        meaning: "File of the token that is sent with each call. `--token-file` takes precedence.",
        commands: CommandSet::Client,
    },
    EnvironmentVariable {
        name: "CAPROOT_COPIES",
        meaning: "Directory of the copies that scripts run in. `--copies` takes precedence.",
        commands: EXEC,
    },
    EnvironmentVariable {
        name: "XDG_CACHE_HOME",
        meaning: "Parent of the default directory of the copies. The default is `~/.cache`. Only an absolute path counts.",
        commands: EXEC,
    },
    EnvironmentVariable {
        name: "PYTHONDONTWRITEBYTECODE",
        meaning: "Set to 1 for the script if the variable is not set, so that Python writes no `__pycache__` to the copy.",
        commands: EXEC,
    },
    EnvironmentVariable {
        name: "PATH",
        meaning: "Directories of interpreters for `exec`, and of the programs that skills need for `check`.",
        commands: CommandSet::Only(&["exec", "check"]),
    },
    EnvironmentVariable {
        name: "SSL_CERT_FILE",
        meaning: "File of the machine's authorities, instead of the files of the system. Used without `--ca`.",
        commands: TLS_CLIENTS,
    },
    EnvironmentVariable {
        name: "SSL_CERT_DIR",
        meaning: "Directories of the machine's authorities, instead of the files of the system. Used without `--ca`.",
        commands: TLS_CLIENTS,
    },
    EnvironmentVariable {
        name: "CAPROOT_LOG",
        meaning: "Log filter. `--log` takes precedence.",
        commands: CommandSet::Only(&["serve", "call", "mcp", "prompt"]),
    },
    EnvironmentVariable {
        name: "JOURNAL_STREAM",
        meaning: "Stream of the journal. If stderr is this stream, log lines of text begin with their priority and have no time. systemd sets the variable.",
        commands: CommandSet::Only(&["serve", "call", "mcp", "prompt"]),
    },
    EnvironmentVariable {
        name: "RUNTIME_DIRECTORY",
        meaning: "Directory of the default socket. systemd sets the variable for a unit with `RuntimeDirectory=`. Only an absolute path counts.",
        commands: CommandSet::Only(&["serve", "config check"]),
    },
    EnvironmentVariable {
        name: "XDG_RUNTIME_DIR",
        meaning: "Directory of the second default socket. Only an absolute path counts. Without the variable, clients try `/run/user/UID`, if the directory belongs to the user.",
        commands: SOCKETS,
    },
    EnvironmentVariable {
        name: "TMPDIR",
        meaning: "Directory of the third default socket. The default is `/tmp`.",
        commands: SOCKETS,
    },
    EnvironmentVariable {
        name: "HOME",
        meaning: "Home directory, for the default root `user`, and for `codex` without `CODEX_HOME`. Only an absolute path counts.",
        commands: ROOTS,
    },
    EnvironmentVariable {
        name: "CODEX_HOME",
        meaning: "Directory of Codex, for the default roots `codex` and `system`. The default is `~/.codex`. Only an absolute path counts.",
        commands: ROOTS,
    },
    EnvironmentVariable {
        name: "LISTEN_FDS",
        meaning: "Number of sockets that the service manager passes. The sockets replace the default socket.",
        commands: SERVE,
    },
    EnvironmentVariable {
        name: "LISTEN_PID",
        meaning: "Process that `LISTEN_FDS` is for. Another process ignores `LISTEN_FDS`.",
        commands: SERVE,
    },
    EnvironmentVariable {
        name: "LISTEN_FDNAMES",
        meaning: "Names of the passed sockets. A socket named `metrics` serves Prometheus.",
        commands: SERVE,
    },
    EnvironmentVariable {
        name: "NOTIFY_SOCKET",
        meaning: "Socket of the service manager. The daemon reports readiness, reloads and its end to this socket.",
        commands: SERVE,
    },
    EnvironmentVariable {
        name: "WATCHDOG_USEC",
        meaning: "Interval in microseconds within which the service manager expects a sign of life on `NOTIFY_SOCKET`.",
        commands: SERVE,
    },
    EnvironmentVariable {
        name: "TZ",
        meaning: "Time zone of the times in the output. The default is the time zone of the machine.",
        commands: CommandSet::Only(&["watch", "fleet watch"]),
    },
    EnvironmentVariable {
        name: "NO_COLOR",
        meaning: "Switches colors off if the value is not empty.",
        commands: CommandSet::All,
    },
    EnvironmentVariable {
        name: "TERM",
        meaning: "Type of the terminal. `dumb` switches colors off; so does no value in `check`.",
        commands: CommandSet::All,
    },
    EnvironmentVariable {
        name: "COLUMNS",
        meaning: "Width of the terminal for tables. The default is the width that the terminal reports.",
        commands: CommandSet::Only(&["roots", "resolve", "list", "search", "fleet list"]),
    },
];

/// Files and directories that the program finds by itself.
pub const FILES: &[FileEntry] = &[
    FileEntry {
        path: "/run/caproot/caproot.sock",
        meaning: "Socket of the daemon of the system.",
        commands: CommandSet::ClientAnd(&["serve"]),
    },
    FileEntry {
        path: "$XDG_RUNTIME_DIR/caproot.sock",
        meaning: "Socket of the daemon of a user with a session.",
        commands: CommandSet::ClientAnd(&["serve"]),
    },
    FileEntry {
        path: "$TMPDIR/caproot-UID/caproot.sock",
        meaning: "Socket of the daemon of a user without a session.",
        commands: CommandSet::ClientAnd(&["serve"]),
    },
    FileEntry {
        path: "/etc/caproot/caproot.yaml",
        meaning: "Config file of the packaged unit.",
        commands: CommandSet::Only(&["serve", "config", "config check", "config example"]),
    },
    FileEntry {
        path: "/etc/caproot-exec.yaml",
        meaning: "Daemon, authority, lock and signers that an operator fixes for `exec`.",
        commands: EXEC,
    },
    FileEntry {
        path: "$XDG_CACHE_HOME/caproot/packages",
        meaning: "Verified copies of skills whose scripts ran; at most 32.",
        commands: EXEC,
    },
    FileEntry {
        path: "./.agents/skills",
        meaning: "Default root `repo`. The directories above, up to the root of the repository, have `repo-2` and so on.",
        commands: ROOTS,
    },
    FileEntry {
        path: "$HOME/.agents/skills",
        meaning: "Default root `user`.",
        commands: ROOTS,
    },
    FileEntry {
        path: "$CODEX_HOME/skills",
        meaning: "Default root `codex`. Its directory `.system` is the default root `system`.",
        commands: ROOTS,
    },
    FileEntry {
        path: "/etc/codex/skills",
        meaning: "Default root `admin`.",
        commands: ROOTS,
    },
];
