//! Limits of the MCP servers of plugins. If a limit is exceeded, a warning says so, and the session
//! goes on.

use std::time::Duration;

/// Servers of a session.
pub const MAX_SERVERS: usize = 32;
/// Tools of all servers of a session.
pub const MAX_SERVER_TOOLS: usize = 64;
/// Bytes of the definitions of all tools of servers, as JSON: a model reads them at each turn.
pub const MAX_DEFINITION_BYTES: usize = 64 << 10;
/// Tools that are read from the list of one server.
pub const MAX_LISTED_TOOLS: usize = 1_000;
/// Bytes of a namespace: with a tool's name, a flat name has at most 64.
pub const MAX_NAMESPACE_BYTES: usize = 40;
/// Concurrent calls of one server.
pub const MAX_SERVER_CALLS: usize = 8;
/// Longest time limit of a call.
pub const MAX_CALL_TIME: Duration = Duration::from_mins(10);
/// Time limit of a connection and of the list of tools, if the declaration has none.
pub const DEFAULT_STARTUP_TIME: Duration = Duration::from_secs(10);
/// Longest time limit of a connection and of the list of tools.
pub const MAX_STARTUP_TIME: Duration = Duration::from_secs(30);
/// Time limit of all values of a server that the program gives.
pub const VALUE_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of a value that the program gives.
pub const MAX_VALUE_BYTES: usize = 8 << 10;
/// Bytes of the text of one result that are stored.
pub const MAX_TEXT_BYTES: usize = 1 << 20;
/// Bytes of the stored texts of a session, the most recent first.
pub const MAX_STORED_BYTES: usize = 4 << 20;
/// Images of a result.
pub const MAX_IMAGES: usize = 16;
