#![doc = include_str!("../README.md")]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "caproot runs on Linux only: it opens files beneath O_PATH descriptors and watches by inotify"
);

pub mod app;
pub mod bearer;
pub mod certs;
pub mod check;
pub mod cli;
pub mod client;
pub mod config;
pub mod disk;
pub mod domain;
pub mod endpoint;
pub mod keeper;
pub mod locate;
#[cfg(feature = "mcp")]
pub mod mcp;
pub mod proto;
pub mod rpc;
pub mod sandbox;
pub mod telemetry;
pub mod watch;
