//! The client commands as processes, against a real daemon: text, JSON, exit codes.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::pipe;
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::harness::{Daemon, Setup, in_time, surroundings};

/// How a process ended, and what it said.
pub(crate) struct Ended {
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Ended {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("text")
    }

    fn json(&self) -> Value {
        assert_eq!(self.text().lines().count(), 1, "one object: {}", self.text());
        serde_json::from_slice(&self.stdout).expect("JSON")
    }
}

/// The binary, with surroundings of its own.
pub(crate) fn caproot<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_caproot"));
    command.args(args).env_clear().env("HOME", "/nonexistent").stdin(Stdio::null());
    command
}

/// Runs a process to its end, elsewhere, so that a daemon in this thread goes on.
pub(crate) async fn ended(mut command: Command) -> Ended {
    let output = in_time(tokio::task::spawn_blocking(move || command.output())).await;
    let output = output.expect("no panic").expect("the binary runs");
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert!(!stderr.contains("panicked"), "{stderr}");
    Ended { code: output.status.code(), stdout: output.stdout, stderr }
}

/// A client command of the daemon, its words split at blanks.
pub(crate) fn asking(daemon: &Daemon, words: &str) -> Command {
    let mut command = caproot(words.split_whitespace());
    command.env("CAPROOT_ENDPOINT", format!("tcp:{}", daemon.address));
    command
}

async fn run(daemon: &Daemon, words: &str) -> Ended {
    ended(asking(daemon, words)).await
}

/// A daemon that publishes `skills`, whose skill `pdf` has a script.
async fn publishing(more: &str) -> (Fixture, Daemon) {
    let fixture = Fixture::new(&format!(
        "skill skills/pdf\nfile skills/pdf/scripts/fill.py\n| #!\nmode 0755 skills/pdf/scripts/fill.py
        {more}"
    ));
    let daemon = Daemon::start(Setup::publishing("skills", fixture.path("skills"))).await;
    (fixture, daemon)
}

#[tokio::test]
async fn roots() {
    let fixture = Fixture::new("skill good/a");
    let root = |id: &str, dir| (Some(id.to_owned()), fixture.path(dir));
    let setup = Setup { roots: vec![root("good", "good"), root("new", "new")], ..Setup::default() };
    let daemon = Daemon::start(setup).await;
    let said = run(&daemon, "roots").await;
    assert_eq!(said.code, Some(1), "a root is not ready");
    let expected =
        ["ID    SCOPE  STATE", "good  USER   READY", "new   USER   UNAVAILABLE NOT_FOUND"];
    assert_eq!(said.text().lines().collect::<Vec<_>>(), expected);
    let [problem, summary] = said.stderr.lines().collect::<Vec<_>>()[..] else { panic!() };
    assert!(problem.starts_with("error[NOT_FOUND] root new: "), "{problem}");
    assert_eq!(summary, "published: 2 roots (1 not ready)");
    fs::create_dir(fixture.path("new")).expect("a directory");
    // Published roots have no call of their own that waits for a change.
    assert_eq!(run(&daemon, "resolve --fresh").await.code, Some(0));
    let said = run(&daemon, "roots --output json").await;
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    let answer = said.json();
    assert_eq!(answer["roots"][1]["state"], "ROOT_STATE_READY");
    assert_eq!(
        answer["roots"][0]["selectedCapabilityRoot"]["location"],
        json!({"type": "environment", "environmentId": "local", "path": "published:good"})
    );
    daemon.stop().await;
}

