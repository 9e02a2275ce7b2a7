//! Limits of an MCP server. A list that exceeds a limit ends there, a skill that exceeds a limit is
//! omitted, both with a warning, and a read that exceeds a limit is an error.

pub use crate::sources::remote::limits::{
    MAX_CACHED_BYTES, MAX_FILE_BYTES, MAX_SKILLS, MAX_UNLISTED_SKILLS, MIN_RETRY_DELAY,
    READ_TIMEOUT, RELIST_INTERVAL, SMALL_FILE_BYTES, START_TIMEOUT,
};
use std::time::Duration;

/// Pages of one list; a server may return pages without end.
pub const MAX_PAGES: usize = 64;
/// Bytes of a list, as JSON.
pub const MAX_LISTING_BYTES: usize = 4 << 20;
/// Files of a skill: the limit of the specification.
pub const MAX_SKILL_FILES: usize = 512;
/// Bytes of all files of a skill: the limit of the specification.
pub const MAX_SKILL_BYTES: u64 = 16 << 20;
/// Skills of a server whose files are listed in a manifest each.
pub const MAX_MANIFESTS: usize = 1_000;
/// Manifests that are requested at once.
pub const MAX_CONCURRENT_MANIFESTS: usize = 8;
/// Bytes of a manifest.
pub const MAX_MANIFEST_BYTES: u64 = 512 << 10;
/// Directories of a skill that one list of its files reads.
pub const MAX_DIRECTORIES: usize = 64;
/// Bytes of one message of a server: a file of 1 MiB, or a page of a list.
pub const MAX_MESSAGE_BYTES: usize = 6 << 20;
/// Bytes of a message while a large file is requested: 16 MiB in base64.
pub const MAX_LARGE_MESSAGE_BYTES: usize = 24 << 20;
/// Bytes of a URI.
pub const MAX_URI_BYTES: usize = 1_900;
/// Bytes of a token.
pub const MAX_TOKEN_BYTES: u64 = 8 << 10;
/// Time limit of a file, program or function that returns a token.
pub const TOKEN_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit of a connection attempt.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Time limit of a page of a list: a server may hash all its files for a page.
pub const PAGE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit of all pages of a list.
pub const LIST_TIMEOUT: Duration = Duration::from_mins(2);
/// Default age of a server's statement about a skill, up to which a read relies on the statement.
pub const MAX_AGE: Duration = Duration::from_secs(30);
/// Longest delay between two connection attempts.
pub const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);
