//! Servers for the host of a model: lines of JSON, and MCP. They run on Linux, macOS and Windows; only
//! directories of this machine need Linux.

pub(crate) mod call;
pub(crate) mod local;
pub mod mcp;
