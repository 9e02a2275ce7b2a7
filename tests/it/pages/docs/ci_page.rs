//! The commands that `docs/author/ci.md` gives to GitHub Actions and pre-commit pass for good skills and
//! fail for bad skills.

use serde_yaml::Value;

use super::page::{Page, pages};
use crate::harness::fixture::Fixture;
use crate::harness::process::{caproot, run_blocking};

const BAD: &str = "file skills/bad/SKILL.md\n| ---\n| name: bad\n| description: Use when testing.\n\
    | version: 1\n| ---\n";

fn ci_page() -> Page {
    let mut pages = pages().into_iter();
    let page = pages.find(|page| page.path.ends_with("author/ci.md"));
    page.expect("the page about continuous integration")
}

/// Returns all texts of a key, at any depth.
fn texts_of_key(value: &Value, key: &str, found: &mut Vec<String>) {
    match value {
        Value::Sequence(items) => {
            for item in items {
                texts_of_key(item, key, found);
            }
        }
        Value::Mapping(fields) => {
            for (name, value) in fields {
                match value.as_str().filter(|_| name.as_str() == Some(key)) {
                    Some(text) => found.push(text.to_owned()),
                    None => texts_of_key(value, key, found),
                }
            }
        }
        _ => {}
    }
}

/// Runs a command line of caproot in the directory of a fixture. Returns the exit code and stdout.
fn run_line(fixture: &Fixture, line: &str) -> (Option<i32>, String) {
    let mut words = line.split_whitespace();
    assert_eq!(words.next(), Some("caproot"), "{line}");
    let words = words.take_while(|word| *word != ">");
    let output = run_blocking(caproot(words).current_dir(fixture.top()));
    let stdout = output.text().to_owned();
    (output.code, stdout)
}

#[test]
fn the_commands_of_the_page_about_continuous_integration_work() {
    let good = Fixture::new("skill skills/pdf");
    let bad = Fixture::new(&format!("skill skills/pdf\n{BAD}"));
    let mut runs = Vec::new();
    let mut entries = Vec::new();
    for block in ci_page().blocks("yaml") {
        let value: Value = serde_yaml::from_str(&block.text).expect("YAML");
        texts_of_key(&value, "run", &mut runs);
        let mut found = Vec::new();
        texts_of_key(&value, "entry", &mut found);
        // The shared hook gets its directories from `args`.
        let complete = found.into_iter().map(|entry| {
            if entry.contains(" skills") {
                entry
            } else {
                format!("{entry} skills")
            }
        });
        entries.extend(complete);
    }
    runs.retain(|line| line.starts_with("caproot "));
    assert_eq!((runs.len(), entries.len()), (4, 2));

    for line in runs.iter().chain(&entries) {
        let (exit, stdout) = run_line(&good, line);
        assert_eq!(exit, Some(0), "{line}\n{stdout}");
        let (exit, stdout) = run_line(&bad, line);
        let is_strict = line.contains(" --strict");
        assert_eq!(exit, Some(i32::from(is_strict)), "{line}\n{stdout}");
        let has_annotation = stdout.contains("::error file=skills/bad/SKILL.md,line=4,");
        assert_eq!(has_annotation, line.contains("github"), "{line}\n{stdout}");
    }
}
