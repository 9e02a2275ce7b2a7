//! `caproot exec --server`: a plugin's stdio MCP servers run from a verified copy of the plugin, with the
//! variables of their declaration and nothing else.

use std::fs;
use std::process::{Command, Stdio};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

use super::{copies, package_digest, publish, socket_of, target_command};
use crate::harness::fixture::Fixture;
use crate::harness::process::{Output, caproot, client_command_with, has_program, run_command};
use crate::harness::{Daemon, HANG_TIMEOUT};

/// Plugin with servers of each shape. Each program answers a line with its arguments, its directory, its
/// variables and what a write next to itself does.
const TREE: &str = r#"
dir work
dir home
skill r/kit/skills/one
file r/kit/skills/one/show.sh
| test "$CLAUDE_PLUGIN_ROOT$PLUGIN_ROOT" = "$CODEX_PLUGIN_ROOT$CODEX_PLUGIN_ROOT" || exit 9
| echo "${PLUGIN_ROOT:-none}" "$(head -2 "$PLUGIN_ROOT/servers/run" 2>/dev/null | tail -1)"
file r/kit/.claude-plugin/plugin.json
| {"name": "kit", "version": "1.0.0"}
file r/kit/.mcp.json
| {"mcpServers": {
|   "python": {"command": "python3", "args": ["${CLAUDE_PLUGIN_ROOT}/servers/echo.py", "--data", "${CLAUDE_PLUGIN_DATA}/x"],
|              "env": {"MODE": "${MODE:-read}", "DB_TOKEN": "${DB_TOKEN}"}},
|   "own": {"command": "./servers/run", "args": ["one two"], "cwd": "./servers"},
|   "below": {"command": "./run", "cwd": "./servers"},
|   "node": {"command": "node", "args": ["servers/echo.js"]},
|   "program": {"command": "echo", "args": ["from the PATH"]},
|   "outside": {"command": "python3", "args": ["/etc/passwd"]},
|   "code": {"command": "./servers/run", "env": {"LD_PRELOAD": "/tmp/x.so"}},
|   "own-code": {"command": "./servers/run", "cwd": "./servers", "env": {"PYTHONPATH": "${CLAUDE_PLUGIN_ROOT}/servers"}},
|   "off": {"command": "./servers/run", "disabled": true},
|   "remote": {"url": "https://mcp.example/mcp"}}}
file r/kit/servers/echo.py
| import json, os, sys
| for line in sys.stdin:
|     try:
|         open(os.path.join(os.path.dirname(__file__), "made"), "w").close()
|         wrote = "wrote"
|     except OSError:
|         wrote = "refused"
|     names = sorted(name for name in os.environ if name in ("MODE", "DB_TOKEN", "OTHER", "CLAUDE_PLUGIN_ROOT"))
|     print(json.dumps([line.strip(), sys.argv[1:2], os.path.basename(os.getcwd())[:4], names, os.environ.get("MODE"), wrote]), flush=True)
| sys.exit(7)
file r/kit/servers/echo.js
| process.stdin.on('data', (data) => process.stdout.write(`node ${data}`));
file r/kit/servers/run
| #!/bin/sh
| while read -r line; do echo "sh $line $* $(basename "$PWD")"; done; exit 3
mode 0755 r/kit/servers/run
file r/bad/.claude-plugin/plugin.json
| {"name": "bad"}
file r/bad/.mcp.json
| {"db": {"command": "./run", "env": {"PASSWORD": "hunter2"}}, "ok": {"command": "./run"}}
file r/bad/run
| #!/bin/sh
| ls -A "$CLAUDE_PLUGIN_ROOT"
mode 0755 r/bad/run
"#;

fn server_command(fixture: &Fixture, daemon: &Daemon, server: &str, words: &[&str]) -> Command {
    let mut command = client_command_with(daemon, ["exec", "--server", server]);
    command
        .args(words)
        .current_dir(fixture.path("work"))
        .env("HOME", fixture.path("home"))
        .env("OTHER", "secret of the caller")
        .env("CAPROOT_ENDPOINT", socket_of(fixture))
        .env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}

/// Runs a server of the plugin `kit` with one line of input.
async fn talk(fixture: &Fixture, daemon: &Daemon, server: &str, words: &[&str]) -> Output {
    let input = fixture.path("input");
    fs::write(&input, "hello\n").expect("the input");
    let mut command = server_command(fixture, daemon, &format!("skill://r/kit#{server}"), words);
    command.env("DB_TOKEN", "token");
    command.stdin(Stdio::from(fs::File::open(input).expect("the input")));
    run_command(command).await
}

