//! Changes of a tree: what the watcher finds, and the events of the stream that tells them.

mod convergence;
mod degraded;
mod flapping_dirs;
mod fresh_lists;
mod hard_links;
mod links;
mod mounts;
mod polling;
pub(crate) mod random_walk;
mod readiness;
mod root;
mod simulated_hour;
mod skill_changes;
mod sought_files;
mod stream_readers;
mod streams;
mod unannounced;
