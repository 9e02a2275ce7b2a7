//! `caproot check --fix`: fixed files, the printed differences, and files that stay.

use super::run_caproot;
use crate::harness::fixture::{Fixture, is_root};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

const TREE: &str = "
file root/pdf/SKILL.md
| ---\\r
| name: PDF\\r
| description: Fills forms. Use when: it's blank.\\r
| metadata:\\r
|   version: 1.50\\r
|   author: me\\r
| ---\\r
| Body \\xff of pdf.\\
mode 640 root/pdf/SKILL.md
file root/pdf/scripts/fill.sh
| #!/bin/sh
mode 640 root/pdf/scripts/fill.sh
file root/web/skill.md
|
| ---
| name: web
| description: Reads pages. Use when a page is named.
| ---
file root/web/scripts/read.py
| #!/usr/bin/env python3
file root/two/skill.md
| ---
| name: two
| description: d
| ---
file root/two/Skill.md
| ---
| name: two
| description: d
| ---
file root/docs/skill.md
| # No skill
";

const DIFF: &str = "\
--- root/pdf/SKILL.md
+++ root/pdf/SKILL.md
@@ -1,6 +1,6 @@
 ---
-name: PDF
-description: Fills forms. Use when: it's blank.
+name: pdf
+description: 'Fills forms. Use when: it''s blank.'
 metadata:
   version: 1.50
   author: me
";

/// Files below a directory: their inode, mode and content.
fn record_files(dir: &Path) -> BTreeMap<String, (u64, u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        let metadata = path.symlink_metadata().expect("metadata");
        if metadata.is_dir() {
            found.extend(record_files(&path));
        } else {
            let content = fs::read(&path).expect("a file");
            let key = path.to_str().expect("UTF-8").to_owned();
            found.insert(key, (metadata.ino(), metadata.mode(), content));
        }
    }
    found
}

fn fix(fixture: &Fixture, args: &[&str]) -> (i32, String, String) {
    run_caproot(fixture.top(), [&["check", "root", "--fix"], args].concat())
}

#[test]
fn problems_with_one_answer_are_fixed_and_a_second_run_changes_nothing() {
    let fixture = Fixture::new(TREE);
    let before = record_files(fixture.top());
    let (exit, dry, stderr) = fix(&fixture, &["--dry-run"]);
    assert_eq!((exit, &*stderr), (0, ""), "{dry}");
    assert!(dry.starts_with(DIFF), "{dry}");
    assert!(dry.contains("\n3 files would change\n"), "{dry}");
    assert!(dry.contains("warning[YAML_REPAIRED]"), "{dry}");
    assert!(
        record_files(fixture.top()) == before,
        "a dry run changes nothing"
    );

    let (exit, text, stderr) = fix(&fixture, &[]);
    assert_eq!((exit, &*stderr), (0, ""), "{text}");
    assert!(text.starts_with(DIFF), "{text}");
    for part in [
        "diff --git root/pdf/scripts/fill.sh root/pdf/scripts/fill.sh\n\
         old mode 100640\nnew mode 100750\n",
        "diff --git root/web/skill.md root/web/SKILL.md\n\
         rename from root/web/skill.md\nrename to root/web/SKILL.md\n\
         --- root/web/skill.md\n+++ root/web/SKILL.md\n@@ -1,4 +1,3 @@\n-\n ---\n",
        "diff --git root/web/scripts/read.py root/web/scripts/read.py\n",
        "\nfixed 4 files\n",
        "2 skills, 0 errors, 3 warnings, ",
    ] {
        assert!(text.contains(part), "{part}{text}");
    }
    let content = |path: &str| fs::read(fixture.path(path)).expect("a file");
    let expected = b"---\r\nname: pdf\r\ndescription: 'Fills forms. Use when: it''s blank.'\r\n\
                    metadata:\r\n  version: 1.50\r\n  author: me\r\n---\r\nBody \xff of pdf.";
    assert_eq!(content("root/pdf/SKILL.md"), expected);
    let mode = |path: &str| fixture.path(path).metadata().expect("a file").mode() & 0o7777;
    assert_eq!(
        (mode("root/pdf/SKILL.md"), mode("root/pdf/scripts/fill.sh")),
        (0o640, 0o750)
    );
    assert!(content("root/web/SKILL.md").starts_with(b"---\nname: web\n"));
    assert!(
        fixture.path("root/two/skill.md").exists() && fixture.path("root/docs/skill.md").exists()
    );

    let fixed = record_files(fixture.top());
    assert_eq!(fixed.len(), before.len(), "no temporary file stays");
    let (exit, text, _) = fix(&fixture, &[]);
    assert_eq!(exit, 0);
    assert!(text.starts_with("nothing to fix\n"), "{text}");
    assert!(
        record_files(fixture.top()) == fixed,
        "a second run changes nothing"
    );
}

