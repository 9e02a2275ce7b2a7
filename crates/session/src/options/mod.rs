//! Settings of a session, which never change while the session lives: limits and names, the choice
//! of skills, and the servers of plugins.
//!
//! Begin with `session_options`.

pub mod choice;
#[cfg(feature = "mcp")]
pub mod server_options;
pub mod session_options;

pub use choice::{ChoiceRule, ChoiceRuleError, SkillChoice};
#[cfg(feature = "mcp")]
pub use server_options::{McpServerChoice, McpServerOptions, ServerValueRequest, ServerValues};
pub use session_options::SessionOptions;
