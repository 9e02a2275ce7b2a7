//! Commands that run a daemon or a link on this machine.

pub mod config;
pub mod config_check;
mod daemon_signals;
pub mod link;
pub mod serve;
