//! Commands of the binary, run as processes: their output, their exit codes and their files.

mod check;
mod client_commands;
mod fleet;
mod pull;
mod skill_names;
pub(crate) mod terminal;
mod watch;
