//! Output formats, exit codes, and messages about directories that cannot be checked.

use super::{check_json, run_caproot};
use crate::harness::fixture::Fixture;
use serde_json::Value;

const WARNED: &str = "file root/w/SKILL.md\n| ---\n| name: W\n| description: d\n| ---\n";
const BROKEN: &str = "file root/b/SKILL.md\n| # nothing\n";

#[test]
fn exit_codes_report_errors_warnings_and_empty_directories() {
    for (tree, args, expected) in [
        ("skill root/a", vec!["root"], 0),
        ("skill root/a", vec!["root", "--deny-warnings"], 0),
        ("dir root", vec!["root"], 1),
        ("dir root", vec!["root", "--allow-empty"], 0),
        ("dir root", vec!["root", "--output", "json"], 1),
        ("dir root", vec!["root", "--output", "sarif"], 1),
        ("dir root\nskill two/a", vec!["two", "root"], 1),
        (
            "dir root\nskill two/a",
            vec!["two", "root", "--allow-empty"],
            0,
        ),
        (
            "file root/.claude-plugin/plugin.json\n| {}",
            vec!["root"],
            0,
        ),
        (BROKEN, vec!["root", "--allow-empty"], 1),
        (WARNED, vec!["root"], 0),
        (WARNED, vec!["root", "--deny-warnings"], 1),
        (BROKEN, vec!["root"], 1),
        (BROKEN, vec!["root", "--output", "json"], 1),
        (BROKEN, vec!["root", "--output", "sarif"], 1),
        (BROKEN, vec!["gone"], 78),
        (BROKEN, vec!["gone", "root"], 78),
        (BROKEN, vec![], 2),
    ] {
        let fixture = Fixture::new(tree);
        let args = std::iter::once("check").chain(args.iter().copied());
        let (exit, stdout, stderr) = run_caproot(fixture.top(), args.clone());
        assert_eq!(
            exit,
            expected,
            "{:?} {stdout}{stderr}",
            args.collect::<Vec<_>>()
        );
    }
}

#[test]
fn every_directory_is_checked_and_every_other_argument_is_reported() {
    let fixture = Fixture::new(&format!(
        "{WARNED}skill two/x\nfile plain\n| x\nlink nowhere -> gone"
    ));
    let args = [
        "check",
        "plain",
        "root",
        "gone",
        "nowhere",
        "root/w/SKILL.md",
        "two",
    ];
    let (exit, stdout, stderr) = run_caproot(fixture.top(), args);
    assert_eq!(exit, 78);
    assert!(
        stdout.contains("2 skills, 0 errors, 2 warnings, 2 notes in 2 files"),
        "{stdout}"
    );
    assert_eq!(
        stderr,
        "caproot: cannot check plain: not a directory\n\
         caproot: cannot check gone: no such directory\n\
         caproot: cannot check nowhere: no such directory\n\
         caproot: cannot check root/w/SKILL.md: not a directory; name the directory that contains the file\n"
    );
}

#[test]
fn an_empty_directory_is_reported() {
    let fixture = Fixture::new("skill root/a\ndir none\ndir also/none");
    let (exit, stdout, stderr) = run_caproot(fixture.top(), ["check", "none", "root", "also"]);
    assert_eq!(exit, 1);
    assert!(stdout.contains("1 skill, 0 errors"), "{stdout}");
    assert_eq!(
        stderr,
        "caproot: none has neither a skill nor a plugin\n\
         caproot: also has neither a skill nor a plugin\n\
         hint: a skill is a directory with a SKILL.md; see --allow-empty\n"
    );
    // With an error, no hint is needed: the error explains the missing skill.
    let fixture = Fixture::new(BROKEN);
    let (exit, _, stderr) = run_caproot(fixture.top(), ["check", "root"]);
    assert_eq!((exit, &*stderr), (1, ""));
}