#[tokio::test]
async fn resolve() {
    let manifest =
        "file skills/.codex-plugin/plugin.json\n| {\"name\":\"kit\",\"version\":\"1.2\"}";
    let more = format!("{manifest}\nfile skills/bad/SKILL.md\n| no fence\nfile one/SKILL.md");
    let (fixture, daemon) = publishing(&more).await;
    let said = run(&daemon, "resolve").await;
    assert_eq!(said.code, Some(0));
    let line = said.text().lines().nth(1).expect("a root");
    assert!(line.starts_with("skills  READY  PLUGIN kit 1.2: 1 skill, 1 left out; "), "{line}");
    assert!(said.stderr.contains("error[NO_FRONTMATTER] skill://skills/bad/SKILL.md"));
    assert!(said.stderr.ends_with("1 root, 1 error\n"), "{}", said.stderr);

    let selected = json!({"selectedCapabilityRoots": [
        {"id": "x", "location": {"environmentId": "local", "path": fixture.path("skills")}},
        {"id": "y", "location": {"environmentId": "elsewhere", "path": "/"}},
    ]});
    fixture.write("selected.json", selected.to_string());
    let file = fixture.path("selected.json");
    let mut from_file = asking(&daemon, "resolve --fresh --output json");
    from_file.arg("--selected").arg(&file);
    let mut from_stdin = asking(&daemon, "resolve --output json --selected -");
    from_stdin.stdin(fs::File::open(&file).expect("just written"));
    for command in [from_file, from_stdin] {
        let said = ended(command).await;
        assert_eq!((said.code, said.stderr.as_str()), (Some(1), ""), "y is not ready");
        let roots = said.json()["roots"].clone();
        assert_eq!((&roots[0]["id"], &roots[0]["kind"]), (&json!("x"), &json!("ROOT_KIND_PLUGIN")));
        assert_eq!(roots[0]["plugin"], json!({"name": "kit", "version": "1.2"}));
        assert_eq!(roots[0]["diagnostics"][0]["code"], "DIAGNOSTIC_CODE_NO_FRONTMATTER");
        assert_eq!(roots[1]["reason"], "ROOT_REASON_WRONG_ENVIRONMENT");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn resources() {
    let (_fixture, daemon) =
        publishing("skill skills/many\nrepeat 1200 file skills/many/f{}").await;
    let said = run(&daemon, "resources skill://skills/pdf").await;
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), "2 files, 57 bytes\n"));
    let expected = [
        "BYTES  X  TYPE           RESOURCE",
        "54     -  text/markdown  skill://skills/pdf/SKILL.md",
        "3      x  text/plain     skill://skills/pdf/scripts/fill.py",
    ];
    assert_eq!(said.text().lines().collect::<Vec<_>>(), expected);

    let digest = crate::reads::digest(b"#!\n");
    let said = run(&daemon, "resources skill://skills/pdf --digests").await;
    let line = said.text().lines().nth(2).expect("two files").to_owned();
    assert!(line.contains(&format!("  {digest}  skill://skills/pdf/scripts/fill.py")), "{line}");
    let said = run(&daemon, "resources skill://skills/pdf --digests --output json").await;
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    assert_eq!(
        said.json()["resources"][1],
        json!({"resource": "skill://skills/pdf/scripts/fill.py", "sizeBytes": "3",
            "mediaType": "text/plain", "executable": true, "digest": digest})
    );

    let said = run(&daemon, "resources skill://skills/many --output json").await.json();
    assert_eq!(said["resources"].as_array().map(Vec::len), Some(1_201), "pages are merged");
    assert_eq!(said.get("nextPageToken"), None);
    daemon.stop().await;
}

#[tokio::test]
async fn path() {
    let more = "file skills/pdf/\\xff\nfile shared/x\nlink skills/pdf/out -> $TMP/shared/x
        link skills/pdf/in -> scripts\nfile skills/pdf/.env";
    let fixture = Fixture::new(&format!(
        "skill skills/pdf\nfile skills/pdf/scripts/fill.py\n{more}\nskill other/pdf"
    ));
    let root = (Some("skills".to_owned()), fixture.path("skills"));
    let allow = vec![fixture.path("shared"), fixture.path("other")];
    let setup = Setup { roots: vec![root], allow, ..Setup::default() };
    let daemon = Daemon::start(setup).await;
    let at = |handle: &str, more: &[&OsStr]| {
        let mut command = asking(&daemon, "path");
        let mut root = OsString::from("skills=");
        root.push(fixture.path("skills"));
        command.arg(handle).arg("--root").arg(root).args(more);
        ended(command)
    };
    let printed = |path: &str| [fixture.path(path).as_os_str().as_bytes(), b"\n"].concat();
    let shared = fixture.path("shared");
    let allow = [OsStr::new("--allow"), shared.as_os_str()];
    let found: [(&str, &[&OsStr], &str); 5] = [
        ("skill://skills/pdf", &[], "skills/pdf"),
        ("skill://skills/pdf/scripts/fill.py", &[], "skills/pdf/scripts/fill.py"),
        ("skill://skills/pdf/in/fill.py", &[], "skills/pdf/scripts/fill.py"),
        ("skill://skills/pdf/%FF", &[], "skills/pdf/\\xff"),
        ("skill://skills/pdf/out", &allow, "shared/x"),
    ];
    for (handle, more, path) in found {
        let said = at(handle, more).await;
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{handle}");
        assert_eq!(said.stdout, printed(path));
    }
    let json = [OsStr::new("--output"), OsStr::new("json")];
    let said = at("skill://skills/pdf", &json).await.json();
    assert_eq!(said["path"], fixture.path("skills/pdf").to_str().expect("UTF-8"));
    assert!(said["uri"].as_str().expect("a URI").starts_with("file:///"));
    let said = at("skill://skills/pdf/%FF", &json).await.json();
    assert_eq!(
        (said.get("path"), said["uri"].as_str().expect("a URI").ends_with("/%FF")),
        (None, true)
    );

    for (handle, code, says) in [
        ("skill://skills/pdf/out", 78, "--allow DIR"),
        ("skill://skills/pdf/none", 4, "no such file"),
        ("skill://skills/pdf/.env", 4, "no such file"),
        ("skill://skills/pdf/scripts", 4, "no such file"),
        ("skill://skills/none", 4, "PACKAGE_NOT_FOUND"),
        ("skill://elsewhere/x", 4, "unknown root"),
        ("skill://skills/pdf/../pdf", 4, "no such file"),
        ("skill:pdf", 2, "skill://ROOT"),
    ] {
        let said = at(handle, &[]).await;
        assert_eq!((said.code, said.text()), (Some(code), ""), "{handle}: {}", said.stderr);
        assert!(said.stderr.contains(says), "{handle}: {}", said.stderr);
    }
    // The daemon does not say where a published root is.
    let said = run(&daemon, "path skill://skills/pdf").await;
    assert_eq!(said.code, Some(78));
    for part in ["/etc/caproot/caproot.yaml cannot be read", "--config FILE", "--root ID=DIR"] {
        assert!(said.stderr.contains(part), "{part} in {}", said.stderr);
    }
    daemon.stop().await;
}

