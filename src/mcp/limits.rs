//! What bounds the server. Each bound is a row of README; here is why it is what it is.

use std::time::Duration;

/// Bytes of one answer's items, as JSON. Some clients take no event of 1 MiB.
pub const MAX_PAGE_BYTES: usize = 640 << 10;
/// Bytes of one skill in `skills/list`, as JSON; it is never cut, so it must fit a page.
pub const MAX_ENTRY_BYTES: usize = 512 << 10;
/// Skills that one page of `skills/list` looks at, and resources on a page of `resources/list`.
pub const MAX_PAGE_ITEMS: usize = 500;
/// After so long a page of `skills/list` ends where it is.
pub const MAX_PAGE_TIME: Duration = Duration::from_secs(10);
/// Files of a skill in `skills/list`: what the standard says.
pub const MAX_SKILL_FILES: usize = 512;
/// Bytes of all files of a skill in `skills/list`: what the standard says.
pub const MAX_SKILL_BYTES: u64 = 16 << 20;
/// Bytes of a file that is read: 683 KiB in base64.
pub const MAX_FILE_BYTES: usize = 512 << 10;
/// Files of a package whose directories are listed.
pub const MAX_WALKED_FILES: usize = 10_000;
/// Bytes of a URI that is looked up; the longest that is served is shorter.
pub const MAX_URI_BYTES: usize = 4 << 10;
/// Skills that are held, of all roots together.
pub const MAX_SKILLS: usize = 100_000;
/// Bytes of text that are held, of all skills together: mostly frontmatter.
pub const MAX_CATALOG_BYTES: usize = 64 << 20;
/// Calls that are answered at once.
pub const MAX_CALLS: usize = 32;
/// Calls that are answered or wait for their turn.
pub const MAX_WAITING_CALLS: usize = 256;
/// Requests on stdio that were read and whose answers are not yet taken.
pub const MAX_STDIO_REQUESTS: usize = 64;
/// `subscriptions/listen` that go on at once; fewer than requests, so that others get through.
pub const MAX_LISTENS: usize = 32;
/// URIs in one `subscriptions/listen`, and of one session with `resources/subscribe`.
pub const MAX_SUBSCRIBED_URIS: usize = 1_000;
/// Bytes of a request.
pub const MAX_REQUEST_BYTES: usize = 256 << 10;
/// Connections over HTTP.
pub const MAX_CONNECTIONS: usize = 128;
/// Sessions of older clients over HTTP; beyond, the oldest ends.
pub const MAX_SESSIONS: usize = 64;
/// How long such a session may say nothing.
pub const SESSION_IDLE_TIMEOUT: Duration = Duration::from_hours(1);
/// How long a call waits for the catalog, while the daemon is being connected to.
pub const CATALOG_TIMEOUT: Duration = Duration::from_secs(10);
