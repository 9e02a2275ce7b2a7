//! Commands that ask daemons for what they serve.

#[cfg(target_os = "linux")]
pub mod exec;
pub mod list;
pub mod plugins;
pub mod read;
pub mod report;
pub mod resolve;
pub mod resources;
pub mod search;
pub mod status;
pub mod watch;
