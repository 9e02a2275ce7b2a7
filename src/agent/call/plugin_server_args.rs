//! Flags of `caproot call` for the MCP servers of plugins.

use caproot_session::{McpServerChoice, McpServerOptions};
use clap::Args;

/// Word that chooses all servers.
const ALL_SERVERS: &str = "all";

/// Flags of the MCP servers of plugins.
#[derive(Debug, Args)]
pub struct PluginServerArgs {
    /// Also the tools of this HTTP MCP server of a plugin of the session: its handle, such as
    /// `skill://a/p#tracker`, or PLUGIN/SERVER or PLUGIN if only one server fits; or all. The names of the
    /// tools begin with `mcp__PLUGIN__SERVER`. Can be repeated
    #[arg(long, value_name = "NAME")]
    plugin_servers: Vec<String>,
    /// Allow this origin of a plugin's MCP server, although its address is not globally routable, such
    /// as `https://mcp.internal.example`. Only such an origin may be http, on a loopback address. Can be
    /// repeated
    #[arg(long, value_name = "ORIGIN")]
    private_origin: Vec<String>,
}

impl PluginServerArgs {
    /// Returns whether a server is chosen.
    pub fn is_chosen(&self) -> bool {
        !self.plugin_servers.is_empty()
    }

    /// Returns the options of sessions. The servers get no values of the program.
    pub fn options(&self) -> McpServerOptions {
        McpServerOptions {
            servers: choose_servers(self.plugin_servers.clone()),
            private_origins: self.private_origin.clone(),
            ..McpServerOptions::default()
        }
    }
}

/// Returns the servers with these names.
pub fn choose_servers(names: Vec<String>) -> McpServerChoice {
    if names.is_empty() {
        McpServerChoice::None
    } else if names == [ALL_SERVERS] {
        McpServerChoice::All
    } else {
        McpServerChoice::Named(names)
    }
}
