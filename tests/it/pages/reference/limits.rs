//! `docs/reference/limits.md`: the limits of a daemon with the default configuration, and those of a
//! client.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use caproot_client::json;
use fancy_regex::Regex;
use prost_reflect::ReflectMessage as _;

use super::check_page;
use super::protocol::{cell, comment, link_errors, link_names};
use crate::harness::process::{caproot, run_blocking};
use crate::harness::{Daemon, Setup};

const HEAD: &str = "# Limits

`GetExecutor` and `caproot status --limits` report the limits of a daemon. The table has the defaults. A limit
with a range is a key below `limits` in the [config file](config.md#limits); the other limits are fixed. Exceeding a
limit is always reported by a diagnostic or an [error](errors.md).

| limit | default | range | meaning |
| --- | --- | --- | --- |
";

/// Limits of `crates/client/src/connect/response_budget.rs` and `crates/client/src/pages.rs`.
const TAIL: &str = "
## Limits of a client

A client does not trust the daemon. It computes the memory of a response before it decodes the response. These limits
hold for the library, for all commands and for the daemons of a fleet. They cannot be changed, except the limit of a
mirror.

| limit | value | beyond |
| --- | --- | --- |
| message on the wire | 4 MiB | OUT_OF_RANGE; a stream ends |
| message in memory | 20 MiB | OUT_OF_RANGE; a list is requested again with smaller pages, a mirror waits 5 to 30 s |
| messages being received, all daemons together | 8 MiB, without messages up to 96 KiB | a response waits; a large message must arrive within 20 s |
| messages being decoded, all daemons together | 20 MiB | a response waits |
| unread bytes of a connection | 128 KiB | the daemon waits |
| headers, with the details of an error | 16 KiB | the call ends |
| published roots in memory | 4 MiB | invalid response |
| page of a list | 1,000 skills or files; each skill of a selected root | invalid response |
| list in memory | 256 MiB, 10,000 pages | invalid response: list fewer roots, or list with SKILL_VIEW_BASIC |
| mirror in memory | 256 MiB (`max_bytes`) | the mirror is stale: select fewer roots, or raise `max_bytes` |
| values of a skill or event in JSON | 65,536 | print the skills as text |
";

/// Formats a number with separators, such as `1,024`.
fn with_separators(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(String::from_utf8_lossy)
        .collect();
    groups.join(",")
}

/// Formats a default. Bytes have a unit.
fn format_default(name: &str, value: u64) -> String {
    if !name.ends_with("_bytes") {
        return with_separators(value);
    }
    let (divisor, unit) = if value.is_multiple_of(1 << 20) {
        (1 << 20, "MiB")
    } else {
        (1 << 10, "KiB")
    };
    assert_eq!(value % divisor, 0, "{name} is a whole number of {unit}");
    format!("{} {unit}", with_separators(value / divisor))
}

/// Returns the range of each key in the section `limits` of the example file. The comment of a key
/// has the range.
fn config_ranges() -> BTreeMap<String, String> {
    let example = run_blocking(caproot(["config", "example"]));
    let section = example
        .text()
        .lines()
        .skip_while(|line| *line != "limits:")
        .skip(1);
    let bounds = Regex::new(r"(\d+)(\w*) to (\d+)(\w*)").expect("a pattern");
    let (mut ranges, mut comment) = (BTreeMap::new(), String::new());
    for line in section.map_while(|line| line.strip_prefix("  ")) {
        if let Some(part) = line.strip_prefix('#') {
            comment.push_str(part);
            continue;
        }
        let (key, _) = line.split_once(':').expect("a key");
        let found = bounds
            .captures(comment.as_str())
            .expect("a search that ends");
        let found = found.unwrap_or_else(|| panic!("no range of {key}: {comment}"));
        let bound = |number: usize| {
            let value = with_separators(found[number].parse().expect("a number"));
            format!("{value} {}", &found[number + 1])
                .trim_end()
                .to_owned()
        };
        ranges.insert(key.to_owned(), format!("{} to {}", bound(1), bound(3)));
        comment.clear();
    }
    assert!(!ranges.is_empty(), "{}", example.text());
    ranges
}

#[tokio::test]
async fn the_page_is_current() {
    let daemon = Daemon::start(Setup::default()).await;
    let executor = daemon.executor().await;
    daemon.stop().await;
    let executor = json::to_dynamic(&executor).expect("its descriptor");
    let limits = executor
        .get_field_by_name("limits")
        .expect("the field `limits`")
        .into_owned();
    let limits = limits.as_message().expect("a message");
    let mut page = HEAD.to_owned();
    let mut ranges = config_ranges();
    for field in limits.descriptor().fields() {
        let name = field.name();
        let value = limits.get_field(&field);
        let value = value
            .as_u64()
            .or_else(|| value.as_u32().map(u64::from))
            .expect("a number");
        let about = cell(&comment(
            &field.parent_message().parent_file(),
            field.path(),
        ));
        let about = link_names(&link_errors(&about, "errors.md"), "api.md");
        let default = format_default(name, value);
        let (name, range) = match ranges.remove(name) {
            Some(range) => (format!("[`{name}`](config.md#limits{name})"), range),
            None => (format!("`{name}`"), "fixed".to_owned()),
        };
        writeln!(page, "| {name} | {default} | {range} | {about} |").expect("a string");
    }
    assert!(
        ranges.is_empty(),
        "each key of `limits` is in the table: {ranges:?}"
    );
    page.push_str(TAIL);
    check_page("limits", &page);
}
