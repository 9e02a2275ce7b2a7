//! Limits of a site. A list that exceeds a limit ends there, a skill that exceeds a limit is omitted,
//! both with a warning, and a read that exceeds a limit is an error.

pub use crate::session::sources::large_file::{MAX_FILE_BYTES, SMALL_FILE_BYTES};
use std::time::Duration;

/// Bytes of an index.
pub const MAX_INDEX_BYTES: usize = 4 << 20;
/// Skills of an index.
pub const MAX_SKILLS: usize = 5_000;
/// Characters of a description; a longer one is truncated.
pub const MAX_DESCRIPTION_CHARS: usize = 1_024;
/// Redirects of one request, all to the same host.
pub const MAX_REDIRECTS: usize = 3;
/// Time limit of a connection attempt.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Default time limit of a read.
pub const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit of the index.
pub const INDEX_TIMEOUT: Duration = Duration::from_secs(30);
/// Default time limit of the first list.
pub const START_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between two requests of the index.
pub const RELIST_INTERVAL: Duration = Duration::from_mins(5);
/// Shortest delay between two requests of the index.
pub const MIN_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Longest delay after a failed request of the index.
pub const MAX_RETRY_DELAY: Duration = Duration::from_mins(1);
