//! `caproot explain`, and its examples: each example provokes its code, and each fix removes the
//! code.

use super::{check_json, run_caproot};
use crate::harness::fixture::{Fixture, is_root};
use caproot::daemon::model::DiagnosticCode;
use caproot::lint::explain::explanation_markdown;
use std::path::Path;
use std::process::Command;

/// Whether a tree alone does not provoke a code.
pub(super) fn depends_on_more(code: DiagnosticCode) -> bool {
    matches!(
        code,
        DiagnosticCode::WatchDegraded
            | DiagnosticCode::PackageChanged
            | DiagnosticCode::PackagesNotApproved
    )
}

/// Example of an explanation.
struct CodeExample {
    /// Path of the file. `None` if the texts are shell commands.
    path: Option<String>,
    before: String,
    after: String,
}

impl CodeExample {
    fn of_code(code: DiagnosticCode) -> Self {
        let markdown = explanation_markdown(code);
        let (_, example) = markdown.split_once("\nBefore").expect("an example");
        let (before, after) = example
            .split_once("\n```\n\nAfter:\n\n```")
            .expect("two blocks");
        let (head, before) = before.split_once("```").expect("a block");
        let text_of = |block: &str| block.split_once('\n').expect("a language").1.to_owned();
        let path = head
            .strip_prefix(", in `")
            .and_then(|rest| rest.split_once('`'));
        Self {
            path: path.map(|(path, _)| path.to_owned()),
            before: text_of(before),
            after: text_of(after).trim_end_matches("\n```\n").to_owned(),
        }
    }
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
        // The code depends on the host or on a lock.
        if depends_on_more(code) {
            continue;
        }
        let CodeExample {
            path,
            before,
            after,
        } = CodeExample::of_code(code);
        let texts = match path {
            Some(_) => [(before, true), (after, false)],
            None => [
                (before.clone(), true),
                (format!("{before}\n{after}"), false),
            ],
        };

        for (text, expected) in texts {
            let fixture = build();
            if let Some(path) = &path {
                fixture.write(path, format!("{text}\n"));
            } else {
                let mut shell = Command::new("sh");
                shell.current_dir(fixture.top()).args(["-euc", &text]);
                assert!(shell.status().expect("a shell").success(), "{text}");
            }
            let found = has_code(fixture.top(), code);
            assert_eq!(found, expected, "{}:\n{text}", code.name());
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