#[tokio::test]
async fn path_by_the_config_file() {
    let (fixture, daemon) = publishing("skill other/pdf\nfile other/pdf/more").await;
    let with = |config: &str, handle: &str| {
        fixture.write("caproot.yaml", config);
        let mut command = asking(&daemon, "path");
        command.arg(handle).arg("--config").arg(fixture.path("caproot.yaml"));
        ended(command)
    };
    // The command reads no key, which this user may not be able to read.
    let good = "roots: [{id: skills, path: skills}]\ntls: {cert: /none.pem, key: /none.key}";
    for (handle, path) in [
        ("skill://skills/pdf", "skills/pdf"),
        ("skill://skills/pdf/scripts/fill.py", "skills/pdf/scripts/fill.py"),
        ("pdf", "skills/pdf"),
    ] {
        let said = with(good, handle).await;
        let expected = fixture.path(path);
        assert_eq!(said.text().trim_end(), expected.to_str().expect("UTF-8"), "{}", said.stderr);
    }
    for (config, says) in [
        ("roots: [{id: other, path: skills}]", "does not publish"),
        ("roots: [{id: skills, path: nowhere}]", "another skill in"),
        ("roots: {", "caproot.yaml:1:"),
        ("", "does not publish"),
    ] {
        let said = with(config, "pdf").await;
        assert_eq!((said.code, said.text()), (Some(78), ""), "{config}: {}", said.stderr);
        assert!(said.stderr.contains(says), "{config}: {}", said.stderr);
        assert!(said.stderr.contains("--root ID=DIR"), "{config}: {}", said.stderr);
    }
    let said = run(&daemon, "path pdf --config /nonexistent.yaml").await;
    assert_eq!(said.code, Some(78));
    for part in ["/nonexistent.yaml cannot be read", "--root ID=DIR"] {
        assert!(said.stderr.contains(part), "{part} in {}", said.stderr);
    }
    daemon.stop().await;
}

