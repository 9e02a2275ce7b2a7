//! Flag of the MCP servers whose skills a session has, as a list in the JSON that MCP hosts share.

use super::exit;
use super::failure::CommandFailure;
use super::output::print_stderr;
use caproot_client::session::SkillSource;
use caproot_client::session::sources::mcp::McpServerList;
use caproot_core::text::escape_text;
use clap::Args;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::fs::File;
use tokio::io::AsyncReadExt as _;

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

    /// Starts the servers as sources, and waits for their first lists at most for `within`. Prints
    /// the warnings of the file on stderr.
    pub async fn start(
        &self,
        within: Duration,
    ) -> Result<Vec<Arc<dyn SkillSource>>, CommandFailure> {
        let Some(file) = &self.mcp_servers else {
            return Ok(Vec::new());
        };

        let text = read_text(file)
            .await
            .map_err(|error| unusable_list(file, &format!("cannot be read: {error}")))?;
        let list = McpServerList::parse(&text, &|name| std::env::var(name).ok())
            .map_err(|error| unusable_list(file, &error.to_string()))?;

        let name = file.display();
        let warnings: Vec<_> = list
            .warnings
            .iter()
            .map(|line| format!("caproot: {name}: {}", escape_text(line)))
            .collect();
        print_stderr(&warnings);
        Ok(list.start(within).await)
    }
}

async fn read_text(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    let opened = File::open(file).await?;
    // One byte more than the limit, so that the list is rejected and not cut.
    let mut limited = opened.take(MAX_FILE_BYTES + 1);
    limited.read_to_string(&mut text).await?;
    Ok(text)
}

fn unusable_list(file: &Path, reasons: &str) -> CommandFailure {
    let name = file.display();
    let lines: Vec<_> = reasons
        .lines()
        .map(|line| format!("{name}: {line}"))
        .collect();
    CommandFailure::from_messages(exit::BAD_CONFIG, &lines)
}
