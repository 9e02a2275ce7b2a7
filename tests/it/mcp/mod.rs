//! `caproot mcp` as hosts meet it: the real binary, over stdio and HTTP, against a real daemon.

mod bounds;
mod changes;
mod host;
mod http;
mod lost;
mod paging;
mod prompts;
mod refusals;
mod session;
mod tools;

use caproot::mcp::limits;

use crate::readme::{table, ticked};

#[test]
fn the_readme_has_every_bound() {
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
    let said = table("| bound of `caproot mcp` | is | beyond |").into_iter();
    let said: Vec<_> =
        said.map(|row| (ticked(&row[0]).concat(), row[1].replace(',', ""))).collect();
    assert_eq!(said, real.map(|(name, value)| (name.to_owned(), value)));
    // One that is new and not in this list has no row either.
    let source = include_str!("../../../src/mcp/limits.rs");
    assert_eq!(source.matches("pub const ").count(), said.len());
}