#[tokio::test]
async fn servers_of_a_plugin_run_from_a_copy_with_their_declared_variables() {
    let (fixture, daemon) = publish(TREE).await;
    if has_program("python3", &["--version"]) {
        let python = talk(&fixture, &daemon, "python", &[])
            .await
            .exited_with(7, "");
        // Root may write everything.
        let wrote = if rustix::process::geteuid().is_root() {
            "wrote"
        } else {
            "refused"
        };
        let expected = serde_json::json!([
            "hello",
            ["--data"],
            "",
            ["CLAUDE_PLUGIN_ROOT", "DB_TOKEN", "MODE"],
            "read",
            wrote
        ]);
        let mut said = python.json();
        said[2] = "".into();
        assert_eq!(said, expected);
    }
    if has_program("node", &["--version"]) {
        let node = talk(&fixture, &daemon, "node", &[]).await.succeeded();
        assert_eq!(node.text(), "node hello\n");
    }
    let own = talk(&fixture, &daemon, "below", &["--", "more"]).await;
    assert_eq!(own.exited_with(3, "").text(), "sh hello more servers\n");
    // A path of a command is relative to the working directory, as for each process.
    let nowhere = talk(&fixture, &daemon, "own", &["--allow-program"]).await;
    nowhere.exited_with(125, "cannot start");
    let data = fs::read_dir(fixture.path("home/.local/share/caproot/plugins")).expect("the data");
    assert_eq!(data.count(), 1);
    daemon.stop().await;
}

#[tokio::test]
async fn what_the_plugin_does_not_hold_needs_a_flag() {
    let (fixture, daemon) = publish(TREE).await;
    for (server, part) in [
        ("program", "it runs `echo`, which is no file of the plugin"),
        ("outside", "it runs `python3`"),
        ("code", "its variable LD_PRELOAD names code"),
        ("off", "the declaration disables the server"),
        ("remote", "https://mcp.example/mcp"),
        ("none", "is no MCP server of a listed plugin"),
    ] {
        talk(&fixture, &daemon, server, &[])
            .await
            .exited_with(127, part);
    }
    let allowed = talk(&fixture, &daemon, "program", &["--allow-program"]).await;
    assert_eq!(allowed.succeeded().text(), "from the PATH\n");

    let mut without = server_command(&fixture, &daemon, "skill://r/kit#python", &[]);
    without.stdin(Stdio::null());
    let without = run_command(without).await;
    without.exited_with(127, "needs DB_TOKEN, which the environment lacks");

    // A declaration with a withheld value starts nothing, and its file is not in the copy.
    let bad = run_command(server_command(&fixture, &daemon, "skill://r/bad#db", &[])).await;
    bad.exited_with(127, "may be a secret");
    let good = run_command(server_command(&fixture, &daemon, "skill://r/bad#ok", &[])).await;
    assert_eq!(good.succeeded().text(), ".claude-plugin\nrun\n");
    let zeros = format!("sha256:{}", "0".repeat(64));
    let pinned = ["--digest", zeros.as_str()];
    let other = run_command(server_command(
        &fixture,
        &daemon,
        "skill://r/bad#ok",
        &pinned,
    ))
    .await;
    other.exited_with(126, "changed");
    daemon.stop().await;
}

#[tokio::test]
async fn with_a_lock_only_an_approved_plugin_starts() {
    let (fixture, daemon) = publish(TREE).await;
    let lock = |words: &str| {
        let mut command = caproot(words.split_whitespace());
        command.current_dir(fixture.top());
        run_command(command)
    };
    lock("lock r --out caproot.lock").await.succeeded();
    let file = fixture.path("caproot.lock");
    let file = file.to_str().expect("UTF-8");
    // A daemon over TCP is not trusted, and needs not be: the lock approves each byte.
    let locked = async |server: &str, words: &[&str]| {
        let mut command = server_command(&fixture, &daemon, server, &["--lock", file]);
        command.args(words);
        command.env("CAPROOT_ENDPOINT", format!("tcp:{}", daemon.address));
        let input = fixture.path("input");
        fs::write(&input, "hello\n").expect("the input");
        command.stdin(Stdio::from(fs::File::open(input).expect("the input")));
        run_command(command).await
    };
    let own = locked("skill://r/kit#below", &[]).await;
    assert_eq!(own.exited_with(3, "").text(), "sh hello  servers\n");
    // A declaration of another server of the file has a secret: the file is covered, and not copied.
    let good = locked("skill://r/bad#ok", &[]).await;
    assert_eq!(good.succeeded().text(), ".claude-plugin\nrun\n");
    locked("skill://r/bad#db", &[])
        .await
        .exited_with(127, "may be a secret");

    // A session with a lock names the plugin by its name, and pins its digest.
    fixture.add_copy("r/kit", "r/other");
    fixture.write("r/other/servers/run", "#!/bin/sh\necho evil\n");
    locked("skill://r/kit#below", &[]).await.exited_with(3, "");
    let digest = package_digest(&daemon, "skill://r/kit").await;
    locked("skill://r/kit#below", &["--digest", &digest])
        .await
        .exited_with(3, "");
    let refused = locked("skill://r/other#below", &[]).await;
    refused.exited_with(
        126,
        "the lock does not approve the package: servers/run differ",
    );

    let changes: [(&str, &str, &str); 3] = [
        (
            "r/kit/.mcp.json",
            r#"{"below": {"command": "./run", "cwd": "./servers", "args": ["evil"]}}"#,
            "the plugin `kit` declares other parts than the lock approves",
        ),
        (
            "r/kit/.claude-plugin/plugin.json",
            r#"{"name": "kit", "version": "1.1.0"}"#,
            "the plugin `kit` has the version `1.1.0`, and the lock approves `1.0.0`",
        ),
        (
            "r/kit/.claude-plugin/plugin.json",
            r#"{"name": "evil", "version": "1.0.0"}"#,
            "the lock does not approve the plugin `evil`",
        ),
    ];
    for (path, content, sentence) in changes {
        let before = fs::read(fixture.path(path)).expect("a file");
        fixture.replace(path, content);
        locked("skill://r/kit#below", &[])
            .await
            .exited_with(126, sentence);
        fixture.replace(path, before);
    }
    // A new file changes no declaration.
    fixture.write("r/kit/servers/more.py", "evil");
    let refused = locked("skill://r/kit#below", &[]).await;
    refused.exited_with(126, "servers/more.py differ from the approved version");
    fs::remove_file(fixture.path("r/kit/servers/more.py")).expect("removed");
    locked("skill://r/kit#below", &[]).await.exited_with(3, "");
    daemon.stop().await;
}

