//! `docs/reference/environment.md`, and the effect of each variable.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use caproot::cli::commands;
use caproot::cli::definitions::environment::{ENVIRONMENT_VARIABLES, FILES};
use rustix::process::Signal;

use crate::commands::terminal::run_on_terminal;
use crate::harness::fixture::Fixture;
use crate::harness::process::{self, Process, block_on, caproot, run_blocking};

/// Variables whose effect another test shows, and the test's file.
const SHOWN_ELSEWHERE: &[(&str, &str)] = &[
    ("LISTEN_FDS", "daemon/inherited_sockets.rs"),
    ("LISTEN_PID", "daemon/inherited_sockets.rs"),
    ("LISTEN_FDNAMES", "daemon/inherited_sockets.rs"),
    ("NOTIFY_SOCKET", "daemon/service_manager.rs"),
    ("WATCHDOG_USEC", "daemon/service_manager.rs"),
    ("JOURNAL_STREAM", "daemon/service_manager.rs"),
];

/// Variables in the source that are not of the environment of a user: cargo sets them for the build, and
/// the daemon removes the third from the environment of a process.
const NOT_OF_USERS: &[&str] = &["CAPROOT_BUILD", "CARGO_PKG_VERSION", "WATCHDOG_PID"];

#[test]
fn the_page_names_only_commands() {
    let page = fs::read_to_string("docs/reference/environment.md").expect("the page");
    let names: Vec<String> = commands().into_iter().map(|command| command.name).collect();
    let rows: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    assert_eq!(rows.len(), ENVIRONMENT_VARIABLES.len() + FILES.len());
    for row in rows {
        let cell = row
            .trim_end_matches(" |")
            .rsplit(" | ")
            .next()
            .expect("a cell");
        for name in cell.split(", ") {
            let is_known = ["all", "[client commands](cli.md#client-commands)"].contains(&name)
                || names.iter().any(|known| name == format!("`{known}`"));
            assert!(is_known, "{row}");
        }
    }
}

/// Runs a command to its end. Returns its output.
fn output(command: Command) -> String {
    let output = run_blocking(command);
    format!("{}{}", output.text(), output.stderr)
}

/// Starts a daemon, stops it with SIGTERM and returns its endpoint and its log.
fn serve_and_stop(command: Command) -> String {
    let process = Process::start(command);
    let endpoint = process.endpoint().to_owned();
    format!("{endpoint}\n{}", block_on(process.stop()))
}

/// Returns the output of a command on a terminal.
fn on_terminal(command: Command) -> String {
    let attach = |command: &mut Command, terminal: File| {
        command.stdout(terminal).stderr(Stdio::null());
    };
    run_on_terminal(command, 80, attach).0
}

/// Returns the first line of `caproot watch`, which begins with the time.
fn first_change(command: Command) -> String {
    let mut process = Process::spawn(command);
    let (line, output) = block_on(async move {
        let line = process.line().await;
        (line, process.exit_on(Signal::TERM).await)
    });
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    line
}

/// Files for the commands, and a daemon.
struct Machine {
    fixture: Fixture,
    daemon: Process,
}

