//! `caproot config check`, `caproot config example`, and bad files given to `caproot serve`.

use std::fs;
use std::process::Stdio;

use serde_json::Value;

use super::{arg, caproot, run};
use crate::fixture::Fixture;

/// What `config check` says of a file, and its exit code.
fn check(file: &str, more: &[&str]) -> (Option<i32>, String) {
    let ended = run(&[&["config", "check", file], more].concat());
    assert!(ended.stderr.is_empty(), "{}", String::from_utf8_lossy(&ended.stderr));
    (ended.status.code(), String::from_utf8(ended.stdout).expect("text"))
}

#[test]
fn the_example_is_good() {
    let example = run(&["config", "example"]);
    assert_eq!(example.status.code(), Some(0));
    let fixture = Fixture::new("dir etc");
    fixture.write("etc/caproot.yaml", &example.stdout);
    let file = arg(fixture.path("etc/caproot.yaml"));
    let (code, said) = check(&file, &[]);
    assert_eq!(code, Some(0));
    assert_eq!(
        said,
        format!(
            "warning: nothing is published, so callers find no skills: list directories under \
             `roots` in the config file, or start the daemon with --root DIR\n\
             ok: {file}: 1 environment, 1 listener, 0 published roots, 0 additional \
             allowed directories, 0 rules that disable skills, callers: every user who can connect\n"
        )
    );
    let (code, said) = check(&file, &["--output", "json"]);
    let said: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(
        (code, &said["ok"], &said["summary"]["listeners"]),
        (Some(0), &true.into(), &1.into())
    );
}

#[test]
fn directories_and_callers_that_will_not_do_are_warned_of() {
    let uid = rustix::process::geteuid().as_raw();
    let fixture = Fixture::new("dir open\nmode 0755 open\ndir run\nmode 0700 run");
    let file = arg(fixture.path("c.yaml"));
    let said = |config: String| {
        fixture.write("c.yaml", format!("listen: ['unix:run/c.sock']\n{config}"));
        let (code, said) = check(&file, &[]);
        assert_eq!(code, Some(0), "{said}");
        let (_, json) = check(&file, &["--output", "json"]);
        let json: Value = serde_json::from_str(&json).expect("JSON");
        let warnings = json["warnings"].as_array().expect("a list").len();
        assert_eq!(said.lines().filter(|line| line.starts_with("warning: ")).count(), warnings);
        said
    };
    let missing = said("roots: [{id: a, path: none}]\nallow: [nowhere]".to_owned());
    assert!(missing.contains("warning: roots: a: ") && missing.contains("/none does not exist;"));
    assert!(missing.contains("warning: allow: ") && missing.contains("/nowhere does not exist;"));
    let selected = said("allow: [open]".to_owned());
    assert!(selected.contains("warning: no root is published: callers select"), "{selected}");
    for (rule, shuts_out) in [
        ("{name: a, uids: [4242]}".to_owned(), true),
        ("{name: a, sans: [a.example]}".to_owned(), true),
        ("{name: a, uids: [root]}".to_owned(), false),
        ("{name: a, gids: [0]}".to_owned(), false),
    ] {
        let said = said(format!("roots: [{{id: a, path: open}}]\ncallers: [{rule}]"));
        assert_eq!(said.contains("no rule matches root or the daemon's user"), shuts_out, "{said}");
    }
    if uid == 0 {
        println!("SKIPPED: root may read every directory");
        return;
    }
    std::os::unix::fs::symlink("/root", fixture.path("closed")).expect("a link");
    let closed = said("roots: [{id: a, path: closed}]".to_owned());
    assert!(closed.contains("cannot be read by this user; grant access"), "{closed}");
}

const WRONG: &str = "listen: ['unix:run/c.sock', 'tcp:0.0.0.0:1']\nlimts: {}\nroots:\n- id: a\n";

#[test]
fn every_mistake_with_its_place() {
    let fixture = Fixture::new("dir run\nmode 0700 run");
    fixture.write("c.yaml", WRONG);
    let file = arg(fixture.path("c.yaml"));
    let expected = [
        "1:29: listen[1]: invalid value \"tcp:0.0.0.0:1\": other machines could connect without TLS; \
         configure `tls`, or use a loopback address, such as tcp:127.0.0.1:1",
        "2:1: limts: unknown key; did you mean `limits`?",
        "4:3: roots[0].path: required key is missing",
    ];
    let (code, said) = check(&file, &[]);
    assert_eq!(code, Some(78));
    let lines = expected.map(|line| format!("{file}:{line}"));
    assert_eq!(said.lines().collect::<Vec<_>>(), lines);
    let (code, said) = check(&file, &["--output", "json"]);
    let said: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!((code, &said["ok"]), (Some(78), &false.into()));
    let first = &said["errors"][0];
    assert_eq!((&first["line"], &first["column"]), (&1.into(), &29.into()));
    assert_eq!(
        (&first["key"], &first["value"]),
        (&"listen[1]".into(), &"\"tcp:0.0.0.0:1\"".into())
    );
    // The daemon says the same, and binds nothing.
    let served = run(&["serve", "--config", &file]);
    assert_eq!(served.status.code(), Some(78));
    let stderr = String::from_utf8(served.stderr).expect("text");
    let lines = lines.map(|line| format!("caproot: {line}"));
    assert_eq!(stderr.lines().collect::<Vec<_>>(), lines);
    assert_eq!(fs::read_dir(fixture.path("run")).expect("a directory").count(), 0);
}

#[test]
fn files_that_are_no_config() {
    let fixture = Fixture::new(
        "sparse 104857600 large\nfile latin\n| log:\n|   filter: \\xe9\nfile broken\n| a: [1\n| b: 2",
    );
    for (file, says) in [
        (arg(fixture.path("large")), ": is larger than 1 MiB, the limit of config files"),
        (arg(fixture.path("latin")), ":2:11: invalid UTF-8; save the file as UTF-8"),
        (arg(fixture.path("broken")), ":2:2: YAML: "),
        (arg(fixture.path("none")), ": no such file"),
        (arg(fixture.path(".")), ": is a directory; name the file in it"),
        ("/dev/zero".to_owned(), ": is larger than 1 MiB, the limit of config files"),
    ] {
        let (code, said) = check(&file, &[]);
        assert_eq!(code, Some(78), "{file}");
        assert!(said.starts_with(&format!("{file}{says}")), "{said}");
        let served = run(&["serve", "--config", &file]);
        assert_eq!(served.status.code(), Some(78), "{file}");
        assert_eq!(String::from_utf8(served.stderr).expect("text"), format!("caproot: {said}"));
    }
}

#[test]
fn a_reader_that_leaves_early_changes_nothing() {
    for (args, code) in [(&["config", "example"][..], 0), (&["config", "check", "/none"], 78)] {
        let mut child = caproot(args).stdout(Stdio::piped()).spawn().expect("the binary runs");
        drop(child.stdout.take());
        let ended = child.wait_with_output().expect("it ends");
        assert!(ended.stderr.is_empty(), "{}", String::from_utf8_lossy(&ended.stderr));
        assert_eq!(ended.status.code(), Some(code), "{args:?}");
    }
}
