//! `caproot explain`, and its examples: each example provokes its code, and each fix removes the
//! code.

use super::{check_json, run_caproot};
use crate::harness::fixture::{Fixture, is_root};
use caproot::check::explain::{CodeExample, explanation_of};
use caproot::model::DiagnosticCode;
use std::path::Path;
use std::process::Command;

/// Whether a tree alone does not provoke a code.
pub(super) fn depends_on_more(code: DiagnosticCode) -> bool {
    matches!(
        code,
        DiagnosticCode::WatchDegraded
            | DiagnosticCode::SkillChanged
            | DiagnosticCode::SkillsNotApproved
    )
}

fn has_code(top: &Path, code: DiagnosticCode) -> bool {
    let report = check_json(top, "skills");
    let found = report["diagnostics"].as_array().expect("an array");
    found.iter().any(|d| d["code"] == code.name())
}

#[test]
fn each_example_provokes_its_code_and_each_fix_removes_it() {
    for code in DiagnosticCode::ALL {
        if code == DiagnosticCode::Unreadable && is_root() {
            eprintln!("SKIPPED: root may read everything: {}", code.name());
            continue;
        }
        let build = || Fixture::new("skill skills/pdf\nskill shared/forms");
        match explanation_of(code).example {
            CodeExample::File {
                path,
                before,
                after,
            } => {
                for (text, expected) in [(before, true), (after, false)] {
                    let fixture = build();
                    fixture.write(path, format!("{text}\n"));
                    assert_eq!(
                        has_code(fixture.top(), code),
                        expected,
                        "{}:\n{text}",
                        code.name()
                    );
                }
            }
            // The code depends on the host or on a lock.
            CodeExample::Daemon { .. } => assert!(depends_on_more(code), "{}", code.name()),
            CodeExample::Shell { before, after } => {
                for (script, expected) in [
                    (before.to_owned(), true),
                    (format!("{before}\n{after}"), false),
                ] {
                    let fixture = build();
                    let mut shell = Command::new("sh");
                    let ran = shell
                        .current_dir(fixture.top())
                        .args(["-euc", &script])
                        .status();
                    assert!(ran.expect("a shell").success(), "{script}");
                    assert_eq!(
                        has_code(fixture.top(), code),
                        expected,
                        "{}:\n{script}",
                        code.name()
                    );
                }
            }
        }
    }
}

#[test]
fn explain_prints_one_code_or_all_and_suggests_corrections() {
    let top = Path::new("/");
    let (exit, all, _) = run_caproot(top, ["explain"]);
    assert_eq!(exit, 0);
    for code in DiagnosticCode::ALL {
        let (exit, text, _) = run_caproot(top, ["explain", &code.name().to_lowercase()]);
        assert_eq!(exit, 0);
        assert!(text.starts_with(&format!("# {} (", code.name())), "{text}");
        assert!(all.contains(code.name()));
    }

    let (exit, stdout, stderr) = run_caproot(top, ["explain", "yaml_sintax"]);
    assert_eq!((exit, stdout.as_str()), (2, ""));
    assert!(
        stderr.contains("unknown code yaml_sintax; did you mean YAML_SYNTAX?"),
        "{stderr}"
    );
    let (exit, _, stderr) = run_caproot(top, ["explain", "\u{202e}\x1b[31m"]);
    assert_eq!(exit, 2);
    assert!(
        stderr.contains(r"unknown code \u{202e}\u{1b}[31m"),
        "{stderr}"
    );
}

/// The unit tests of the module enumerate all enums.
#[test]
fn codes_of_roots_errors_and_exits_are_explained() {
    let top = Path::new("/");
    for (code, heads) in [
        (
            "NOT_ALLOWED",
            vec!["reason of an unavailable root", "error of a tool call"],
        ),
        (
            "not-found",
            vec!["reason of an unavailable root", "status of a call"],
        ),
        (
            "PACKAGE_NOT_FOUND",
            vec!["error of a call", "error of a tool call"],
        ),
        ("error[PENDING]", vec!["state of a root"]),
        ("78", vec!["exit code 78"]),
        ("NO_DAEMON", vec!["exit code 3"]),
        ("OUTSIDE_ROOT", vec!["WARNING", "error of a call"]),
    ] {
        let (exit, text, stderr) = run_caproot(top, ["explain", code]);
        assert_eq!((exit, &*stderr), (0, ""), "{code}");
        let lines = text.lines().filter(|line| line.starts_with("# "));
        let lines: Vec<_> = lines.collect();
        let has_heads = lines.len() == heads.len()
            && lines
                .iter()
                .zip(&heads)
                .all(|(line, head)| line.contains(&format!(" ({head})")));
        assert!(has_heads, "{code}:\n{text}");

        let (_, json, _) = run_caproot(top, ["explain", code, "--output", "json"]);
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json.as_array().map(Vec::len), Some(heads.len()), "{code}");
    }
}
