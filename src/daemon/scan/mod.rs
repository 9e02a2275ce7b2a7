//! Discovery of skills and plugins below one root: the scan of its directories, and the index that keeps
//! the result up to date. All functions block.

mod catalog_builder;
mod dir_lister;
mod file_problem;
mod namespaces;
mod package_verifier;
mod parallel_list;
mod plugin_contents;
mod plugin_dir;
mod plugin_reader;
mod plugin_set;
mod root_index;
mod scan_progress;
mod scanned_dir;
mod scanned_root;
pub mod search;
mod unreported;
mod watches;
mod worktree;

pub(crate) use file_problem::link_problem;
pub use root_index::{DirtyDirs, HeldSkill, RootIndex, ScanOutcome, scan_root};
pub use scan_progress::ScanProgress;
pub use scanned_dir::{DirListing, DirToScan, ListingEntry, ListingEntryKind, REPAIR_DELAY};
pub use scanned_root::ScanTarget;
pub use watches::{DirWatcher, NoDirWatcher, PathRole, WatchGuard, WatchedEntries};
