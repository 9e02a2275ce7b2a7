//! What bounds own tools. Each bound is a row of README; here is why it is what it is.

use std::time::Duration;

/// Tools in a catalog: what model platforms take beside others.
pub const MAX_TOOLS: usize = 128;
/// Bytes of a name, and of a namespace: what model platforms take.
pub const MAX_NAME_BYTES: usize = 64;
/// Bytes of a description, of the tool or of what it gives.
pub const MAX_DESCRIPTION_BYTES: usize = 4 << 10;
/// Bytes of a JSON Schema: a model reads it at each of its turns.
pub const MAX_SCHEMA_BYTES: usize = 16 << 10;
/// Levels of nesting of a schema and of arguments, as in all that this crate reads.
pub const MAX_DEPTH: usize = 64;
/// Bytes of a call's arguments, as JSON.
pub const MAX_ARGUMENT_BYTES: usize = 1 << 20;
/// How long a call may take where its tool does not say.
pub const DEFAULT_TIME_LIMIT: Duration = Duration::from_mins(1);
/// The longest that a tool may say.
pub const MAX_TIME_LIMIT: Duration = Duration::from_hours(24);
/// Calls of one session that run at once.
pub const MAX_CONCURRENT_CALLS: usize = 64;
/// How long a call waits until fewer run.
pub const PERMIT_TIMEOUT: Duration = Duration::from_secs(30);
