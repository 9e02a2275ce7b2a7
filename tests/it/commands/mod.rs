//! Commands of the binary, run as processes: their output, their exit codes and their files.

mod agent_log;
mod check;
mod client_commands;
mod exec;
mod fleet;
mod lock;
mod prompt;
mod pull;
mod search;
mod skill_names;
pub(crate) mod terminal;
mod watch;
