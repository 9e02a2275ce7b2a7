//! Discovery of skills and plugins below one root: the scan of its directories, and the index that keeps
//! the result up to date. All functions block.

mod catalog_builder;
mod dir_lister;
mod dir_watcher;
mod fingerprint;
pub mod listing;
mod namespaces;
mod parallel_list;
mod plugin_dir;
mod plugin_reader;
mod plugin_set;
mod root_index;
mod root_watches;
mod scan_progress;
mod scanned_dir;
mod scanned_root;
pub mod search;

pub use dir_watcher::{DirWatcher, NoDirWatcher, WatchGuard};
pub use root_index::{DirtyDirs, RootIndex, ScanOutcome, ScanTarget, scan_root};
pub use scan_progress::ScanProgress;
