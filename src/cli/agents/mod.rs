//! Commands that give agents and models the skills, and the flags of their sessions.

pub mod mcp;
pub mod mcp_servers;
pub mod prompt;
pub mod session_args;
pub mod sites_args;
