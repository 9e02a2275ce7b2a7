#![doc = include_str!("../README.md")]

#[cfg(not(target_os = "linux"))]
compile_error!("caproot needs Linux: openat2, and later inotify and Landlock");

pub mod app;
pub mod config;
pub mod disk;
pub mod domain;
pub mod endpoint;
pub mod keeper;
pub mod proto;
pub mod rpc;
