//! Settings of a session, which never change while the session lives: limits and names, the choice
//! of skills, and the servers of plugins.
//!
//! Begin with `session_options`.

pub mod choice;
#[cfg(feature = "mcp")]
pub mod server_options;
pub mod session_options;