impl Machine {
    fn start() -> Self {
        let fixture = Fixture::new(
            "skill skills/a-skill-with-a-name-that-is-longer-than-thirty-columns
            skill home/.agents/skills/a\nskill codex/skills/b\nfile broken/a/SKILL.md\n| none
            file skills/a-skill-with-a-name-that-is-longer-than-thirty-columns/env.sh
            | echo bytecode=$PYTHONDONTWRITEBYTECODE
            file skills/kit/.claude-plugin/plugin.json
            | {\"name\": \"kit\", \"mcpServers\": {\"s\": {\"command\": \"echo\"}}}
            file skills/needs/SKILL.md
            | ---\n| name: needs\n| description: N.\n| allowed-tools: Bash(sh:*)\n| ---
            file caproot.yaml\n| environment_ids: [local]\ndir run\nmode 0700 run\ndir none",
        );
        let socket = format!("unix:{}", fixture.path("run/c.sock").display());
        let mut command = process::serve(["--listen", &socket, "--root"]);
        let has_both = |endpoints: &[String]| endpoints.len() == 2;
        let daemon = Process::start_until(command.arg(fixture.path("skills")), has_both);
        Self { fixture, daemon }
    }

    /// Command with `$TMP` for the directory of the files and `$DAEMON` for the daemon's endpoint.
    fn command(&self, words: &str, variables: &[(&str, &str)]) -> Command {
        let mut command = caproot(self.fill(words).split_whitespace());
        for (name, value) in variables {
            command.env(name, self.fill(value));
        }
        command
    }

    fn fill(&self, text: &str) -> String {
        let top = self.fixture.top().to_str().expect("UTF-8");
        text.replace("$TMP", top)
            .replace("$DAEMON", self.daemon.endpoint())
    }

    /// Returns the outputs of a command without and with a variable, and the text that only one of
    /// them has.
    fn outputs(&self, name: &str) -> (String, String, String) {
        const REMOTE: &str = "status --endpoint tls:127.0.0.1:1";
        const EXEC: &str = "exec --endpoint unix:$TMP/run/c.sock \
             skill://skills/a-skill-with-a-name-that-is-longer-than-thirty-columns/env.sh";
        const SERVER: &str = "exec --endpoint unix:$TMP/run/c.sock --server skill://skills/kit#s";
        type Runner = fn(Command) -> String;
        let home: &[(&str, &str)] = &[("HOME", "$TMP/home")];
        let terminal: &[(&str, &str)] = &[("TERM", "xterm")];
        let (run, words, others, value, shows): (Runner, &str, &[(&str, &str)], &str, &str) =
            match name {
                "CAPROOT_ENDPOINT" => (output, "list", &[], "$DAEMON", "1 root"),
                "CAPROOT_CA" | "CAPROOT_TOKEN_FILE" | "SSL_CERT_FILE" | "SSL_CERT_DIR" => {
                    (output, REMOTE, &[], "$TMP/none/x", "$TMP/none/x")
                }
                "CAPROOT_CERT" => (
                    output,
                    "status --endpoint tls:127.0.0.1:1 --key $TMP/none/k",
                    &[],
                    "$TMP/none/x",
                    "$TMP/none/x",
                ),
                "CAPROOT_KEY" => (
                    output,
                    "status --endpoint tls:127.0.0.1:1 --cert $TMP/none/c",
                    &[],
                    "$TMP/none/x",
                    "$TMP/none/x",
                ),
                "CAPROOT_LOG" => (
                    serve_and_stop,
                    "serve --listen tcp:127.0.0.1:0",
                    &[],
                    "warn",
                    " INFO ",
                ),
                "RUNTIME_DIRECTORY" => (
                    serve_and_stop,
                    "serve --root $TMP/skills",
                    &[("TMPDIR", "$TMP/run")],
                    "$TMP/none",
                    "unix:$TMP/none/caproot.sock",
                ),
                "XDG_RUNTIME_DIR" => (output, "status", &[], "$TMP/run", "$TMP/run/caproot.sock"),
                "TMPDIR" => (output, "status", &[], "$TMP/run", "$TMP/run/caproot-"),
                "HOME" => (
                    output,
                    "config check $TMP/caproot.yaml",
                    &[],
                    "$TMP/home",
                    "1 published root,",
                ),
                "CODEX_HOME" => (
                    output,
                    "config check $TMP/caproot.yaml",
                    &[],
                    "$TMP/codex",
                    "1 published root,",
                ),
                "CAPROOT_COPIES" | "XDG_CACHE_HOME" => {
                    (output, EXEC, home, "$TMP/caproot.yaml", "$TMP/caproot.yaml")
                }
                "XDG_DATA_HOME" => (
                    output,
                    SERVER,
                    home,
                    "$TMP/caproot.yaml",
                    "$TMP/caproot.yaml",
                ),
                "PYTHONDONTWRITEBYTECODE" => (output, EXEC, home, "own", "bytecode=own"),
                "PATH" => {
                    let words = "check $TMP/skills";
                    (output, words, &[], "$TMP/home", "note: needs needs more")
                }
                "TZ" => (
                    first_change,
                    "watch --endpoint $DAEMON",
                    &[],
                    "<+14>-14",
                    "another hour",
                ),
                "NO_COLOR" => (on_terminal, "check $TMP/broken", terminal, "1", "\u{1b}["),
                "TERM" => (on_terminal, "check $TMP/broken", &[], "xterm", "\u{1b}["),
                "COLUMNS" => (on_terminal, "list --endpoint $DAEMON", &[], "40", "a-name…"),
                other => panic!("no test shows the effect of {other}"),
            };
        let without = run(self.command(words, others));
        let with = run(self.command(words, &[others, &[(name, value)]].concat()));
        (without, with, self.fill(shows))
    }
}

#[test]
fn each_variable_has_an_effect() {
    let machine = Machine::start();
    for variable in ENVIRONMENT_VARIABLES.iter() {
        let name = variable.name;
        if let Some((_, file)) = SHOWN_ELSEWHERE.iter().find(|(shown, _)| *shown == name) {
            let path = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("tests/it")
                .join(file);
            assert!(
                fs::read_to_string(path).expect("a test").contains(name),
                "{name} in {file}"
            );
            continue;
        }
        let (without, with, expected) = machine.outputs(name);
        if name == "TZ" {
            assert_ne!(
                without.get(..2),
                with.get(..2),
                "the hour in {without} and {with}"
            );
            continue;
        }
        let shown = [&without, &with].map(|output| output.contains(&expected));
        assert!(
            shown[0] != shown[1],
            "{name}: {expected:?}\n{without}\n{with}"
        );
    }
}

/// Returns the names between quotes after one of the marks, in all sources of the program.
fn names_after(marks: &[&str]) -> Vec<(String, PathBuf)> {
    let mut names = Vec::new();
    for source in crate::pages::modules::sources() {
        let code = source.without_tests();
        for mark in marks {
            for (at, _) in code.match_indices(mark) {
                let name = code[at + mark.len()..]
                    .split('"')
                    .next()
                    .unwrap_or_default();
                names.push((name.to_owned(), source.path.clone()));
            }
        }
    }
    names
}

#[test]
fn each_variable_of_the_source_is_documented() {
    let marks = [
        "env::var(\"",
        "env::var_os(\"",
        "env = \"",
        "directory(\"",
        "set(\"",
    ];
    let names = names_after(&marks);
    assert!(names.len() > 10, "{names:?}");
    for (name, file) in names {
        let is_known = ENVIRONMENT_VARIABLES
            .iter()
            .any(|variable| variable.name == name);
        assert!(
            is_known || NOT_OF_USERS.contains(&name.as_str()) || name == "gnu",
            "{name} in {} is not in the table",
            file.display()
        );
    }
}
