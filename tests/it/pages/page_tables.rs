//! Hand-written tables of the pages have the values of the code.

use std::time::Duration;

use caproot::agent::mcp;
use caproot::daemon::catalog::WatchTiming;
use caproot_client::MirrorSelection;
use caproot_core::json::MAX_TREE_MEMORY;
use caproot_session::sources::mcp::limits as source_limits;
use caproot_session::sources::site::limits as site_limits;

use crate::pages::modules::quoted_names;

const MCP_PAGE: &str = include_str!("../../../docs/orchestrate/mcp.md");
const MCP_SOURCES_PAGE: &str = include_str!("../../../docs/orchestrate/mcp-sources.md");
const SITES_PAGE: &str = include_str!("../../../docs/orchestrate/sites.md");
const WATCHING_PAGE: &str = include_str!("../../../docs/design/watching.md");

/// Cells of the rows of the one table of a page whose head begins with `head`.
fn table<'a>(page: &'a str, head: &str) -> Vec<Vec<&'a str>> {
    let line = format!("\n{head}");
    let mut heads = page.match_indices(&line);
    let (Some((at, _)), None) = (heads.next(), heads.next()) else {
        panic!("the page has one table {head}")
    };
    let rows = page[at + 1..]
        .lines()
        .take_while(|line| line.starts_with('|'))
        .skip(2);
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect())
        .collect()
}

#[test]
fn the_times_of_watching_are_the_defaults() {
    let WatchTiming {
        debounce,
        max_debounce,
        recheck_interval,
        poll_interval,
        full_scan_interval,
        overlay_scan_interval,
        idle_timeout,
        stuck_timeout,
        stalled_reader_timeout,
    } = WatchTiming::default();
    let actual = [
        ("debounce", debounce),
        ("max_debounce", max_debounce),
        ("repair_delay", caproot::daemon::scan::REPAIR_DELAY),
        ("recheck_interval", recheck_interval),
        ("poll_interval", poll_interval),
        ("full_scan_interval", full_scan_interval),
        ("overlay_scan_interval", overlay_scan_interval),
        ("idle_timeout", idle_timeout),
        ("stuck_timeout", stuck_timeout),
        ("stalled_reader_timeout", stalled_reader_timeout),
        ("drain_timeout", caproot::daemon::server::DRAIN_TIMEOUT),
    ];
    let span = |cell: &str| humantime::parse_duration(cell).expect("a duration");
    let written = table(WATCHING_PAGE, "| timing | default | is |").into_iter();
    let written: Vec<_> = written
        .map(|row| (quoted_names(row[0]).concat(), span(row[1])))
        .collect();
    assert_eq!(written, actual.map(|(name, span)| (name.to_owned(), span)));
}

/// Returns a number with commas.
fn number(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(str::from_utf8)
        .collect();
    groups
        .into_iter()
        .map(|group| group.expect("digits"))
        .collect::<Vec<_>>()
        .join(",")
}

fn count(number_of_items: usize) -> String {
    number(u64::try_from(number_of_items).expect("a small number"))
}

fn mebibytes(bytes: u64) -> String {
    assert_eq!(bytes % (1 << 20), 0);
    format!("{} MiB", bytes >> 20)
}

