//! `docs/reference/diagnostics.md`: the texts of `caproot explain`.

use std::fmt::Write as _;

use serde_json::Value;

use super::check_page;
use crate::harness::process::{caproot, run_blocking};

const HEAD: &str = "# Diagnostics

A diagnostic is a problem of a skill, a plugin or a root. `caproot check` prints diagnostics; `caproot list` and the
API have them, too. A problem never stops a scan. The severity tells the effect:

- `ERROR`: a skill, a file or a field is omitted.
- `WARNING`: the content is used, but not as its author meant or not as the format requires.
- `NOTE`: information without an effect.

`caproot explain CODE` prints the text of a code. The severity in the table is the usual one; the text of the code
lists exceptions.

| code | severity | problem |
| --- | --- | --- |
";

#[test]
fn the_page_is_current() {
    let output = run_blocking(caproot(["explain", "--output", "json"]));
    let mut codes: Vec<Value> = serde_json::from_str(output.text()).expect("a JSON array");
    codes.retain(|code| code["kind"] == "diagnostic");
    let text = |code: &Value, key: &str| code[key].as_str().expect(key).to_owned();
    let mut page = HEAD.to_owned();
    for code in &codes {
        let [name, severity, summary] = ["code", "severity", "summary"].map(|key| text(code, key));
        let anchor = name.to_lowercase();
        writeln!(page, "| [`{name}`](#{anchor}) | `{severity}` | {summary} |").expect("a string");
    }
    for code in &codes {
        let markdown = text(code, "markdown");
        let (_, body) = markdown.split_once("\n\n").expect("a heading");
        let [name, severity, summary] = ["code", "severity", "summary"].map(|key| text(code, key));
        write!(page, "\n## {name}\n\n`{severity}`: {summary}.\n\n{body}").expect("a string");
    }
    check_page("diagnostics", &page);
}
