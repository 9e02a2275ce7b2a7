//! Every diagnostic code has a tree that provokes it, and a snapshot of the output of `check` and
//! of the daemon's list. `CAPROOT_BLESS=1 cargo test codes` rewrites the snapshots. Review the
//! difference, because users see this text.

use super::daemon_agreement::{assert_agrees, list_skills};
use super::explain::depends_on_more;
use super::run_caproot;
use crate::harness::diff::diff;
use crate::harness::fixture::{Fixture, is_root};
use crate::harness::listing;
use caproot::daemon::model::DiagnosticCode;
use caproot_core::proto::caproot::v1 as pb;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

fn test_file(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(path)
}

#[tokio::test]
async fn each_code_has_a_tree_and_a_snapshot() {
    let text = fs::read_to_string(test_file("trees/codes.txt")).expect("the file of trees");
    let cases: Vec<_> = text
        .split("\n== ")
        .skip(1)
        .map(|c| c.split_once('\n').expect("a tree"))
        .collect();
    let named: BTreeSet<&str> = cases.iter().map(|(code, _)| *code).collect();
    // The other codes have no tree: they depend on the host or on a lock.
    let provoked = DiagnosticCode::ALL
        .into_iter()
        .filter(|code| !depends_on_more(*code));
    assert_eq!(
        named,
        provoked.map(DiagnosticCode::name).collect(),
        "a tree for each code"
    );
    let bless = std::env::var_os("CAPROOT_BLESS").is_some();
    let mut failures = String::new();
    for (code, tree) in cases {
        let open = tree.replace("not-as-root\n", "");
        if open != tree && is_root() {
            eprintln!("SKIPPED: root may read everything: {code}");
            continue;
        }
        let fixture = Fixture::new(&open);
        let actual = render(&fixture).await;
        assert!(
            actual.contains(&format!("[{code}]: ")),
            "{code} is provoked:\n{actual}"
        );
        assert_agrees(fixture.top(), "root").await;
        let snapshot = test_file(&format!("snapshots/check/{code}.txt"));
        if bless {
            fs::write(&snapshot, &actual).expect("the snapshot can be written");
            continue;
        }
        let expected = fs::read_to_string(&snapshot).unwrap_or_default();
        if expected != actual {
            write!(failures, "\n== {code}\n{}", diff(&expected, &actual)).expect("text");
        }
    }
    assert!(failures.is_empty(), "- expected, + actual\n{failures}");
}

/// Renders the output of `check` and the daemon's list as text.
async fn render(fixture: &Fixture) -> String {
    let (exit, stdout, stderr) = run_caproot(fixture.top(), ["check", "root", "--notes"]);
    let mut text =
        format!("$ caproot check root --notes\n{stdout}{stderr}exit code {exit}\n\nListSkills\n");
    for line in listing::canonical_lines(&list_skills(fixture.path("root")).await, &[], &[]) {
        writeln!(text, "{}", line.text).expect("text");
        if !line.message.is_empty() {
            writeln!(text, "    {}", line.message).expect("text");
        }
    }
    text
}

#[test]
fn the_names_are_the_names_on_the_wire() {
    let wire = (1..).map_while(|n| pb::DiagnosticCode::try_from(n).ok());
    let known: Vec<_> = DiagnosticCode::ALL
        .iter()
        .map(|code| format!("DIAGNOSTIC_CODE_{}", code.name()))
        .collect();
    let wire: Vec<_> = wire.map(|code| code.as_str_name()).collect();
    assert_eq!(known, wire);
}