fn time(span: Duration) -> String {
    match span.as_secs() {
        seconds if seconds % 3600 == 0 => format!("{} h", seconds / 3600),
        seconds if seconds % 60 == 0 && seconds > 60 => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}

fn assert_rows(page: &str, head: &str, actual: &[(&str, String)]) {
    let written: Vec<_> = table(page, head)
        .into_iter()
        .map(|row| (row[0], row[1]))
        .collect();
    let actual: Vec<_> = actual
        .iter()
        .map(|(what, value)| (*what, value.as_str()))
        .collect();
    assert_eq!(written, actual);
}

#[test]
fn the_limits_of_the_mcp_server_are_those_of_the_code() {
    use mcp::limits::{
        CATALOG_TIMEOUT, FIRST_LIST_TIMEOUT, HOST_READ_TIMEOUT, MAX_CALLS, MAX_CONNECTIONS,
        MAX_ENTRY_BYTES, MAX_FILE_BYTES, MAX_LISTENS, MAX_PAGE_BYTES, MAX_PAGE_ITEMS,
        MAX_PAGE_TIME, MAX_REQUEST_BYTES, MAX_SESSIONS, MAX_SKILL_BYTES, MAX_SKILL_FILES,
        MAX_STDIO_REQUESTS, MAX_SUBSCRIBED_URIS, MAX_URI_BYTES, MAX_WAITING_CALLS,
        MAX_WALKED_FILES, REQUEST_BODY_TIMEOUT, SESSION_IDLE_TIMEOUT, SMALL_FILE_BYTES,
    };
    let bytes = |bytes| format!("{} bytes", count(bytes));
    let catalog_bytes = MirrorSelection::new(Vec::new()).max_bytes as u64;
    assert_rows(
        MCP_PAGE,
        "| limit | value | beyond |",
        &[
            (
                "page of a list",
                format!(
                    "{}, {} items, {}",
                    bytes(MAX_PAGE_BYTES),
                    MAX_PAGE_ITEMS,
                    time(MAX_PAGE_TIME)
                ),
            ),
            (
                "files of a skill",
                format!(
                    "{MAX_SKILL_FILES}, with {} in all",
                    mebibytes(MAX_SKILL_BYTES)
                ),
            ),
            ("entry in `skills/list`", bytes(MAX_ENTRY_BYTES)),
            (
                "file",
                format!(
                    "{}, one over {} at a time",
                    mebibytes(MAX_FILE_BYTES as u64),
                    bytes(SMALL_FILE_BYTES)
                ),
            ),
            ("SKILL.md of a prompt", bytes(SMALL_FILE_BYTES)),
            (
                "files of a skill in a directory listing",
                count(MAX_WALKED_FILES),
            ),
            ("URI", bytes(MAX_URI_BYTES)),
            ("catalog of the daemon", mebibytes(catalog_bytes)),
            ("request", bytes(MAX_REQUEST_BYTES)),
            ("body of an HTTP request", time(REQUEST_BODY_TIMEOUT)),
            (
                "calls at once; waiting",
                format!("{MAX_CALLS}; {MAX_WAITING_CALLS}"),
            ),
            (
                "responses on stdio that were not read",
                count(MAX_STDIO_REQUESTS),
            ),
            (
                "host that reads nothing of a response",
                time(HOST_READ_TIMEOUT),
            ),
            (
                "`subscriptions/listen`",
                format!(
                    "{MAX_LISTENS}, with {} URIs each",
                    count(MAX_SUBSCRIBED_URIS)
                ),
            ),
            ("HTTP connections", count(MAX_CONNECTIONS)),
            (
                "sessions of older clients over HTTP",
                format!(
                    "{MAX_SESSIONS}, each idle for {}",
                    time(SESSION_IDLE_TIMEOUT)
                ),
            ),
            (
                "wait of a list for the first list of the daemon",
                format!("{} ms", FIRST_LIST_TIMEOUT.as_millis()),
            ),
            ("wait of a call for the daemon", time(CATALOG_TIMEOUT)),
        ],
    );
}

#[test]
fn the_limits_of_an_mcp_source_are_those_of_the_code() {
    use source_limits::{
        CONNECT_TIMEOUT, LIST_TIMEOUT, MAX_CACHED_BYTES, MAX_DIRECTORIES, MAX_FILE_BYTES,
        MAX_LARGE_MESSAGE_BYTES, MAX_LISTING_BYTES, MAX_MANIFEST_BYTES, MAX_MANIFESTS,
        MAX_MESSAGE_BYTES, MAX_PAGES, MAX_SKILL_BYTES, MAX_SKILL_FILES, MAX_SKILLS,
        MAX_TOKEN_BYTES, MAX_UNLISTED_SKILLS, MAX_URI_BYTES, PAGE_TIMEOUT, READ_TIMEOUT,
        SMALL_FILE_BYTES, START_TIMEOUT, TOKEN_TIMEOUT,
    };
    assert_rows(
        MCP_SOURCES_PAGE,
        "| limit of a server | value | beyond |",
        &[
            (
                "list",
                format!(
                    "{MAX_PAGES} pages, {}, {} skills",
                    mebibytes(MAX_LISTING_BYTES as u64),
                    count(MAX_SKILLS)
                ),
            ),
            (
                "manifests",
                format!(
                    "{}, each at most {} KiB",
                    count(MAX_MANIFESTS),
                    MAX_MANIFEST_BYTES >> 10
                ),
            ),
            (
                "skills that no list has",
                format!("{MAX_UNLISTED_SKILLS} are remembered"),
            ),
            (
                "directories of a skill",
                format!("{MAX_DIRECTORIES}, with {MAX_SKILL_FILES} files"),
            ),
            ("cached files", mebibytes(MAX_CACHED_BYTES as u64)),
            (
                "files of a skill",
                format!(
                    "{MAX_SKILL_FILES}, with {} in all",
                    mebibytes(MAX_SKILL_BYTES)
                ),
            ),
            (
                "file",
                format!(
                    "{max}, one over {small} at a time in a process; {small} if the server declares no size",
                    max = mebibytes(MAX_FILE_BYTES),
                    small = mebibytes(SMALL_FILE_BYTES)
                ),
            ),
            (
                "message",
                format!(
                    "{}, with a large file {}; values that take {} of memory, for all servers of the process together",
                    mebibytes(MAX_MESSAGE_BYTES as u64),
                    mebibytes(MAX_LARGE_MESSAGE_BYTES as u64),
                    mebibytes(MAX_TREE_MEMORY as u64)
                ),
            ),
            ("entry of a list", "as the protocol has it".to_owned()),
            ("URI", format!("{} bytes", count(MAX_URI_BYTES))),
            (
                "token",
                format!("{} KiB, {}", MAX_TOKEN_BYTES >> 10, time(TOKEN_TIMEOUT)),
            ),
            ("read", time(READ_TIMEOUT)),
            ("start", time(START_TIMEOUT)),
            (
                "connect; page; list",
                [CONNECT_TIMEOUT, PAGE_TIMEOUT, LIST_TIMEOUT]
                    .map(time)
                    .join("; "),
            ),
        ],
    );
}

#[test]
fn the_limits_of_a_site_are_those_of_the_code() {
    use site_limits::{
        CONNECT_TIMEOUT, INDEX_TIMEOUT, MAX_FILE_BYTES, MAX_INDEX_BYTES, MAX_REDIRECTS, MAX_SKILLS,
        READ_TIMEOUT, SMALL_FILE_BYTES, START_TIMEOUT,
    };
    assert_rows(
        SITES_PAGE,
        "| limit of a site | value | beyond |",
        &[
            (
                "index",
                format!(
                    "{}; {} skills",
                    mebibytes(MAX_INDEX_BYTES as u64),
                    count(MAX_SKILLS)
                ),
            ),
            (
                "file",
                format!(
                    "{}, one over {} at a time in a process",
                    mebibytes(MAX_FILE_BYTES),
                    mebibytes(SMALL_FILE_BYTES)
                ),
            ),
            ("redirects", MAX_REDIRECTS.to_string()),
            ("read", time(READ_TIMEOUT)),
            ("start", time(START_TIMEOUT)),
            (
                "index; connection",
                [INDEX_TIMEOUT, CONNECT_TIMEOUT].map(time).join("; "),
            ),
        ],
    );
}