#[tokio::test]
async fn status_is_short_and_shows_limits_when_asked() {
    let (_fixture, daemon) = publishing("").await;
    let short = run(&daemon, "status").await;
    let long = run(&daemon, "status --limits").await;
    assert_eq!((short.code, long.code), (Some(0), Some(0)));
    assert!((8..=12).contains(&short.text().lines().count()), "{}", short.text());
    assert!(!short.text().contains("max_depth"), "{}", short.text());
    let keys = |said: &Ended| -> Vec<String> {
        let keys = said.text().lines().filter_map(|line| line.split_whitespace().next());
        keys.map(str::to_owned).collect()
    };
    let (short, long) = (keys(&short), keys(&long));
    assert_eq!(long[..short.len()], short);
    assert!(long[short.len()..].contains(&"max_depth".to_owned()), "{long:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn path_in_a_usual_place() {
    let fixture = Fixture::new(
        "skill mine/.agents/skills/pdf\nskill yours/.agents/skills/pdf
        file yours/.agents/skills/pdf/SKILL.md\n| ---\n| description: Another.\n| ---",
    );
    let home = Some(fixture.path("mine"));
    let setup = Setup {
        env: caproot::endpoint::ProcessEnv { home, ..surroundings(fixture.top()) },
        ..Setup::default()
    };
    let daemon = Daemon::start(setup).await;
    let at_home = |home: &str| {
        let mut command = asking(&daemon, "path skill://user/pdf");
        command.env("HOME", fixture.path(home));
        ended(command)
    };
    let said = at_home("mine").await;
    let expected = fixture.path("mine/.agents/skills/pdf");
    assert_eq!(said.text().trim_end(), expected.to_str().expect("UTF-8"), "{}", said.stderr);
    // The same place of somebody else is another root.
    for home in ["yours", "nobody"] {
        let said = at_home(home).await;
        assert_eq!((said.code, said.text()), (Some(78), ""), "{}", said.stderr);
        assert!(said.stderr.contains("--root ID=DIR"), "{}", said.stderr);
    }
    daemon.stop().await;
}

#[tokio::test]
async fn all_fail_alike() {
    let (fixture, daemon) = publishing("").await;
    let commands =
        ["roots", "resolve", "list", "resources skill://skills/pdf", "path skill://skills/pdf"];
    for words in commands {
        let nobody = format!("{words} --endpoint unix:{}", fixture.path("none").display());
        let said = run(&daemon, &nobody).await;
        assert_eq!((said.code, said.text()), (Some(3), ""), "{words}: {}", said.stderr);
        assert_eq!(said.stderr.lines().count(), 2, "a sentence and a hint: {}", said.stderr);
        let said = run(&daemon, &format!("{words} --output yaml")).await;
        assert_eq!((said.code, said.text()), (Some(2), ""), "{words}: {}", said.stderr);
    }
    for words in &commands[1..] {
        let said = run(&daemon, &format!("{words} --selected /nonexistent")).await;
        assert_eq!((said.code, said.text()), (Some(78), ""), "{words}: {}", said.stderr);
    }
    for handle in ["skill://skills/none", "skill://skills/pdf/scripts/fill.py"] {
        let said = run(&daemon, &format!("resources {handle}")).await;
        assert_eq!(said.code, Some(4));
        assert!(said.stderr.contains("PACKAGE_NOT_FOUND"), "{}", said.stderr);
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_reader_that_leaves_early_is_no_failure() {
    let (_fixture, daemon) = publishing("").await;
    for words in [
        "roots",
        "roots --output json",
        "resolve",
        "list",
        "resources skill://skills/pdf",
        "resources skill://skills/pdf --output json",
        "completions bash",
        "man",
    ] {
        let mut command = asking(&daemon, words);
        let (reader, writer) = pipe().expect("a pipe");
        drop(reader);
        command.stdout(writer);
        let said = ended(command).await;
        assert_eq!(said.code, Some(0), "{words}: {}", said.stderr);
        assert!(!said.stderr.contains("error"), "{words}: {}", said.stderr);
    }
    daemon.stop().await;
}

const COMMANDS: [&str; 8] =
    ["serve", "status", "roots", "resolve", "list", "resources", "read", "path"];

#[tokio::test]
async fn completions() {
    for shell in ["bash", "zsh", "fish"] {
        let said = ended(caproot(["completions", shell])).await;
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{shell}");
        for command in COMMANDS.into_iter().chain(["completions", "man", "--digests"]) {
            let named = said.text().contains(command.trim_start_matches('-'));
            assert!(named, "{shell} does not name {command}");
        }
    }
    assert_eq!(ended(caproot(["completions", "cmd.exe"])).await.code, Some(2));
}

#[tokio::test]
async fn man() {
    let said = ended(caproot(["man"])).await;
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    assert!(said.text().contains(".TH caproot 1"));
    let fixture = Fixture::new("dir pages");
    let mut command = caproot(["man", "--dir"]);
    command.arg(fixture.path("pages"));
    let written = ended(command).await;
    assert_eq!((written.code, written.text(), written.stderr.as_str()), (Some(0), "", ""));
    assert!(fixture.path("pages/caproot.1").is_file());
    for name in COMMANDS {
        assert!(said.text().contains(name), "the page of the program names {name}");
        let page = fs::read_to_string(fixture.path(&format!("pages/caproot-{name}.1")));
        let page = page.expect("a page for each command");
        assert!(page.contains("\\-\\-output") || name == "serve", "{name}");
    }
    let mut command = caproot(["man", "--dir"]);
    command.arg(fixture.path("none"));
    let said = ended(command).await;
    assert_eq!(said.code, Some(74), "{}", said.stderr);
}

#[tokio::test]
async fn a_daemon_that_publishes_nothing_says_what_to_do() {
    let daemon = Daemon::start(Setup::default()).await;
    for (words, says) in [("list", true), ("roots", true), ("list --root /nowhere", false)] {
        let ended = run(&daemon, words).await;
        assert_eq!(ended.stderr.contains("hint: no root is published to you"), says, "{words}");
    }
    daemon.stop().await;
}
