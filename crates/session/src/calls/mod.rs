//! Calls of the tools `skills.list`, `skills.read` and `skills.search`, from the arguments of a
//! model to a result within its limit.
//!
//! Begin with `tool_call`, which finds the tool. `package_lookup` finds the skill, and `read` its
//! file.

pub mod files;
pub mod fitting;
pub mod package_lookup;
pub mod read;
pub mod search_tool;
#[cfg(feature = "mcp")]
pub mod server_tools;
pub mod tool_call;
pub mod whole_reads;

pub use whole_reads::ListedSkill;
