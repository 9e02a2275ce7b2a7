//! The daemon: all that looks at the files of an executor. It needs Linux, because it opens files beneath
//! `O_PATH` descriptors and watches directories by inotify. The documentation of the crate has the way
//! of a call, of a change and of a read through these modules.

pub mod catalog;
pub mod config;
pub mod fs;
pub mod grpc;
pub mod local_source;
pub mod model;
pub mod parse;
pub mod readiness;
pub mod sandbox;
pub mod scan;
pub mod server;
pub mod telemetry;
pub mod watch;
