//! `caproot mcp` from a host's side: the real binary, over stdio and HTTP, with a real daemon.

mod daemon_restart;
mod host;
mod http;
mod invalid_requests;
mod notifications;
mod paging;
mod prompts;
mod response_limits;
mod session;
mod tools;

use caproot::mcp::limits;

use crate::readme::{table, ticked};

#[test]
fn the_readme_lists_every_limit() {
    let seconds = |span: std::time::Duration| humantime::format_duration(span).to_string();
    let number = |number: usize| number.to_string();
    let real = [
        ("MAX_PAGE_BYTES", number(limits::MAX_PAGE_BYTES)),
        ("MAX_PAGE_ITEMS", number(limits::MAX_PAGE_ITEMS)),
        ("MAX_PAGE_TIME", seconds(limits::MAX_PAGE_TIME)),
        ("MAX_SKILL_FILES", number(limits::MAX_SKILL_FILES)),
        ("MAX_SKILL_BYTES", limits::MAX_SKILL_BYTES.to_string()),
        ("MAX_ENTRY_BYTES", number(limits::MAX_ENTRY_BYTES)),
        ("MAX_FILE_BYTES", number(limits::MAX_FILE_BYTES)),
        ("MAX_WALKED_FILES", number(limits::MAX_WALKED_FILES)),
        ("MAX_URI_BYTES", number(limits::MAX_URI_BYTES)),
        ("MAX_SKILLS", number(limits::MAX_SKILLS)),
        ("MAX_CATALOG_BYTES", number(limits::MAX_CATALOG_BYTES)),
        ("MAX_REQUEST_BYTES", number(limits::MAX_REQUEST_BYTES)),
        ("MAX_CALLS", number(limits::MAX_CALLS)),
        ("MAX_WAITING_CALLS", number(limits::MAX_WAITING_CALLS)),
        ("MAX_STDIO_REQUESTS", number(limits::MAX_STDIO_REQUESTS)),
        ("MAX_LISTENS", number(limits::MAX_LISTENS)),
        ("MAX_SUBSCRIBED_URIS", number(limits::MAX_SUBSCRIBED_URIS)),
        ("MAX_CONNECTIONS", number(limits::MAX_CONNECTIONS)),
        ("MAX_SESSIONS", number(limits::MAX_SESSIONS)),
        ("SESSION_IDLE_TIMEOUT", seconds(limits::SESSION_IDLE_TIMEOUT)),
        ("CATALOG_TIMEOUT", seconds(limits::CATALOG_TIMEOUT)),
    ];
    let rows = table("| bound of `caproot mcp` | is | beyond |").into_iter();
    let rows: Vec<_> =
        rows.map(|row| (ticked(&row[0]).concat(), row[1].replace(',', ""))).collect();
    assert_eq!(rows, real.map(|(name, value)| (name.to_owned(), value)));
    // A new limit that is missing in this list has no row in README either.
    let source = include_str!("../../../src/mcp/limits.rs");
    assert_eq!(source.matches("pub const ").count(), rows.len());
}
