//! What bounds a server. Each bound is a row of README; here is why it is what it is.

use std::time::Duration;

/// Pages of one listing; a server that pages for ever ends here.
pub const MAX_PAGES: usize = 64;
/// Bytes of a listing, as JSON.
pub const MAX_LISTING_BYTES: usize = 4 << 20;
/// Skills of a listing.
pub const MAX_SKILLS: usize = 5_000;
/// Files of a skill: what the standard says.
pub const MAX_SKILL_FILES: usize = 512;
/// Bytes of all files of a skill: what the standard says.
pub const MAX_SKILL_BYTES: u64 = 16 << 20;
/// Bytes of a file that is read: it is held whole to be verified.
pub const MAX_FILE_BYTES: u64 = 1 << 20;
/// Verified files that are held, so that their next page costs no whole file.
pub const MAX_CACHED_FILES: usize = 4;
/// Bytes of one message of a server: a file in base64, or a page of a listing.
pub const MAX_MESSAGE_BYTES: usize = 6 << 20;
/// Bytes of a URI.
pub const MAX_URI_BYTES: usize = 1_900;
/// How long reading a file may take, where nobody says.
pub const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the first list is waited for, where nobody says.
pub const START_TIMEOUT: Duration = Duration::from_secs(5);
/// How long connecting may take.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a page of a listing may take: a server may hash all its files for it.
pub const PAGE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long all pages of it may take.
pub const LIST_TIMEOUT: Duration = Duration::from_mins(2);
/// How often a list is asked for where nothing says that it changed.
pub const RELIST_INTERVAL: Duration = Duration::from_mins(5);
/// The least time between two lists, however often a server says that it changed.
pub const MIN_RETRY_DELAY: Duration = Duration::from_secs(1);
/// The longest time between two attempts to connect.
pub const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);
