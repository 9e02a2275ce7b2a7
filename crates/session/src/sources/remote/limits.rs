//! Limits of all remote servers.

use std::time::Duration;

/// Skills of a list.
pub const MAX_SKILLS: usize = 5_000;
/// Characters of a description; a longer one is truncated.
pub const MAX_DESCRIPTION_CHARS: usize = 1_024;
/// Bytes of a file that is fetched beside others.
pub const SMALL_FILE_BYTES: u64 = 1 << 20;
/// Bytes of a file: the limit of a whole skill in the specification of MCP.
pub const MAX_FILE_BYTES: u64 = 16 << 20;
/// Bytes of the cached verified files of a server, so that the next page does not need a fetch of the
/// whole file.
pub const MAX_CACHED_BYTES: usize = 8 << 20;
/// Remembered skills that a server serves and does not list.
pub const MAX_UNLISTED_SKILLS: usize = 64;
/// Default time limit of a read.
pub const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// Default time limit of the first list.
pub const START_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between two lists without a notification.
pub const RELIST_INTERVAL: Duration = Duration::from_mins(5);
/// Shortest delay between two lists, and between two connection attempts.
pub const MIN_RETRY_DELAY: Duration = Duration::from_secs(1);