#[test]
fn values_in_the_files_of_a_plugin_are_quoted() {
    let fixture = Fixture::new(
        "file root/.claude-plugin/plugin.json\n| {\"name\": \"kit\"}
        file root/commands/go.md\n| ---\n| description: Runs it. Usage: /go [fast]\n| ---\n| Go: on.
        file root/commands/twice.md\n| ---\n| a: 1\n| a: 2\n| ---",
    );
    let kept = fs::read(fixture.path("root/commands/twice.md")).expect("a file");
    let (exit, text, _) = fix(&fixture, &[]);
    assert_eq!(exit, 1, "{text}");
    let diff = "@@ -1,4 +1,4 @@\n ---\n-description: Runs it. Usage: /go [fast]\n\
                +description: 'Runs it. Usage: /go [fast]'\n ---\n Go: on.\n\nfixed 1 file\n";
    assert!(text.contains(diff), "{text}");
    assert!(
        !text.contains("YAML_REPAIRED") && text.contains("error[YAML_SYNTAX]"),
        "{text}"
    );
    assert!(fs::read(fixture.path("root/commands/twice.md")).expect("a file") == kept);
    fs::remove_file(fixture.path("root/commands/twice.md")).expect("a file");
    assert_eq!(fix(&fixture, &[]).1.lines().next(), Some("nothing to fix"));
}

#[test]
fn files_that_are_reached_by_links_stay() {
    let text = "---\nname: A\ndescription: Use when: x\n---\n";
    let mut fixture = Fixture::new("dir root/a\ndir root/b\ndir outside");
    for path in ["outside/SKILL.md", "root/plain.md", "root/hard.md"] {
        fixture.write(path, text);
    }
    fixture.add(
        "link root/a/SKILL.md -> ../plain.md\nhardlink root/b/SKILL.md -> root/hard.md
        link root/c -> ../outside\nfile outside/run.sh\n| #!/bin/sh\ndir root/a/scripts
        link root/a/scripts/run.sh -> ../../../outside/run.sh",
    );
    let before = record_files(&fixture.path("outside"));
    let (exit, output, stderr) = fix(&fixture, &[]);
    assert_eq!((exit, &*stderr), (0, ""), "{output}");
    assert!(output.starts_with("nothing to fix\n"), "{output}");
    for path in ["root/plain.md", "root/hard.md"] {
        assert_eq!(
            fs::read_to_string(fixture.path(path)).expect("a file"),
            text
        );
    }
    assert!(record_files(&fixture.path("outside")) == before);
}

#[test]
fn json_has_the_differences_and_a_failure_has_its_own_exit_code() {
    let fixture = Fixture::new("file root/a/SKILL.md\n| ---\n| name: A\n| description: x\n| ---");
    let (exit, stdout, _) = fix(&fixture, &["--dry-run", "--output", "json"]);
    let report: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(
        (exit, &report["fixes"][0]["path"]),
        (0, &"root/a/SKILL.md".into())
    );
    let diff = report["fixes"][0]["diff"].as_str().expect("text");
    assert!(diff.contains("\n-name: A\n+name: a\n"), "{diff}");
    for args in [&["--watch"][..], &["--dry-run", "--watch"]] {
        assert_eq!(fix(&fixture, args).0, 2, "{args:?}");
    }
    let (exit, ..) = run_caproot(fixture.top(), ["check", "root", "--dry-run"]);
    assert_eq!(exit, 2);
    if is_root() {
        eprintln!("SKIPPED: root may write everywhere");
        return;
    }
    let dir = fixture.path("root/a");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o555)).expect("a mode");
    let (exit, _, stderr) = fix(&fixture, &[]);
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).expect("a mode");
    assert_eq!(exit, 74, "{stderr}");
    assert!(
        stderr.starts_with("caproot: cannot change root/a/SKILL.md: "),
        "{stderr}"
    );
}

#[test]
fn a_file_in_the_wrong_letter_case_fails_a_check_that_denies_warnings_until_it_is_fixed() {
    for name in ["skill.md", "Skill.md", "SKILL.MD"] {
        let fixture = Fixture::new(&format!(
            "skill root/b\nfile root/a/{name}\n| ---\n| name: a\n| description: Use when testing.\n| ---",
        ));
        let (exit, ..) = run_caproot(fixture.top(), ["check", "root"]);
        assert_eq!(exit, 0, "{name}");
        let denying = ["check", "root", "--deny-warnings"];
        let (exit, stdout, _) = run_caproot(fixture.top(), denying);
        assert_eq!(exit, 1, "{stdout}");
        assert!(stdout.starts_with("warning[WRONG_CASE]: "), "{stdout}");
        let (exit, stdout, _) = fix(&fixture, &["--deny-warnings"]);
        assert_eq!(exit, 0, "{stdout}");
        assert!(fixture.path("root/a/SKILL.md").exists());
        assert!(!fixture.path(&format!("root/a/{name}")).exists());
    }
}

#[test]
fn a_directory_with_a_file_in_the_wrong_letter_case_says_so() {
    let fixture = Fixture::new(
        "file root/a/skill.md\n| ---\n| name: a\n| description: Use when testing.\n| ---",
    );
    let (exit, stdout, stderr) = run_caproot(fixture.top(), ["check", "root"]);
    assert_eq!(exit, 1);
    assert!(stdout.starts_with("warning[WRONG_CASE]: "), "{stdout}");
    assert_eq!(
        stderr,
        "caproot: root has neither a skill nor a plugin\n\
         hint: only the exact name SKILL.md makes a skill; rename the file, or run this with --fix\n"
    );
    let (exit, _, stderr) = fix(&fixture, &["--dry-run"]);
    assert_eq!(exit, 1);
    assert!(
        stderr.ends_with("; rename the file, or run this without --dry-run\n"),
        "{stderr}"
    );
    assert_eq!(fix(&fixture, &[]).0, 0);
    let (exit, stdout, _) = run_caproot(fixture.top(), ["check", "root"]);
    assert_eq!(
        (exit, &*stdout),
        (0, "1 skill, 0 errors, 0 warnings, 0 notes in 1 file\n")
    );
}
