//! What the host of a model holds: the server of lines of JSON, and the MCP server. Both follow sources of
//! skills and run on Linux, macOS and Windows; only directories of this machine need Linux.

pub(crate) mod call;
pub mod mcp;
#[cfg(not(target_os = "linux"))]
mod no_local_source;

#[cfg(target_os = "linux")]
pub(crate) use crate::daemon::{
    config::RootPreset,
    local_source::{LocalDirectories, LocalSource},
};
#[cfg(not(target_os = "linux"))]
pub(crate) use no_local_source::{LocalDirectories, LocalSource, RootPreset};