#[test]
fn paths_begin_with_the_directory_as_given() {
    let fixture = Fixture::new(WARNED);
    let absolute = fixture.path("root");
    let absolute = absolute.to_str().expect("UTF-8");
    for (dir, given, shown) in [
        (".", "root", "root/w/SKILL.md".to_owned()),
        (".", "./root/", "./root/w/SKILL.md".to_owned()),
        ("root", ".", "w/SKILL.md".to_owned()),
        ("root/w", "..", "../w/SKILL.md".to_owned()),
        (".", absolute, format!("{absolute}/w/SKILL.md")),
    ] {
        let dir = fixture.path(dir);
        let (_, stdout, _) = run_caproot(&dir, ["check", given]);
        assert!(
            stdout.contains(&format!("\n --> {shown}:2:1\n")),
            "{stdout}"
        );
        assert_eq!(check_json(&dir, given)["diagnostics"][0]["path"], shown);
    }
    // A missing name is taken from the directory, in every spelling of its path.
    fixture.write("root/w/SKILL.md", "---\ndescription: No name.\n---\n");
    for given in [".", "./", "x/.."] {
        std::fs::create_dir_all(fixture.path("root/w/x")).expect("a directory");
        assert_eq!(
            check_json(&fixture.path("root/w"), given)["skills"][0]["name"],
            "w"
        );
    }
}

#[test]
fn notes_are_shown_when_asked_for() {
    let fixture = Fixture::new("file root/a/skill.md\n| x\nskill root/b");
    let (_, quiet, _) = run_caproot(fixture.top(), ["check", "root"]);
    let summary = "1 skill, 0 errors, 1 warning, 1 note in 2 files";
    assert!(quiet.starts_with("warning[WRONG_CASE]: ") && !quiet.contains("note["));
    assert!(quiet.ends_with(&format!("{summary} (--notes shows the notes)\n")));
    let (_, all, _) = run_caproot(fixture.top(), ["check", "root", "--notes"]);
    assert!(all.contains("\nnote[USE_NOT_DESCRIBED]: ") && all.ends_with(&format!("{summary}\n")));
    assert_eq!(
        check_json(fixture.top(), "root")["diagnostics"][0]["code"],
        "WRONG_CASE"
    );
}

#[test]
fn json_is_one_object() {
    let report = check_json(Fixture::new(&format!("{WARNED}{BROKEN}")).top(), "root");
    let keys = |value: &Value| {
        value
            .as_object()
            .expect("an object")
            .keys()
            .cloned()
            .collect()
    };
    let keys: Vec<Vec<String>> = [&report, &report["skills"][0], &report["diagnostics"][0]]
        .map(keys)
        .into();
    assert_eq!(
        keys[0],
        ["diagnostics", "fixes", "skills", "summary", "unchecked"]
    );
    assert_eq!(
        keys[1],
        ["bareName", "description", "name", "path", "plugin"]
    );
    let all = [
        "code", "column", "help", "line", "message", "path", "severity",
    ];
    assert_eq!(keys[2], all);
    let summary = serde_json::json!({
        "skills": 1, "errors": 1, "warnings": 2, "notes": 1, "files": 2, "droppedDiagnostics": 0,
    });
    assert_eq!(report["summary"], summary);
}

