//! Limits of a site. A list that exceeds a limit ends there, a skill that exceeds a limit is omitted,
//! both with a warning, and a read that exceeds a limit is an error.

pub use crate::sources::remote::limits::{
    MAX_DESCRIPTION_CHARS, MAX_FILE_BYTES, MAX_SKILLS, MIN_RETRY_DELAY, READ_TIMEOUT,
    RELIST_INTERVAL, SMALL_FILE_BYTES, START_TIMEOUT,
};
use std::time::Duration;

/// Bytes of an index.
pub const MAX_INDEX_BYTES: usize = 4 << 20;
/// Redirects of one request, all to the same host.
pub const MAX_REDIRECTS: usize = 3;
/// Time limit of a connection attempt.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit of the index.
pub const INDEX_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest delay after a failed request of the index.
pub const MAX_RETRY_DELAY: Duration = Duration::from_mins(1);
