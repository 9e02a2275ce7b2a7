//! Environment variables and files of the commands, for the manual pages. Their source is the reference
//! page of the environment.

use super::command_set::CLIENT_COMMANDS;
use std::sync::LazyLock;

const PAGE: &str = include_str!("../../../docs/reference/environment.md");
/// Mark of the commands that connect to a daemon.
const CLIENT_LINK: &str = "[client commands](cli.md#client-commands)";

/// All environment variables that the program reads.
pub static ENVIRONMENT_VARIABLES: LazyLock<Vec<ReferenceEntry>> =
    LazyLock::new(|| parse_rows(page_parts().0));

/// Files and directories that the program finds by itself.
pub static FILES: LazyLock<Vec<ReferenceEntry>> = LazyLock::new(|| parse_rows(page_parts().1));

/// Environment variable or file with its documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReferenceEntry {
    /// Name of the variable, or path, which may contain variables.
    pub name: &'static str,
    /// Effect of the value, or purpose of the file.
    pub meaning: &'static str,
    /// Commands that use the variable or the file, as in the page.
    commands: &'static str,
}

impl ReferenceEntry {
    /// Whether a command uses the variable or the file. The empty name means the program itself, whose
    /// page is about all commands.
    #[must_use]
    pub fn is_of_command(&self, command: &str) -> bool {
        command.is_empty()
            || self.commands == "all"
            || self.commands.split(", ").any(|name| match name {
                CLIENT_LINK => CLIENT_COMMANDS.contains(&command),
                name => name.trim_matches('`') == command,
            })
    }
}

/// Returns the parts of the page with the variables and with the files.
fn page_parts() -> (&'static str, &'static str) {
    PAGE.split_once("\n## Files\n").unwrap_or((PAGE, ""))
}

/// Parses the rows of a table whose first cell is code.
fn parse_rows(text: &'static str) -> Vec<ReferenceEntry> {
    let rows = text.lines().filter_map(|line| {
        let row = line.strip_prefix("| `")?.strip_suffix(" |")?;
        let (name, rest) = row.split_once("` | ")?;
        let (meaning, commands) = rest.rsplit_once(" | ")?;
        Some(ReferenceEntry {
            name,
            meaning,
            commands,
        })
    });
    rows.collect()
}
