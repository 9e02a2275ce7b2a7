//! README's table of the limits of an MCP source agrees with the code.

use caproot::host::limits;

use crate::readme::{table, ticked};

#[test]
fn readme_lists_the_limits_of_an_mcp_source() {
    let span = |span| humantime::format_duration(span).to_string();
    let number = |number: usize| number.to_string();
    let actual = [
        ("MAX_PAGES", number(limits::MAX_PAGES)),
        ("MAX_LISTING_BYTES", number(limits::MAX_LISTING_BYTES)),
        ("MAX_SKILLS", number(limits::MAX_SKILLS)),
        ("MAX_SKILL_FILES", number(limits::MAX_SKILL_FILES)),
        ("MAX_SKILL_BYTES", limits::MAX_SKILL_BYTES.to_string()),
        ("MAX_FILE_BYTES", limits::MAX_FILE_BYTES.to_string()),
        ("MAX_CACHED_FILES", number(limits::MAX_CACHED_FILES)),
        ("MAX_MESSAGE_BYTES", number(limits::MAX_MESSAGE_BYTES)),
        ("MAX_URI_BYTES", number(limits::MAX_URI_BYTES)),
        ("READ_TIMEOUT", span(limits::READ_TIMEOUT)),
        ("START_TIMEOUT", span(limits::START_TIMEOUT)),
        ("CONNECT_TIMEOUT", span(limits::CONNECT_TIMEOUT)),
        ("PAGE_TIMEOUT", span(limits::PAGE_TIMEOUT)),
        ("LIST_TIMEOUT", span(limits::LIST_TIMEOUT)),
        ("RELIST_INTERVAL", span(limits::RELIST_INTERVAL)),
        ("MIN_RETRY_DELAY", span(limits::MIN_RETRY_DELAY)),
        ("MAX_RETRY_DELAY", span(limits::MAX_RETRY_DELAY)),
    ];
    let documented = table("| bound of an MCP source | is | beyond |").into_iter();
    let documented: Vec<_> =
        documented.map(|row| (ticked(&row[0]).concat(), row[1].replace(',', ""))).collect();
    assert_eq!(documented, actual.map(|(name, value)| (name.to_owned(), value)));
    let source = include_str!("../../../../src/host/limits.rs");
    assert_eq!(source.matches("pub const ").count(), documented.len());
}
