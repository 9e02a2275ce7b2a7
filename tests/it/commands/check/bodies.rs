//! Findings that only `check` has: the text of a skill, its scripts, and the links in its resource
//! directories. A daemon lists the same tree without them.

use super::check_json;
use super::daemon_agreement::list_skills;
use crate::harness::fixture::Fixture;
use serde_json::Value;

/// Returns the findings as `CODE SEVERITY path:line:column`, except those of unknown uses.
fn findings(fixture: &Fixture) -> Vec<String> {
    let report = check_json(fixture.top(), "root");
    let line = |d: &Value| {
        let text = |key: &str| d[key].as_str().expect("text").to_owned();
        let position = if d["line"] == 0 {
            String::new()
        } else {
            format!(":{}:{}", d["line"], d["column"])
        };
        format!(
            "{} {} {}{position}",
            text("code"),
            text("severity"),
            text("path")
        )
    };
    let findings = report["diagnostics"]
        .as_array()
        .expect("an array")
        .iter()
        .map(line);
    let is_skipped = |line: &String| line.starts_with("DIRECTORIES_SKIPPED");
    findings.filter(|line| !is_skipped(line)).collect()
}

const TREE: &str = "
file root/pdf/SKILL.md
| ---
| name: pdf
| description: Fills PDF forms. Use when a form is blank.
| ---
|
| Read [the fields](references/fields.md#dates), [the steps](steps.md) and
| [the steps again](./steps.md). Ask [the other skill](../web/SKILL.md) or
| [nobody](../gone/SKILL.md), see <https://example.org/a.md> and `[code](code.md)`.
file root/pdf/references/fields.md
| # Fields
link root/pdf/references/out -> ../../../shared
link root/pdf/assets/gone.svg -> nowhere.svg
link root/pdf/assets/copy.md -> ../references/fields.md
dir shared
file root/pdf/scripts/good.sh
| #!/bin/sh
mode 755 root/pdf/scripts/good.sh
file root/pdf/scripts/lib/closed.py
| #!/usr/bin/env python3
file root/pdf/scripts/plain.sh
| echo
mode 755 root/pdf/scripts/plain.sh
file root/pdf/scripts/both.rb
| puts
file root/pdf/scripts/__init__.py
file root/pdf/scripts/data.json
| {}
file root/web/SKILL.md
| ---
| name: web
| description: Reads pages.
| ---
|
| \\{501*x\\n}
";

#[tokio::test]
async fn check_examines_text_scripts_and_links_and_the_daemon_does_not() {
    let fixture = Fixture::new(TREE);
    assert_eq!(
        findings(&fixture),
        [
            "REFERENCE_MISSING WARNING root/pdf/SKILL.md:6:48",
            "REFERENCE_MISSING WARNING root/pdf/SKILL.md:8:1",
            "DANGLING_LINK NOTE root/pdf/assets/gone.svg",
            "OUTSIDE_ROOT WARNING root/pdf/references/out",
            "SCRIPT_NOT_RUNNABLE NOTE root/pdf/scripts/both.rb",
            "SCRIPT_NOT_RUNNABLE NOTE root/pdf/scripts/lib/closed.py",
            "SCRIPT_NOT_RUNNABLE NOTE root/pdf/scripts/plain.sh",
            "USE_NOT_DESCRIBED NOTE root/web/SKILL.md:3:1",
            "SKILL_TOO_LONG NOTE root/web/SKILL.md:5:1",
        ]
    );
    let list = list_skills(fixture.path("root")).await;
    assert_eq!(list.skills.len(), 2);
    let codes: Vec<_> = list
        .diagnostics
        .iter()
        .map(|d| d.code().as_str_name())
        .collect();
    assert!(
        codes
            .iter()
            .all(|code| *code == "DIAGNOSTIC_CODE_DIRECTORIES_SKIPPED"),
        "{codes:?}"
    );
}

#[test]
fn hostile_bodies_are_examined_in_bounded_time() {
    let fixture = Fixture::new("dir root");
    let head = "---\nname: x\ndescription: Use when testing.\n---\n";
    for (name, body) in [
        ("brackets", "[".repeat(500_000)),
        ("links", "[a](b".repeat(100_000)),
        ("images", "![".repeat(300_000)),
        ("quotes", "> ".repeat(300_000)),
        (
            "targets",
            (0..50_000)
                .map(|n| ["[a](f", &n.to_string(), ".md)\n"].concat())
                .collect(),
        ),
        ("long-target", format!("[a]({})", "x/".repeat(200_000))),
        ("controls", "[a](\0\u{202e}%00%ff\u{1b})\n".repeat(1_000)),
        ("large", "word ".repeat(2_000_000)),
    ] {
        fixture.write(
            &format!("root/{name}/SKILL.md"),
            head.replace('x', name) + &body,
        );
    }
    let report = check_json(fixture.top(), "root");
    assert_eq!(report["summary"]["skills"], 8, "{}", report["summary"]);
    assert!(
        report["diagnostics"]
            .as_array()
            .is_some_and(|all| all.len() < 1_000)
    );
}
