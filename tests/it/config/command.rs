//! `caproot config check`, `caproot config example`, and invalid files given to `caproot serve`.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use serde_json::Value;

use super::arg;
use crate::harness::fixture::Fixture;
use crate::harness::process::{Process, caproot, program, run_blocking};

/// Runs `config check` for a file. Returns the exit code and the output.
fn check_config(file: &str, more: &[&str]) -> (Option<i32>, String) {
    let ended = run_blocking(caproot(["config", "check", file]).args(more));
    assert!(ended.stderr.is_empty(), "{}", ended.stderr);
    (ended.code, ended.text().to_owned())
}

#[test]
fn the_example_is_valid() {
    let example = run_blocking(caproot(["config", "example"])).succeeded();
    let fixture = Fixture::new("dir etc");
    fixture.write("etc/caproot.yaml", &example.stdout);
    let file = arg(fixture.path("etc/caproot.yaml"));
    let (code, output) = check_config(&file, &[]);
    assert_eq!(code, Some(0));
    let start = "warning: nothing is published, so callers find no skills: ";
    let rest = output.strip_prefix(start).expect(&output);
    // The directories that may be created depend on the home directory.
    let (_, rest) = rest.rsplit_once("; or ").unwrap_or(("", rest));
    assert_eq!(
        rest,
        format!(
            "list directories under `roots` in the config file, or start the daemon with --root DIR\n\
             ok: {file}: 1 environment, 1 listener, 0 published roots, 0 additional \
             allowed directories, 0 rules that disable skills, callers: every user who can connect\n"
        )
    );
    let (code, json) = check_config(&file, &["--output", "json"]);
    let report: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(
        (code, &report["ok"], &report["summary"]["listeners"]),
        (Some(0), &true.into(), &1.into())
    );
}

/// Each config of the page is whole: a reader can copy the block.
#[test]
fn the_configs_of_the_access_page_are_valid() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operate/access.md");
    let page = fs::read_to_string(page).expect("the page");
    let fixture = Fixture::new("dir team\ndir demo\nfile job.token\n| secret\nmode 0600 job.token");
    let top = arg(fixture.top());

    let mut count = 0;
    for block in page.split("```yaml\n").skip(1) {
        let (config, _) = block.split_once("```").expect("an end");
        // The machine of the test has no such user.
        let config = config.replace("/srv", &top).replace("codex", "1500");
        fixture.write("caproot.yaml", &config);
        let (code, output) = check_config(&arg(fixture.path("caproot.yaml")), &[]);
        assert_eq!(code, Some(0), "{config}{output}");
        assert!(output.starts_with("ok: "), "{config}{output}");
        count += 1;
    }
    assert_eq!(count, 2);
}

#[test]
fn secrets_that_the_group_of_a_socket_can_read_are_found() {
    let fixture = Fixture::new("dir run\nmode 0700 run\nfile token\n| secret");
    let token = fixture.path("token");
    let group = fs::metadata(&token).expect("a file").gid();
    let file = arg(fixture.path("c.yaml"));
    for (socket, mode, is_exposed) in [
        ("{mode: '0600'}".to_owned(), 0o640, false),
        ("{mode: '0660'}".to_owned(), 0o640, true),
        (format!("{{group: {group}}}"), 0o640, true),
        (format!("{{group: {group}}}"), 0o600, false),
        (format!("{{group: {}}}", group + 1), 0o640, false),
    ] {
        fs::set_permissions(&token, Permissions::from_mode(mode)).expect("a mode");
        let config = format!(
            "listen: ['unix:run/c.sock']\nsocket: {socket}\n\
             callers: [{{name: operator, uids: [0]}}, {{name: job, token_file: token}}]\n"
        );
        fixture.write("c.yaml", config);
        let (code, output) = check_config(&file, &[]);
        let expected = format!(
            "{file}:3:64: callers[1].token_file: invalid value \"token\": is accessible to group \
             {group} (mode {mode:04o}), whose members can connect to a socket of the daemon; run \
             `chmod 0600` on it, or give it another group\n"
        );
        let is_rejected = (code, &*output) == (Some(78), &*expected);
        assert_eq!(is_rejected, is_exposed, "{socket} {mode:o}: {output}");
        assert!(is_exposed || code == Some(0), "{output}");
    }
}

#[test]
fn unusable_directories_and_callers_give_warnings() {
    let uid = rustix::process::geteuid().as_raw();
    let fixture = Fixture::new("dir open\nmode 0755 open\ndir run\nmode 0700 run");
    let file = arg(fixture.path("c.yaml"));
    let check_section = |config: String| {
        fixture.write("c.yaml", format!("listen: ['unix:run/c.sock']\n{config}"));
        let (code, output) = check_config(&file, &[]);
        assert_eq!(code, Some(0), "{output}");
        let (_, json) = check_config(&file, &["--output", "json"]);
        let json: Value = serde_json::from_str(&json).expect("JSON");
        let warnings = json["warnings"].as_array().expect("a list").len();
        assert_eq!(
            output
                .lines()
                .filter(|line| line.starts_with("warning: "))
                .count(),
            warnings
        );
        output
    };
    let missing = check_section("roots: [{id: a, path: none}]\nallow: [nowhere]".to_owned());
    assert!(missing.contains("warning: a: ") && missing.contains("/none does not exist;"));
    assert!(missing.contains("warning: allow: ") && missing.contains("/nowhere does not exist;"));
    let selected = check_section("allow: [open]".to_owned());
    assert!(
        selected.contains("warning: no root is published: callers select"),
        "{selected}"
    );
    for (rule, locks_out) in [
        ("{name: a, uids: [4242]}".to_owned(), true),
        ("{name: a, sans: [a.example]}".to_owned(), true),
        ("{name: a, uids: [root]}".to_owned(), false),
        ("{name: a, gids: [0]}".to_owned(), false),
    ] {
        let output = check_section(format!("roots: [{{id: a, path: open}}]\ncallers: [{rule}]"));
        assert_eq!(
            output.contains("no rule matches root or the daemon's user"),
            locks_out,
            "{output}"
        );
    }
    if uid == 0 {
        println!("SKIPPED: root may read every directory");
        return;
    }
    std::os::unix::fs::symlink("/root", fixture.path("closed")).expect("a link");
    let closed = check_section("roots: [{id: a, path: closed}]".to_owned());
    assert!(
        closed.contains("cannot be read by this user; grant access"),
        "{closed}"
    );
}

