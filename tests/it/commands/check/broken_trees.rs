//! Trees that are broken on purpose or large, and readers that close the pipe early.

use super::{check_json, run_caproot};
use crate::harness::fixture::Fixture;
use crate::harness::process::{Process, caproot};
use std::io::Read as _;

/// Tree with every kind of breakage.
const BROKEN: &str = r#"
file root/binary/SKILL.md
| \x00\x01\xff\xfe\x80ELF\x1b[31m
file root/half/SKILL.md
| ---
| name: ha\x1b[2Jlf
| description: "\xff\xfe"
| ---
file root/\u{202e}evil\n--> fake:1:1\x1b[31m/SKILL.md
| ---
| name: "\u{202e}x"
| description: Reads \u{2066}backwards: or: not \x9b
| ---
file root/long/SKILL.md
| ---
| name: long
| \{100000*key }: [\{70000*x}
| ---
file root/deep/SKILL.md
| ---
| a: \{300*[}
| ---
file root/aliases/SKILL.md
| ---
| a: &a [\{2000*x,}]
| b: &b [\{2000**a,}]
| c: [\{2000**b,}]
| ---
file root/empty/SKILL.md
file root/nul/SKILL.md
| ---\x00
file root/bom/SKILL.md
| \u{feff}---\r
| name: [\r
| ---\r
fifo root/fifo/SKILL.md
socket root/socket/SKILL.md
dir root/dir/SKILL.md
link root/round -> round
link root/up -> ..
link root/self -> .
link root/out -> /etc
sparse 300000000 root/sparse/SKILL.md
skill root/sidecars
file root/sidecars/agents/openai.yaml
| \x00\xff
file root/.codex-plugin/plugin.json
| {"name": "\u{202e}\u{0000}
file root/\xff\xfe/SKILL.md
| ---
| name:
| description: x
"#;

#[test]
fn broken_files_neither_panic_nor_reach_the_terminal_unescaped() {
    let fixture = Fixture::new(BROKEN);
    let (exit, text, stderr) = run_caproot(fixture.top(), ["check", "root", "--notes"]);
    assert_eq!((exit, stderr.as_str()), (1, ""));
    let raw = |c: char| c != '\n' && c.is_control() || ('\u{2028}'..='\u{2069}').contains(&c);
    assert_eq!(text.find(raw), None, "{text}");
    assert!(
        text.contains(r"root/\u{202e}evil\u{a}--> fake:1:1\u{1b}[31m/SKILL.md:"),
        "{text}"
    );
    assert!(text.contains(r"root/\xff\xfe/SKILL.md:"), "{text}");
    // Only lines of caproot itself begin with a location.
    let forged = text
        .lines()
        .filter(|line| line.trim_start().starts_with("--> fake"));
    assert_eq!(forged.count(), 0, "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 700),
        "{text}"
    );
    assert!(check_json(fixture.top(), "root")["summary"]["errors"].as_u64() > Some(10));
    let (exit, sarif, _) = run_caproot(fixture.top(), ["check", "root", "--output", "sarif"]);
    assert_eq!(exit, 1);
    serde_json::from_str::<serde_json::Value>(&sarif).expect("JSON");
}

#[test]
fn a_large_tree_is_checked_completely() {
    let fixture = Fixture::new("repeat 5000 skill root/s{}");
    let (exit, text, _) = run_caproot(fixture.top(), ["check", "root"]);
    assert_eq!(exit, 0);
    assert_eq!(
        text,
        "5000 skills, 0 errors, 0 warnings, 5000 notes in 5000 files (--notes shows the notes)\n"
    );
}

#[test]
fn the_number_of_diagnostics_is_not_limited() {
    let fixture = Fixture::new("repeat 1500 file root/s{}/SKILL.md\n| # nothing");
    let report = check_json(fixture.top(), "root");
    assert_eq!(report["diagnostics"].as_array().map(Vec::len), Some(1_500));
    assert_eq!(report["summary"]["errors"], 1_500);
}

#[tokio::test]
async fn a_closed_pipe_is_no_error() {
    let fixture = Fixture::new("repeat 1500 file root/s{}/SKILL.md\n| # nothing");
    for form in ["text", "json", "sarif"] {
        let mut command = caproot(["check", "root", "--output", form]);
        let (process, mut stdout) = Process::spawn_unread(command.current_dir(fixture.top()));
        stdout.read_exact(&mut [0; 10]).expect("some output");
        drop(stdout);
        let output = process.exit().await;
        assert_eq!(
            (output.code, output.stderr.as_str()),
            (Some(0), ""),
            "{form}"
        );
    }
}
