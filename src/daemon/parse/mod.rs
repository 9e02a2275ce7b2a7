//! Parsers: the text of files to the types of `model`. The parsers do no I/O; each has limits on time
//! and memory.

pub(crate) mod budget;
mod fields;
pub mod frontmatter;
pub mod json;
pub(crate) mod key_position;
pub mod manifest;
pub mod misread_text;
pub(crate) mod names;
pub mod plugin;
pub(crate) mod secret_filter;
pub mod sidecar;
mod value_seed;
pub mod yaml;
pub mod yaml_repair;