const WRONG: &str = "listen: ['unix:run/c.sock', 'tcp:0.0.0.0:1']\nlimts: {}\nroots:\n- id: a\n";

#[test]
fn every_error_names_its_place() {
    let fixture = Fixture::new("dir run\nmode 0700 run");
    fixture.write("c.yaml", WRONG);
    let file = arg(fixture.path("c.yaml"));
    let expected = [
        "1:29: listen[1]: invalid value \"tcp:0.0.0.0:1\": other machines could connect without TLS; \
         configure `tls`, or use a loopback address, such as tcp:127.0.0.1:1",
        "2:1: limts: unknown key; did you mean `limits`?",
        "4:3: roots[0].path: required key is missing",
    ];
    let (code, output) = check_config(&file, &[]);
    assert_eq!(code, Some(78));
    let lines = expected.map(|line| format!("{file}:{line}"));
    assert_eq!(output.lines().collect::<Vec<_>>(), lines);
    let (code, json) = check_config(&file, &["--output", "json"]);
    let report: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((code, &report["ok"]), (Some(78), &false.into()));
    let first = &report["errors"][0];
    assert_eq!((&first["line"], &first["column"]), (&1.into(), &29.into()));
    assert_eq!(
        (&first["key"], &first["value"]),
        (&"listen[1]".into(), &"\"tcp:0.0.0.0:1\"".into())
    );
    // The daemon reports the same errors, and binds no socket.
    let serve = run_blocking(caproot(["serve", "--config", &file]));
    assert_eq!(serve.code, Some(78));
    let lines = lines.map(|line| format!("caproot: {line}"));
    assert_eq!(serve.stderr.lines().collect::<Vec<_>>(), lines);
    assert_eq!(
        fs::read_dir(fixture.path("run"))
            .expect("a directory")
            .count(),
        0
    );
}

#[test]
fn unreadable_files_are_rejected() {
    let fixture = Fixture::new(
        "sparse 104857600 large\nfile latin\n| log:\n|   f\\xc3\\xa4: \\xe9\nfile broken\n| a: [1\n| b: 2",
    );
    fixture.write("over", vec![b'#'; (1 << 20) + 1]);
    for (file, message) in [
        (
            arg(fixture.path("over")),
            ": is over 1 MiB, the limit of such files",
        ),
        (
            arg(fixture.path("large")),
            ": is over 1 MiB, the limit of such files",
        ),
        (
            arg(fixture.path("latin")),
            ":2:7: invalid UTF-8; save the file as UTF-8",
        ),
        (arg(fixture.path("broken")), ":2:2: YAML: "),
        (arg(fixture.path("none")), ": does not exist"),
        (arg(fixture.path(".")), ": is a directory; name a file"),
        ("/dev/zero".to_owned(), ": is not a regular file"),
    ] {
        let (code, output) = check_config(&file, &[]);
        assert_eq!(code, Some(78), "{file}");
        assert!(output.starts_with(&format!("{file}{message}")), "{output}");
        let serve = run_blocking(caproot(["serve", "--config", &file]));
        assert_eq!(serve.code, Some(78), "{file}");
        assert_eq!(serve.stderr, format!("caproot: {output}"));
    }
    fixture.write("over", vec![b'#'; 1 << 20]);
    assert_eq!(check_config(&arg(fixture.path("over")), &[]).0, Some(0));
}

#[tokio::test]
async fn a_closed_pipe_keeps_the_exit_code() {
    for (args, code) in [
        (&["config", "example"][..], 0),
        (&["config", "check", "/none"], 78),
    ] {
        let (process, stdout) = Process::spawn_unread(caproot(args));
        drop(stdout);
        let ended = process.exit().await;
        assert_eq!(
            (ended.code, ended.stderr.as_str()),
            (Some(code), ""),
            "{args:?}"
        );
    }
}

#[test]
fn a_pipe_is_checked() {
    let binary = env!("CARGO_BIN_EXE_caproot");
    let script = format!("{binary} config example | {binary} config check /dev/stdin");
    let ended = run_blocking(program("sh").args(["-c", &script])).succeeded();
    assert!(
        ended.text().contains("ok: /dev/stdin: "),
        "{}",
        ended.text()
    );
    let script = format!("echo 'limts: 1' | {binary} config check /dev/stdin");
    let ended = run_blocking(program("sh").args(["-c", &script]));
    assert_eq!(ended.code, Some(78), "{}", ended.stderr);
    let error = "/dev/stdin:1:1: limts: unknown key";
    assert!(ended.text().contains(error), "{}", ended.text());
}