#[tokio::test]
async fn a_script_finds_the_directory_of_its_plugin() {
    let (fixture, daemon) = publish(TREE).await;
    let lock = fixture.path("caproot.lock").display().to_string();
    let mut command = caproot(["lock", "r", "--out", &lock]);
    command.current_dir(fixture.top());
    run_command(command).await.succeeded();
    let [skill, plugin] = ["skill://r/kit/skills/one", "skill://r/kit"];
    let (skill, plugin) = (
        package_digest(&daemon, skill).await,
        package_digest(&daemon, plugin).await,
    );
    let show = async |words: &[&str]| {
        let target = "skill://r/kit/skills/one/show.sh";
        let mut command = target_command(&fixture, &daemon, &[target], words);
        // The caller may be a script of another plugin.
        for variable in ["CLAUDE_PLUGIN_ROOT", "CODEX_PLUGIN_ROOT", "PLUGIN_ROOT"] {
            command.env(variable, fixture.path("r"));
        }
        run_command(command).await.succeeded()
    };

    let both = ["--digest", &skill, "--digest", &plugin];
    for words in [&[] as &[&str], &["--lock", &lock], &both] {
        let shown = show(words).await;
        let (dir, line) = shown.text().split_once(' ').expect("two words");
        assert!(dir.starts_with(fixture.path("home").to_str().expect("UTF-8")));
        assert!(line.starts_with("while read"), "{line}");
        assert_eq!(shown.stderr, "", "{words:?}");
    }

    // Without an approval, the script must not run files of the plugin.
    let pinned = show(&["--digest", &skill]).await;
    assert_eq!((pinned.text(), &*pinned.stderr), ("none \n", ""));
    fixture.replace("r/kit/servers/run", "#!/bin/sh\necho evil\n");
    let locked = show(&["--lock", &lock]).await;
    assert_eq!((locked.text(), &*locked.stderr), ("none \n", ""));
    let small = show(&["--max-files", "2"]).await;
    assert_eq!(small.text(), "none \n");
    let note = "note: the script runs without CLAUDE_PLUGIN_ROOT: ";
    assert!(small.stderr.starts_with(note), "{}", small.stderr);
    daemon.stop().await;
}

#[tokio::test]
async fn a_running_server_keeps_its_copy_and_ends_with_its_input() {
    let (fixture, daemon) = publish(TREE).await;
    let command = server_command(&fixture, &daemon, "skill://r/kit#below", &[]);
    let mut command = tokio::process::Command::from(command);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server = command.spawn().expect("the command starts");
    let mut input = server.stdin.take().expect("stdin");
    let mut lines = BufReader::new(server.stdout.take().expect("stdout"));

    let mut said = String::new();
    input.write_all(b"one\n").await.expect("a line");
    let read = tokio::time::timeout(HANG_TIMEOUT, lines.read_line(&mut said)).await;
    read.expect("an answer").expect("a line");
    assert_eq!(said, "sh one  servers\n");

    // An edit of the plugin changes the next start only.
    fixture.replace("r/kit/servers/run", "#!/bin/sh\necho other\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(fixture.path("r/kit/servers/run"), mode).expect("a mode");
    let next = talk(&fixture, &daemon, "below", &[]).await.succeeded();
    assert_eq!(next.text(), "other\n");
    assert_eq!(copies(&fixture).len(), 2);
    input.write_all(b"two\n").await.expect("a line");
    drop(input);
    let mut rest = String::new();
    lines.read_to_string(&mut rest).await.expect("the rest");
    assert_eq!(rest, "sh two  servers\n");
    let status = server.wait().await.expect("the end");
    assert_eq!(status.code(), Some(3));
    daemon.stop().await;
}
