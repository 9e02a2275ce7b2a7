//! What the host of a model holds: the server of lines of JSON, and the MCP server.

pub(crate) mod call;
pub mod mcp;
