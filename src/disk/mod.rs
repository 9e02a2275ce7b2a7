//! Files below roots: the only module that resolves, opens, lists and reads them. All functions
//! block, except [`read_page_cached`].

mod allowed_dirs;
mod cached_read;
mod cancellation;
mod catalog_builder;
mod configured_dirs;
mod content;
mod digest_cache;
mod dir_lister;
mod dir_watcher;
mod dirs_snapshot;
mod disabled_skills;
mod file_list;
mod file_page;
mod filesystem_types;
mod fingerprint;
mod namespaces;
mod open_beneath;
mod open_file;
mod package;
mod page_bytes;
mod parallel_list;
mod path_resolution;
mod plugin_dir;
mod plugin_reader;
mod plugin_set;
mod root_index;
mod root_watches;
mod scan_progress;
mod scanned_dir;
mod scanned_root;

pub use allowed_dirs::{AllowedDirs, ResolvedRootDir};
pub use cached_read::read_page_cached;
pub use cancellation::{CancelGuard, CancelToken};
pub use digest_cache::DigestCache;
pub use dir_watcher::{DirWatcher, NoDirWatcher, WatchGuard};
pub use dirs_snapshot::{AllowedDirsSnapshot, ResolveError};
pub use disabled_skills::DisabledSkills;
pub use file_list::{FileListPage, FileListRequest, ListedFile, list_files};
pub use file_page::{FilePage, FilePageRequest, FileReadError, PageBody, read_page};
pub use open_beneath::OpenMethod;
pub use open_file::read_source;
pub use package::{ReadRules, locate_resource};
pub use page_bytes::PageBytes;
pub use root_index::{DirtyDirs, RootIndex, ScanOutcome, ScanTarget, scan_root};
pub use scan_progress::ScanProgress;
