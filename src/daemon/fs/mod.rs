//! Files below allowed directories: the only module that resolves, opens, reads and replaces them. All
//! functions block, except [`read_page_cached`].

pub(crate) mod allowed_dirs;
mod approved_page;
mod cached_read;
mod configured_dirs;
mod confined_lookup;
pub(crate) mod content;
mod digest_cache;
pub(crate) mod dirs_snapshot;
pub(crate) mod disabled_skills;
pub(crate) mod file_head;
mod file_list;
mod file_page;
pub(crate) mod filesystem_types;
mod link_dirs;
mod open_beneath;
pub(crate) mod open_file;
mod package;
mod package_comparison;
mod package_files;
pub mod package_walk;
mod page_bytes;
pub(crate) mod path_resolution;
pub(crate) mod replace_file;

pub use allowed_dirs::{AllowedDirs, ResolvedRootDir};
pub use cached_read::read_page_cached;
pub use dirs_snapshot::{AllowedDirsSnapshot, ResolveError};
pub use disabled_skills::DisabledSkills;
pub use file_list::{FileListPage, FileListRequest, ListedFile, list_files};
pub use file_page::{FilePage, FilePageRequest, FileReadError, PageBody, ReadCaches, read_page};
pub use open_beneath::OpenMethod;
pub use open_file::{LinkText, read_source};
pub use package::ReadRules;
pub use package_comparison::{
    ApprovedVersion, KnownFileDigest, KnownFiles, MatchedVersion, PackageComparison,
    PackageComparisonRequest, PackageDifference, ReadBudget, compare_package,
};
pub use package_files::PackageObserver;
pub use page_bytes::PageBytes;
