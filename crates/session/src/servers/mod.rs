//! HTTP MCP servers that plugins declare, as tools of a session. A plugin's author is neither the user
//! nor the program: URLs, names, schemas and results are hostile until they are checked, and every
//! size and time has a limit.
//!
//! Begin with `server_set`, which starts the servers of a session. `server` connects to one of them.

mod declaration;
pub mod limits;
mod result_store;
mod server;
mod server_set;
mod tool_table;

pub use server_set::{McpServerStatus, PluginServerSet, ServerStart};
