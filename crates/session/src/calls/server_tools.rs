//! Tools of the MCP servers of plugins in a session.

use crate::servers::McpServerStatus;
use crate::state::Session;

impl Session {
    /// Returns the state of each MCP server of a plugin that
    /// [`SessionOptions::mcp_servers`](crate::SessionOptions::mcp_servers) chose at the start.
    #[must_use]
    pub fn mcp_servers(&self) -> Vec<McpServerStatus> {
        if self.is_closed() {
            return Vec::new();
        }
        self.plugin_servers.statuses()
    }

    /// Returns the warnings about MCP servers of plugins, each a sentence: servers that are not used or
    /// ended, omitted tools, and values that the program did not give. Also in
    /// [`InstructionText::warnings`](crate::InstructionText::warnings).
    #[must_use]
    pub fn mcp_server_warnings(&self) -> Vec<String> {
        self.plugin_servers.warnings()
    }
}
