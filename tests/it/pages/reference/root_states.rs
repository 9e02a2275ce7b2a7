//! `docs/reference/root-states.md`: states, reasons and change detection of roots.

use std::fmt::Write as _;

use super::check_page;
use super::protocol::{EnumValueDoc, cell, comment, enum_values, link_names, pool};

const HEAD: &str = "# Root states

`caproot list` and `caproot resolve --published` print the state of a root. In the API, the fields `state`, `reason` and
`message` of [RootStatus](api.md#rootstatus), [ResolvedRoot](api.md#resolvedroot) and
[PublishedRoot](api.md#publishedroot) have the state.
";

/// Returns a section with the comment of an enum and a table of its values.
fn section(heading: &str, name: &str, prefix: &str) -> String {
    let values = pool()
        .get_enum_by_name(&format!("caproot.v1.{name}"))
        .expect("an enum");
    let introduction = link_names(&comment(&values.parent_file(), values.path()), "api.md");
    let mut section = format!("\n## {heading}\n\n{introduction}\n\n");
    section.push_str("| name | meaning | fix |\n| --- | --- | --- |\n");
    for EnumValueDoc {
        name, cause, fix, ..
    } in enum_values(&values, prefix)
    {
        let [cause, fix] = [cause, fix].map(|text| {
            link_names(&cell(&text), "api.md").replace("api.md#rootreason", "#reasons")
        });
        writeln!(section, "| `{name}` | {cause} | {fix} |").expect("a string");
    }
    section
}

#[test]
fn the_page_is_current() {
    let page = [
        HEAD.to_owned(),
        section("States", "RootState", "ROOT_STATE_"),
        section("Reasons", "RootReason", "ROOT_REASON_"),
        section("Change detection", "WatchMode", "WATCH_MODE_"),
    ];
    check_page("root-states", &page.concat());
}
