#![doc = include_str!("../README.md")]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "caproot runs on Linux only: it opens files beneath O_PATH descriptors and watches by inotify"
);

#[cfg(feature = "daemon")]
pub mod bearer;
#[cfg(feature = "daemon")]
pub mod catalog;
pub mod certs;
#[cfg(feature = "daemon")]
pub mod check;
#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "daemon")]
pub mod config;
#[cfg(feature = "daemon")]
pub mod disk;
#[cfg(feature = "daemon")]
pub mod domain;
pub mod endpoint;
#[cfg(feature = "daemon")]
pub mod file_watch;
#[cfg(feature = "daemon")]
pub mod grpc;
#[cfg(any(feature = "client", feature = "daemon"))]
mod hidden_chars;
#[cfg(feature = "mcp")]
pub mod host;
#[cfg(all(feature = "client", feature = "daemon"))]
pub mod local;
#[cfg(feature = "daemon")]
pub mod locate;
#[cfg(feature = "mcp")]
pub mod mcp;
pub mod proto;
#[cfg(feature = "daemon")]
pub mod sandbox;
#[cfg(feature = "daemon")]
pub mod server;
#[cfg(feature = "client")]
pub mod session;
#[cfg(feature = "daemon")]
pub mod telemetry;
#[cfg(feature = "daemon")]
pub mod watch;
#[cfg(any(feature = "client", feature = "daemon"))]
mod yaml_document;
