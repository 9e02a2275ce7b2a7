//! caproot: an executor's skills and plugins, served over gRPC to an orchestrator that has no
//! filesystem.

#[cfg(not(target_os = "linux"))]
compile_error!("caproot runs on Linux only: it relies on openat2, inotify and SO_PEERCRED");

pub mod app;
pub mod cli;
pub mod client;
pub mod config;
pub mod domain;
pub mod endpoint;
pub mod proto;
