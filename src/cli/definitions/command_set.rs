//! Commands to which a line of a reference table applies.

/// Commands that connect to a daemon.
pub const CLIENT_COMMANDS: [&str; 13] = [
    "status",
    "resolve",
    "list",
    "search",
    "resources",
    "read",
    "exec",
    "watch",
    "pull",
    "lock",
    "call",
    "mcp",
    "prompt",
];

/// Commands that look at the files of this machine as the daemon does, or run on an executor.
#[cfg(not(target_os = "linux"))]
pub const LINUX_COMMANDS: &[&str] = &[
    "serve", "config", "link", "exec", "pull", "lock", "new", "check", "explain", "man",
];

/// Set of commands. A subcommand is spelled with its parent, such as `config check`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandSet {
    /// Every command.
    All,
    /// The commands that connect to a daemon.
    Client,
    /// The commands that connect to a daemon, and these commands.
    ClientAnd(&'static [&'static str]),
    /// Only these commands.
    Only(&'static [&'static str]),
    /// The commands of another set without one command.
    Without(&'static CommandSet, &'static str),
}

impl CommandSet {
    /// Whether a command is in the set. The empty name means the program itself, whose page is about
    /// all commands.
    #[must_use]
    pub fn contains(&self, command: &str) -> bool {
        let is_client = CLIENT_COMMANDS.contains(&command);
        command.is_empty()
            || match self {
                Self::All => true,
                Self::Client => is_client,
                Self::ClientAnd(names) => is_client || names.contains(&command),
                Self::Only(names) => names.contains(&command),
                Self::Without(set, name) => set.contains(command) && command != *name,
            }
    }
}
