//! Limits of the MCP server, with their reasons. `docs/orchestrate/mcp.md` describes the effect of
//! each limit.

use std::time::Duration;

/// JSON bytes of the items of one response. Some clients reject events of 1 MiB.
pub const MAX_PAGE_BYTES: usize = 640 << 10;
/// JSON bytes of one skill in `skills/list`. An entry is never truncated, so it must fit a page.
pub const MAX_ENTRY_BYTES: usize = 512 << 10;
/// Skills that one page of `skills/list` examines, and resources on a page of `resources/list`.
pub const MAX_PAGE_ITEMS: usize = 500;
/// Time after which a page of `skills/list` ends early.
pub const MAX_PAGE_TIME: Duration = Duration::from_secs(10);
/// Files of a skill in `skills/list`: the limit of the standard.
pub const MAX_SKILL_FILES: usize = 512;
/// Bytes of all files of a skill in `skills/list`: the limit of the standard.
pub const MAX_SKILL_BYTES: u64 = 16 << 20;
/// Bytes of a file that is read beside others: 683 KiB in base64. Also of a prompt.
pub const SMALL_FILE_BYTES: usize = 512 << 10;
/// Bytes of a file: the limit of a whole skill in the standard. One larger than [`SMALL_FILE_BYTES`] is in
/// memory at a time.
pub const MAX_FILE_BYTES: usize = 16 << 20;
/// How long a read of a large file waits until the hosts have read the large files before.
pub const LARGE_FILE_TIMEOUT: Duration = Duration::from_mins(1);
/// Files of a package whose directories are listed.
pub const MAX_WALKED_FILES: usize = 10_000;
/// Bytes of a URI that is looked up. Every served URI is shorter.
pub const MAX_URI_BYTES: usize = 4 << 10;
/// Calls that run concurrently.
pub const MAX_CALLS: usize = 32;
/// Calls that run or wait for a permit.
pub const MAX_WAITING_CALLS: usize = 256;
/// Requests on stdio that were read and whose response was not yet written.
pub const MAX_STDIO_REQUESTS: usize = 64;
/// Concurrent `subscriptions/listen`: fewer than the requests, so that other requests get through.
pub const MAX_LISTENS: usize = 32;
/// URIs in one `subscriptions/listen`, and URIs of one session with `resources/subscribe`.
pub const MAX_SUBSCRIBED_URIS: usize = 1_000;
/// Bytes of a request.
pub const MAX_REQUEST_BYTES: usize = 256 << 10;
/// Minimum time between two notifications that the tools changed: hosts fetch the list again, and a
/// model's cached prompt ends with each change.
pub const MIN_TOOL_LIST_INTERVAL: Duration = Duration::from_secs(10);
/// How long `initialize` and each list wait for the first list of a daemon that accepts the connection.
/// The instructions cannot change later, and many hosts request a list once, at their start.
pub const FIRST_LIST_TIMEOUT: Duration = Duration::from_millis(500);
/// How long the body of an HTTP request may take.
pub const REQUEST_BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a host may take none of the bytes that the server writes.
pub const HOST_READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Connections over HTTP.
pub const MAX_CONNECTIONS: usize = 128;
/// HTTP sessions of clients of the older protocol. Beyond the limit, a new session is refused.
pub const MAX_SESSIONS: usize = 64;
/// How long an HTTP session may have no request.
pub const SESSION_IDLE_TIMEOUT: Duration = Duration::from_mins(10);
/// How long a call waits for the catalog while the daemon is being connected.
pub const CATALOG_TIMEOUT: Duration = Duration::from_secs(10);
