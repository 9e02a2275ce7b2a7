//! Parsers: the text of files to the types of `model`. The parsers do no I/O; each has limits on time
//! and memory.

#[cfg(feature = "daemon")]
pub(crate) mod budget;
pub mod document;
#[cfg(any(feature = "daemon", feature = "mcp"))]
pub mod fences;
#[cfg(feature = "daemon")]
mod fields;
#[cfg(feature = "daemon")]
pub mod frontmatter;
#[cfg(feature = "daemon")]
pub mod json;
#[cfg(feature = "daemon")]
pub mod manifest;
#[cfg(target_os = "linux")]
pub(crate) mod mountinfo;
#[cfg(feature = "daemon")]
pub(crate) mod names;
#[cfg(feature = "daemon")]
pub mod plugin;
pub(crate) mod position;
#[cfg(feature = "daemon")]
pub(crate) mod secret_filter;
#[cfg(feature = "daemon")]
pub mod sidecar;
pub mod similar;
#[cfg(feature = "daemon")]
mod value_seed;
#[cfg(feature = "daemon")]
pub mod yaml;
#[cfg(feature = "daemon")]
pub mod yaml_repair;