#[test]
fn sarif_has_the_fields_that_its_readers_need() {
    let fixture = Fixture::new(&format!("{WARNED}{BROKEN}file root/a b/skill.md\n| x"));
    let absolute = fixture.path("root");
    let absolute = absolute.to_str().expect("UTF-8");
    for given in ["root", "./root", absolute] {
        let (_, stdout, _) =
            run_caproot(fixture.top(), ["check", "--output", "sarif", given, "gone"]);
        let log: Value = serde_json::from_str(&stdout).expect("JSON");
        assert_eq!(log["version"], "2.1.0");
        assert!(
            log["$schema"]
                .as_str()
                .is_some_and(|uri| uri.ends_with("sarif-schema-2.1.0.json"))
        );
        let [run] = &log["runs"].as_array().expect("runs")[..] else {
            panic!("one run")
        };
        assert_eq!(run["columnKind"], "unicodeCodePoints");
        let driver = &run["tool"]["driver"];
        assert_eq!(driver["name"], "caproot");
        let rules = driver["rules"].as_array().expect("rules");
        for rule in rules {
            for text in [
                "/shortDescription/text",
                "/fullDescription/text",
                "/help/text",
                "/help/markdown",
            ] {
                let text = rule.pointer(text).and_then(Value::as_str);
                assert!(text.is_some_and(|text| !text.is_empty()), "{rule}");
            }
            assert!(is_level(&rule["defaultConfiguration"]["level"]), "{rule}");
        }
        let results = run["results"].as_array().expect("results");
        assert_eq!(results.len(), 5);
        for rule in rules {
            let mut codes = results.iter().map(|result| &result["ruleId"]);
            assert!(
                codes.any(|code| *code == rule["id"]),
                "{rule} does not occur"
            );
        }
        for result in results {
            let index = usize::try_from(result["ruleIndex"].as_u64().expect("an index"));
            assert_eq!(rules[index.expect("small")]["id"], result["ruleId"]);
            assert!(is_level(&result["level"]), "{result}");
            assert!(
                result["message"]["text"]
                    .as_str()
                    .is_some_and(|text| !text.is_empty())
            );
            let location = &result["locations"][0]["physicalLocation"];
            let uri = location["artifactLocation"]["uri"].as_str().expect("a URI");
            assert!(
                uri.starts_with("root/") && !uri.contains(' '),
                "relative: {uri}"
            );
            let region = &location["region"];
            let at = |key: &str| region[key].as_u64();
            let is_file = result["ruleId"] == "WRONG_CASE";
            assert!(
                if is_file {
                    region.is_null()
                } else {
                    at("startLine") >= Some(1)
                },
                "{result}"
            );
            assert!(region.is_null() || at("startColumn") >= Some(1), "{result}");
        }
        let invocation = &run["invocations"][0];
        assert_eq!(invocation["executionSuccessful"], false);
        let notification = &invocation["toolExecutionNotifications"][0]["message"]["text"];
        assert_eq!(notification, "gone: no such directory");
    }
}

#[test]
fn github_gets_one_command_for_each_finding_that_is_shown() {
    let fixture = Fixture::new(&format!("{WARNED}{BROKEN}file root/x,y/skill.md\n| x"));
    let absolute = fixture.path("root");
    let absolute = absolute.to_str().expect("UTF-8");
    for given in ["root", "./root", absolute] {
        let args = ["check", "--output", "github", given];
        let (exit, stdout, stderr) = run_caproot(fixture.top(), args);
        assert_eq!((exit, &*stderr), (1, ""));
        let lines: Vec<&str> = stdout.lines().collect();
        let [broken, first, second, wrong_case, summary] = lines[..] else {
            panic!("{stdout}")
        };
        let start = "::error file=root/b/SKILL.md,line=1,col=1,title=NO_FRONTMATTER::";
        assert!(
            broken.starts_with(start) && broken.contains("%0Ahelp: "),
            "{broken}"
        );
        for line in [first, second] {
            let start = "::warning file=root/w/SKILL.md,line=2,col=1,title=NAME_INVALID::";
            assert!(line.starts_with(start), "{line}");
        }
        let start = "::warning file=root/x%2Cy/skill.md,title=WRONG_CASE::";
        assert!(wrong_case.starts_with(start), "{wrong_case}");
        let counts = "1 skill, 1 error, 3 warnings, 1 note in 3 files (--notes shows the notes)";
        assert_eq!(summary, counts);
    }

    let args = ["check", "--output", "github", "--notes", "root"];
    let (_, stdout, _) = run_caproot(fixture.top(), args);
    assert!(
        stdout.contains("\n::notice file=root/w/SKILL.md,"),
        "{stdout}"
    );
}

fn is_level(value: &Value) -> bool {
    value
        .as_str()
        .is_some_and(|level| ["error", "warning", "note"].contains(&level))
}
