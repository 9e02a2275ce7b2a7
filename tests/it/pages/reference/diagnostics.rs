//! `docs/reference/diagnostics.md`, the source of `caproot explain`.

use std::fmt::Write as _;
use std::fs;

use serde_json::Value;

use crate::harness::process::{caproot, run_blocking};

#[test]
fn the_page_has_every_code_in_its_table_and_in_a_section() {
    let output = run_blocking(caproot(["explain", "--output", "json"]));
    let mut codes: Vec<Value> = serde_json::from_str(output.text()).expect("a JSON array");
    codes.retain(|code| code["kind"] == "diagnostic");
    let mut table = "| code | severity | problem |\n| --- | --- | --- |\n".to_owned();
    let mut names = Vec::new();
    for code in &codes {
        let text = |key: &str| code[key].as_str().expect(key);
        let [name, severity, summary] = ["code", "severity", "summary"].map(text);
        let anchor = name.to_lowercase();
        writeln!(
            table,
            "| [`{name}`](#{anchor}) | `{severity}` | {summary} |"
        )
        .expect("a string");
        names.push(name);
    }

    let page = fs::read_to_string("docs/reference/diagnostics.md").expect("the page");
    assert!(page.contains(&format!("{table}\n")), "{table}");
    let headings = page.lines().filter_map(|line| line.strip_prefix("## "));
    assert_eq!(headings.collect::<Vec<_>>(), names);
}
