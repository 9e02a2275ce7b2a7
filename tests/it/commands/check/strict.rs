//! `--strict`: skills that the validator of the format rejects, and the order of its errors and other
//! findings. `tests/foreign/skills_ref_agrees.py` compares the rules with the validator itself.

use super::run_caproot;
use crate::harness::fixture::Fixture;
use serde_json::Value;
use std::path::Path;

fn strict_json(dir: &Path) -> Value {
    let (_, stdout, _) = run_caproot(dir, ["check", "--strict", "--output", "json", "root"]);
    serde_json::from_str(&stdout).expect("JSON")
}

fn codes_of(report: &Value) -> Vec<(&str, &str)> {
    let found = report["diagnostics"].as_array().expect("an array");
    let text = |value: &'_ Value| value.as_str().map(str::to_owned).unwrap_or_default();
    assert!(found.iter().all(|d| !text(&d["help"]).is_empty()));
    found
        .iter()
        .filter_map(|d| Some((d["severity"].as_str()?, d["code"].as_str()?)))
        .collect()
}

#[test]
fn only_strict_checks_fail_at_the_rules_of_the_validator() {
    let with = |fields: &str| {
        format!("---\nname: s\ndescription: Use when testing.\n{fields}---\nText.\n").into_bytes()
    };
    let long = format!("compatibility: {}\n", "x".repeat(501));
    let not_utf8 = [with(""), b"\xff".to_vec()].concat();
    let other_name = b"---\nname: other\ndescription: Use when testing.\n---\n".to_vec();
    let no_name = b"---\ndescription: Use when testing.\n---\n".to_vec();

    for (file, expected) in [
        (with(""), vec![]),
        (with("version: 1\n"), vec![("ERROR", "FIELD_UNKNOWN")]),
        (
            with("disable-model-invocation: true\n"),
            vec![("ERROR", "FIELD_UNKNOWN")],
        ),
        (with("metadata: {a: b}\n"), vec![("ERROR", "YAML_SYNTAX")]),
        (with("license: a: b\n"), vec![("ERROR", "YAML_REPAIRED")]),
        (with(&long), vec![("ERROR", "FIELD_TOO_LONG")]),
        (not_utf8, vec![("ERROR", "NOT_UTF8")]),
        (other_name, vec![("ERROR", "NAME_INVALID")]),
        (no_name, vec![("ERROR", "NAME_INVALID")]),
    ] {
        let fixture = Fixture::new("dir root/s");
        fixture.write("root/s/SKILL.md", &file);
        let text = String::from_utf8_lossy(&file);
        assert_eq!(codes_of(&strict_json(fixture.top())), expected, "{text}");
        let expected_exit = i32::from(!expected.is_empty());
        let (exit, ..) = run_caproot(fixture.top(), ["check", "root", "--strict"]);
        assert_eq!(exit, expected_exit, "{text}");
        let (exit, ..) = run_caproot(fixture.top(), ["check", "root"]);
        assert_eq!(exit, 0, "{text}");
    }
}

#[test]
fn a_strict_fix_repairs_what_has_one_safe_answer() {
    let fixture = Fixture::new(
        "file root/s/SKILL.md\n| ---\n| name: S\n| description: Use when: testing.\n| ---",
    );
    let (exit, _, stderr) = run_caproot(fixture.top(), ["check", "root", "--strict", "--fix"]);
    assert_eq!((exit, &*stderr), (0, ""));
}

#[test]
fn the_directory_itself_can_be_the_skill() {
    let fixture = Fixture::new("skill root");
    for (dir, args) in [("root", "."), (".", "root"), ("root/..", "root/")] {
        let dir = fixture.path(dir);
        let (exit, stdout, _) = run_caproot(&dir, ["check", args, "--strict"]);
        assert_eq!(exit, 0, "{stdout}");
    }
}
