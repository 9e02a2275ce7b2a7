//! Every diagnostic code has a tree that provokes it, and a snapshot of what `check` prints and of
//! what the daemon lists. `CAPROOT_BLESS=1 cargo test codes` rewrites the snapshots; then review the
//! difference: they are what users see.

use super::agrees::{assert_agrees, listed};
use super::{caproot, said};
use crate::diff::diff;
use crate::fixture::{Fixture, is_root};
use crate::listing;
use caproot::domain::DiagnosticCode;
use caproot::proto::caproot::v1 as pb;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

fn file(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests").join(path)
}

#[tokio::test]
async fn each_has_its_snapshot() {
    let text = fs::read_to_string(file("trees/codes.txt")).expect("the file of trees");
    let cases: Vec<_> =
        text.split("\n== ").skip(1).map(|c| c.split_once('\n').expect("a tree")).collect();
    let named: BTreeSet<&str> = cases.iter().map(|(code, _)| *code).collect();
    // What only a daemon says has no tree.
    let of_files =
        DiagnosticCode::ALL.into_iter().filter(|code| *code != DiagnosticCode::WatchDegraded);
    assert_eq!(named, of_files.map(DiagnosticCode::name).collect(), "a tree for each code");
    let bless = std::env::var_os("CAPROOT_BLESS").is_some();
    let mut failures = String::new();
    for (code, tree) in cases {
        let open = tree.replace("not-as-root\n", "");
        if open != tree && is_root() {
            eprintln!("SKIPPED as root, who may read everything: {code}");
            continue;
        }
        let fixture = Fixture::new(&open);
        let shown = shown(&fixture).await;
        assert!(shown.contains(&format!("[{code}]: ")), "{code} is provoked:\n{shown}");
        assert_agrees(fixture.top(), "root").await;
        let snapshot = file(&format!("snapshots/check/{code}.txt"));
        if bless {
            fs::write(&snapshot, &shown).expect("the snapshot can be written");
            continue;
        }
        let wanted = fs::read_to_string(&snapshot).unwrap_or_default();
        if wanted != shown {
            write!(failures, "\n== {code}\n{}", diff(&wanted, &shown)).expect("text");
        }
    }
    assert!(failures.is_empty(), "- expected, + actual\n{failures}");
}

async fn shown(fixture: &Fixture) -> String {
    let (exit, stdout, stderr) = said(&caproot(fixture.top(), ["check", "root", "--notes"]));
    let mut text =
        format!("$ caproot check root --notes\n{stdout}{stderr}exit code {exit}\n\nListSkills\n");
    for line in listing::canonical_lines(&listed(fixture.path("root")).await, &[], &[]) {
        writeln!(text, "{}", line.text).expect("text");
        if !line.message.is_empty() {
            writeln!(text, "    {}", line.message).expect("text");
        }
    }
    text
}

#[test]
fn the_names_are_those_of_the_wire() {
    let wire = (1..).map_while(|n| pb::DiagnosticCode::try_from(n).ok());
    let known: Vec<_> =
        DiagnosticCode::ALL.iter().map(|code| format!("DIAGNOSTIC_CODE_{}", code.name())).collect();
    let wire: Vec<_> = wire.map(|code| code.as_str_name()).collect();
    assert_eq!(known, wire);
}
