//! Flag of the MCP servers whose skills a session has, as a list in the JSON that MCP hosts share.

use crate::cli::exit;
use crate::cli::failure::CommandFailure;
use crate::cli::output::print_stderr;
use caproot_core::bounded_file::{self, BoundedReadError};
use caproot_core::sync::run_blocking;
use caproot_core::text::escape_text;
use caproot_session::sources::mcp::McpServerList;
use clap::Args;
use std::path::PathBuf;

/// Maximum size of the file; larger lists are rejected.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Flag of the MCP servers.
#[derive(Debug, Args)]
pub struct McpServersArgs {
    /// Also the skills of the MCP servers in this JSON file, {"mcpServers": {NAME: {…}}}, as other
    /// MCP hosts read it
    #[arg(long, value_name = "FILE")]
    mcp_servers: Option<PathBuf>,
}

impl McpServersArgs {
    /// Whether there is a file with MCP servers.
    pub fn has_servers(&self) -> bool {
        self.mcp_servers.is_some()
    }

    /// Reads the list of the servers, without servers if there is no file. Prints the warnings of the
    /// file on stderr.
    pub async fn read(&self) -> Result<McpServerList, CommandFailure> {
        let Some(file) = &self.mcp_servers else {
            return Ok(McpServerList::default());
        };

        let name = file.display();
        let unusable = |reasons: String| {
            let lines = reasons.lines().map(|line| format!("{name}: {line}"));
            CommandFailure::from_messages(exit::BAD_CONFIG, &lines.collect::<Vec<_>>())
        };
        // On a blocking thread: the writer of a pipe may take its time.
        let path = file.clone();
        let read = run_blocking(move || bounded_file::read_file_or_pipe(&path, MAX_FILE_BYTES));
        let read = read.await.map_err(BoundedReadError::from).flatten();
        let text = read.and_then(bounded_file::decode_text);
        let text = text.map_err(|error| unusable(error.to_string()))?;
        let list = McpServerList::parse(&text, &|name| std::env::var(name).ok())
            .map_err(|error| unusable(error.to_string()))?;

        let warnings = list.warnings.iter();
        let warnings = warnings.map(|line| format!("caproot: {name}: {}", escape_text(line)));
        print_stderr(&warnings.collect::<Vec<_>>());
        Ok(list)
    }
}
