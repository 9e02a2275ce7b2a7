//! Flag of the MCP servers whose skills a session has, as a list in the JSON that MCP hosts share.

use crate::cli::exit;
use crate::cli::failure::CommandFailure;
use crate::cli::output::print_stderr;
use caproot_core::bounded_file::{self, BoundedReadError};
use caproot_core::sync::{BlockingError, run_blocking};
use caproot_core::text::escape_text;
use caproot_session::sources::mcp::McpServerList;
use clap::Args;
use std::io;
use std::path::{Path, PathBuf};

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

        let text = read_list(file.clone())
            .await
            .map_err(|error| unusable_list(file, &error.to_string()))?;
        let list = McpServerList::parse(&text, &|name| std::env::var(name).ok())
            .map_err(|error| unusable_list(file, &error.to_string()))?;

        let name = file.display();
        let warnings: Vec<_> = list
            .warnings
            .iter()
            .map(|line| format!("caproot: {name}: {}", escape_text(line)))
            .collect();
        print_stderr(&warnings);
        Ok(list)
    }
}

/// Reads the list on a blocking thread: the writer of a pipe may take its time.
async fn read_list(file: PathBuf) -> Result<String, BoundedReadError> {
    let read = run_blocking(move || bounded_file::read_file_or_pipe(&file, MAX_FILE_BYTES));
    let bytes = match read.await {
        Ok(bytes) => bytes?,
        Err(BlockingError::NoThread(error)) => return Err(error.into()),
        Err(BlockingError::Panicked(panic)) => return Err(io::Error::other(panic).into()),
    };
    bounded_file::decode_text(bytes)
}

fn unusable_list(file: &Path, reasons: &str) -> CommandFailure {
    let name = file.display();
    let lines: Vec<_> = reasons
        .lines()
        .map(|line| format!("{name}: {line}"))
        .collect();
    CommandFailure::from_messages(exit::BAD_CONFIG, &lines)
}
