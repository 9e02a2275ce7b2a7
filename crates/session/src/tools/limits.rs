//! Limits of custom tools. [`ToolRegistry::register`](super::ToolRegistry::register) rejects a tool
//! that exceeds a limit, and a call that exceeds a limit has an error as its result.

use std::time::Duration;

/// Tools of a registry: the number that model platforms accept next to their own tools.
pub const MAX_TOOLS: usize = 128;
/// Bytes of a name, and of a namespace: the limit of model platforms.
pub const MAX_NAME_BYTES: usize = 64;
/// Bytes of a description of a tool or of its result.
pub const MAX_DESCRIPTION_BYTES: usize = 4 << 10;
/// Bytes of a JSON Schema: a model reads the schema at each turn.
pub const MAX_SCHEMA_BYTES: usize = 16 << 10;
/// Levels of nesting of a schema and of arguments, as for every document that caproot reads.
pub const MAX_DEPTH: usize = 64;
/// Bytes of a call's arguments, as JSON.
pub const MAX_ARGUMENT_BYTES: usize = 1 << 20;
/// Default time limit of a call.
pub const DEFAULT_TIME_LIMIT: Duration = Duration::from_mins(1);
/// Longest time limit of a tool.
pub const MAX_TIME_LIMIT: Duration = Duration::from_hours(24);
/// Concurrent calls of one session.
pub const MAX_CONCURRENT_CALLS: usize = 64;
/// How long a call waits for a permit.
pub const PERMIT_TIMEOUT: Duration = Duration::from_secs(30);
