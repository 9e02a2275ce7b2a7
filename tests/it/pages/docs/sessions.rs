//! Runs the `console` blocks of the pages in a temporary home, and compares each command's output
//! with the page.
//!
//! HTML comments divide a page into sessions; `docs/design/development.md` describes them. A line
//! `…` in the page stands for any lines, and `…` in a line for any text. All times are equal, and
//! so are all epochs.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, pipe};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Instant;

use fancy_regex::Regex;
use rustix::process::{Pid, Signal, kill_process_group};

use super::page::{Page, Part, pages, top};
use super::shell::{Step, simple_commands, steps, strip_sudo};
use crate::harness::HANG_TIMEOUT;
use crate::harness::diff::diff;
use crate::harness::fixture::Fixture;
use crate::harness::test_servers::unused_address;

/// Programs that sessions run.
const RUN: [&str; 17] = [
    "caproot", "cat", "cd", "chmod", "cp", "echo", "grep", "head", "ls", "ln", "mkdir", "mv",
    "printf", "rm", "sed", "sort", "touch",
];

/// Programs that sessions leave out, with the reason. The commands are parsed only.
const LEFT_OUT: [(&str, &str); 13] = [
    (
        "grpcurl",
        "not on every machine; the pages on gRPC have tests of their own",
    ),
    ("curl", "needs the units of the package"),
    ("systemctl", "needs systemd"),
    ("journalctl", "needs systemd"),
    ("apt", "changes the machine"),
    ("usermod", "changes the machine"),
    ("sysctl", "changes the machine"),
    ("tee", "changes the machine"),
    ("install", "needs the user caproot"),
    ("setfacl", "needs the user caproot"),
    ("ss", "shows the programs of the machine"),
    ("python", "the program of the page has a test of its own"),
    ("base64", "makes a secret"),
];

/// Pages whose commands are not run, with the reason.
const PAGES_NOT_RUN: [(&str, &str); 19] = [
    ("CHANGELOG.md", "names commands of a release"),
    ("CONTRIBUTING.md", "builds and tests the crate"),
    ("SECURITY.md", "reads the manifest of the crate"),
    ("docs/design/architecture.md", "searches the sources"),
    ("docs/design/development.md", "builds and tests the crate"),
    ("docs/design/fleet.md", "runs a long test and a bench"),
    ("docs/design/performance.md", "measures"),
    ("docs/design/security.md", "tests the crate"),
    ("docs/operate/containers.md", "needs a container runtime"),
    ("docs/operate/install.md", "needs systemd"),
    ("docs/operate/recipe.md", "needs systemd"),
    ("docs/operate/reload.md", "needs systemd"),
    ("docs/operate/tls.md", "needs two machines"),
    ("docs/grpc/service.md", "needs grpcurl"),
    ("docs/grpc/typescript.md", "needs Node"),
    ("docs/grpc/typescript-streams.md", "needs Node"),
    ("docs/grpc/python.md", "needs Python"),
    ("docs/orchestrate/python.md", "builds the Python package"),
    ("docs/orchestrate/typescript.md", "builds the npm package"),
];

/// Directories of the pages that lie in the temporary directory of a session instead.
const DIRS: [&str; 6] = [
    "/home/you",
    "/srv",
    "/opt",
    "/etc/caproot",
    "/run/user/1000",
    "/run/caproot",
];

/// Whether lines match the lines of a page.
fn matches(expected: &[String], actual: &[String]) -> bool {
    match expected.split_first() {
        None => actual.is_empty(),
        Some((first, rest)) if first == "…" => {
            (0..=actual.len()).any(|skipped| matches(rest, &actual[skipped..]))
        }
        Some((first, rest)) => {
            let Some((line, more)) = actual.split_first() else {
                return false;
            };
            matches_line(first, line) && matches(rest, more)
        }
    }
}

fn matches_line(expected: &str, actual: &str) -> bool {
    let (expected, actual) = (without_times(expected), without_times(actual));
    let mut parts = expected.split('…');
    let first = parts.next().expect("at least one part");
    let Some(mut left) = actual.strip_prefix(first) else {
        return false;
    };
    let parts: Vec<_> = parts.collect();
    let Some((last, inner)) = parts.split_last() else {
        return left.is_empty();
    };
    for part in inner {
        let Some((_, after)) = left.split_once(part) else {
            return false;
        };
        left = after;
    }
    left.ends_with(last)
}

/// Replaces times, epochs and process ids, which differ in each run.
pub(super) fn without_times(line: &str) -> String {
    static VOLATILE: LazyLock<Regex> = LazyLock::new(|| {
        let volatile = concat!(
            r"\d{4}-\d\d-\d\dT[\d:.]+Z|(?<=^)\d\d:\d\d:\d\d(?= )",
            r"|\b(?=[0-9a-f]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{13,16}\b",
        );
        Regex::new(volatile).expect("a pattern")
    });
    VOLATILE.replace_all(line.trim_end(), "[..]").into_owned()
}

/// Command of a session that runs until it is stopped, such as `serve` or `watch`.
struct Running {
    subcommand: String,
    /// Whether the page starts the command with `&`: its lines appear between those of others.
    is_job: bool,
    child: Child,
    /// Lines that were not compared yet.
    unread: Vec<String>,
}

impl Running {
    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id())
            .ok()
            .and_then(Pid::from_raw)
            .expect("a pid");
        // The process may have ended.
        kill_process_group(pid, signal).ok();
    }
}

/// Temporary home in which commands run.
struct Session {
    fixture: Fixture,
    /// Texts of the page, each with its replacement in this session.
    replaced: Vec<(String, String)>,
    running: BTreeMap<usize, Running>,
    /// Variables that the page exports.
    exported: Vec<(String, String)>,
    sender: Sender<(usize, String)>,
    lines: Receiver<(usize, String)>,
    wrong: Vec<String>,
}

impl Drop for Session {
    fn drop(&mut self) {
        for running in self.running.values_mut() {
            running.signal(Signal::KILL);
            drop(running.child.wait());
        }
    }
}

impl Session {
    fn new() -> Self {
        let fixture =
            Fixture::new("dir bin\nfile bin/sudo\n| #!/bin/sh\n| exec \"$@\"\nmode 0755 bin/sudo");
        for dir in DIRS {
            let dir = fixture.path(dir.trim_start_matches('/'));
            fs::create_dir_all(&dir).expect("a directory");
            fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).expect("a mode");
        }
        symlink(env!("CARGO_BIN_EXE_caproot"), fixture.path("bin/caproot")).expect("a link");
        symlink(top().join("tests"), fixture.path("home/you/tests")).expect("a link");
        let (sender, lines) = channel();
        let replaced =
            DIRS.map(|dir| (dir.to_owned(), format!("{}{dir}", fixture.top().display())));
        let (replaced, running, exported) = (replaced.into(), BTreeMap::new(), Vec::new());
        Self {
            fixture,
            replaced,
            running,
            exported,
            sender,
            lines,
            wrong: Vec::new(),
        }
    }

    /// Replaces the directories and ports of a page by those of this session.
    fn localize(&mut self, text: &str) -> String {
        let port = Regex::new(r"127\.0\.0\.1:[1-9]\d+").expect("a pattern");
        for address in port.find_iter(text).filter_map(Result::ok) {
            if self
                .replaced
                .iter()
                .all(|(known, _)| known != address.as_str())
            {
                self.replaced
                    .push((address.as_str().to_owned(), unused_address()));
            }
        }
        let mut text = text.to_owned();
        for (shown, real) in &self.replaced {
            let shown = format!(r"(?<![\w.~}}-]){}(?![\w-])", fancy_regex::escape(shown));
            let shown = Regex::new(&shown).expect("a pattern");
            text = shown.replace_all(text.as_str(), real.as_str()).into_owned();
        }
        text
    }

    /// Replaces the directories and ports of this session by those of the page.
    fn delocalize(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (shown, real) in &self.replaced {
            text = text.replace(real, shown);
        }
        text
    }

    fn command(&self, text: &str) -> Command {
        let path = std::env::var("PATH").expect("PATH");
        let mut command = Command::new("bash");
        command
            .args(["-c", text])
            .current_dir(self.fixture.path("home/you"))
            .env_clear();
        command.env(
            "PATH",
            format!("{}:{path}", self.fixture.path("bin").display()),
        );
        // Bash writes characters beyond ASCII with `printf` only in a locale that has them.
        command
            .env("LC_ALL", "C.UTF-8")
            .env("HOME", self.fixture.path("home/you"));
        command.env("XDG_RUNTIME_DIR", self.fixture.path("run/user/1000"));
        command.env("TMPDIR", self.fixture.top());
        command.envs(self.exported.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::piped()).process_group(0);
        command
    }

    /// Starts a command. Its stdout and stderr arrive as lines with this number.
    fn start(&self, text: &str, number: usize) -> Child {
        let (output, stdout) = pipe().expect("a pipe");
        let stderr = stdout.try_clone().expect("a descriptor");
        let child = self
            .command(text)
            .stdout(stdout)
            .stderr(stderr)
            .spawn()
            .expect("bash runs");
        let sender = self.sender.clone();
        thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                drop(sender.send((number, line.expect("text"))));
            }
            drop(sender.send((number, END.to_owned())));
        });
        child
    }

    /// Waits until all unread lines of a running command match. Several commands may run: one of
    /// those in `candidates` has to match.
    fn expect(&mut self, line: &str, candidates: &[usize], expected: &[String]) {
        let deadline = Instant::now() + HANG_TIMEOUT;
        loop {
            for number in candidates {
                let Some(running) = self.running.get(number) else {
                    continue;
                };
                let unread: Vec<_> = running.unread.iter().map(|l| self.delocalize(l)).collect();
                if matches(expected, &unread) {
                    self.running
                        .get_mut(number)
                        .expect("found above")
                        .unread
                        .clear();
                    return;
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let unread = candidates
                .iter()
                .filter_map(|number| self.running.get(number));
            let unread: Vec<_> = unread
                .flat_map(|running| &running.unread)
                .cloned()
                .collect();
            let has_ended = unread.last().is_some_and(|line| line == END);
            let is_over = unread.len() >= expected.len()
                && candidates.len() == 1
                && expected.iter().all(|line| line != "…");
            match self.lines.recv_timeout(left) {
                Ok((number, line)) if !has_ended && !is_over => self.take(number, line),
                _ => {
                    let actual: Vec<_> = unread.iter().map(|line| self.delocalize(line)).collect();
                    let diff = diff(&expected.join("\n"), &actual.join("\n"));
                    self.wrong.push(format!("{line}:\n{diff}"));
                    return;
                }
            }
        }
    }

    fn take(&mut self, number: usize, line: String) {
        if let Some(running) = self.running.get_mut(&number) {
            running.unread.push(line);
        }
    }

    /// Runs the steps of a block, and records differences.
    fn run(&mut self, page: &Page, steps: &[Step]) {
        for step in steps {
            self.step(page, step);
        }
    }

    fn step(&mut self, page: &Page, step: &Step) {
        let at = page.at(step.line);
        let Some(command) = &step.command else {
            let candidates: Vec<_> = self.running.keys().copied().collect();
            self.expect(&at, &candidates, &step.output);
            return;
        };
        let mut simple = simple_commands(command).expect("a block that was split");
        let as_other_user = simple.iter_mut().any(strip_sudo);
        if simple == [["systemctl", "reload", "caproot"]] {
            self.reload(&at);
            return;
        }
        if let [[word, variable]] = simple.iter().map(Vec::as_slice).collect::<Vec<_>>()[..]
            && word == "export"
        {
            let (name, value) = variable.split_once('=').expect("a variable with a value");
            let value = self.localize(value);
            self.exported.push((name.to_owned(), value));
            return;
        }
        let programs: Vec<_> = simple.iter().map(|words| words[0].as_str()).collect();
        for program in &programs {
            let is_known = RUN.contains(program) || LEFT_OUT.iter().any(|(p, _)| p == program);
            if !is_known {
                self.wrong
                    .push(format!("{at}: add {program} to RUN or to LEFT_OUT"));
            }
        }
        if as_other_user || !programs.iter().all(|program| RUN.contains(program)) {
            return;
        }
        let text = self.localize(command);
        let subcommand = match &simple[..] {
            [words] if words[0] == "caproot" => words.get(1).map_or("", String::as_str),
            _ => "",
        };
        let runs_on = matches!(subcommand, "serve" | "watch")
            || [("check", "--watch"), ("mcp", "--http")]
                .iter()
                .any(|(name, flag)| subcommand == *name && simple[0].iter().any(|w| w == flag));
        if runs_on {
            self.stop(subcommand);
            let (text, is_job) = match text.strip_suffix('&') {
                Some(text) => (text, true),
                None => (text.as_str(), false),
            };
            let child = self.start(text, step.line);
            let (subcommand, unread) = (subcommand.to_owned(), Vec::new());
            let running = Running {
                subcommand,
                is_job,
                child,
                unread,
            };
            self.running.insert(step.line, running);
            let mut expected = step.output.clone();
            if simple[0][1] == "serve" && !expected.iter().any(|l| l.starts_with("listening ")) {
                expected.extend(["…", "listening …"].map(str::to_owned));
            }
            self.expect(&at, &[step.line], &expected);
        } else {
            let mut child = self.start(&text, step.line);
            drop(child.stdin.take());
            let mut actual = Vec::new();
            let deadline = Instant::now() + HANG_TIMEOUT;
            loop {
                let left = deadline.saturating_duration_since(Instant::now());
                match self.lines.recv_timeout(left) {
                    Ok((number, line)) if number != step.line => self.take(number, line),
                    Ok((_, line)) if line == END => break,
                    Ok((_, line)) => actual.push(self.delocalize(&line)),
                    Err(_) => {
                        child.kill().expect("kill");
                        actual.push("the command does not end".to_owned());
                        break;
                    }
                }
            }
            drop(child.wait());
            let jobs: Vec<_> = self
                .running
                .iter()
                .filter(|(_, r)| r.is_job)
                .map(|(number, _)| *number)
                .collect();
            if actual.is_empty() && !step.output.is_empty() && !jobs.is_empty() {
                self.expect(&at, &jobs, &step.output);
            } else if !matches(&step.output, &actual) {
                let diff = diff(&step.output.join("\n"), &actual.join("\n"));
                self.wrong.push(format!("{at}: {command}\n{diff}"));
            }
        }
    }

    /// Stops the running command of this name, like Ctrl-C.
    fn stop(&mut self, subcommand: &str) {
        let old = self
            .running
            .iter()
            .find(|(_, running)| running.subcommand == subcommand);
        let Some(number) = old.map(|(number, _)| *number) else {
            return;
        };
        let mut running = self.running.remove(&number).expect("found above");
        running.signal(Signal::INT);
        running.child.wait().expect("the command ends");
    }

    /// Has the running daemon read its config again, as the unit of the package does.
    fn reload(&mut self, at: &str) {
        let serving = self
            .running
            .iter()
            .find(|(_, running)| running.subcommand == "serve");
        let (number, running) = serving.expect("a daemon in the session");
        let number = *number;
        running.signal(Signal::HUP);
        let done = "… INFO caproot::daemon::server::reload: the configuration was reloaded";
        self.expect(at, &[number], &["…".to_owned(), done.to_owned()]);
    }

    /// Writes the text of a block to a file of the page.
    fn write(&mut self, path: &str, text: &str) {
        let path = self.localize(path);
        let path = self.fixture.path("home/you").join(path);
        let text = self.localize(text);
        fs::create_dir_all(path.parent().expect("a directory")).expect("directories");
        fs::write(path, text).expect("a file");
    }
}

/// Line that stands for the end of a command's output.
const END: &str = "\u{4}";

/// Runs all sessions of a page. Returns the differences.
fn differences(page: &Page) -> Vec<String> {
    let mut session: Option<Session> = None;
    let mut wrong = Vec::new();
    let mut path = None;
    let mut is_left_out = false;
    for part in page.parts() {
        match part {
            Part::Prose(..) => {}
            Part::Comment(line, text) => {
                let (head, body) = text.split_once('\n').unwrap_or((&text, ""));
                match head.split_once(' ').unwrap_or((head, "")) {
                    ("session", "") => {
                        wrong.extend(
                            session
                                .take()
                                .map(|mut ended| std::mem::take(&mut ended.wrong))
                                .unwrap_or_default(),
                        );
                        session = Some(Session::new());
                    }
                    ("run", "") => {}
                    ("file", name) => path = Some(name.to_owned()),
                    ("not", reason) if reason.starts_with("run: ") => is_left_out = true,
                    _ => continue,
                }
                let steps = steps(body, line + 1).expect("commands that end");
                let Some(session) = session.as_mut() else {
                    continue;
                };
                session.run(page, &steps);
            }
            Part::Block(block) => {
                let left_out = std::mem::take(&mut is_left_out);
                if let Some(path) = path.take() {
                    let session = session.as_mut();
                    session
                        .expect("a file in a session")
                        .write(&path, &block.text);
                } else if block.language == "console" && !left_out {
                    let steps = steps(&block.text, block.line).expect("commands that end");
                    let Some(session) = session.as_mut() else {
                        wrong.push(format!("{}: no session", page.at(block.line)));
                        continue;
                    };
                    session.run(page, &steps);
                }
            }
        }
    }
    wrong.extend(
        session
            .map(|mut ended| std::mem::take(&mut ended.wrong))
            .unwrap_or_default(),
    );
    wrong
}

/// Whether a page has a command that sessions could run.
fn has_commands(page: &Page) -> bool {
    page.blocks("console")
        .iter()
        .any(|block| !block.text.is_empty())
}

#[test]
fn sessions_print_what_the_pages_show() {
    let pages = pages();
    let skipped = |page: &&Page| {
        PAGES_NOT_RUN
            .iter()
            .all(|(path, _)| page.path != Path::new(path))
    };
    let run: Vec<_> = pages
        .iter()
        .filter(skipped)
        .filter(|page| has_commands(page))
        .collect();
    assert!(run.len() >= 8, "{} pages have sessions", run.len());
    let differing: Vec<_> = thread::scope(|scope| {
        let tasks: Vec<_> = run
            .iter()
            .map(|page| (page, scope.spawn(|| differences(page))))
            .collect();
        let ended = tasks.into_iter().filter_map(|(page, task)| {
            let wrong = task.join().expect("no panic");
            (!wrong.is_empty()).then_some(page)
        });
        ended.collect()
    });
    // `caproot mcp` waits half a second for its first list, which is short while all sessions run at once.
    let wrong: Vec<_> = differing
        .into_iter()
        .flat_map(|page| differences(page))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn differences_are_found() {
    let text = "<!-- session\n$ printf 'a\\nb\\n' > x\n-->\n```console\n$ cat x\na\n…\n$ cat x\na\nc\n```\n";
    let page = Page {
        path: "x.md".into(),
        text: text.to_owned(),
    };
    assert_eq!(differences(&page), ["x.md:8: cat x\n  a\n- c\n+ b\n"]);
}

#[test]
fn an_ellipsis_matches_any_text() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    for (expected, actual, is_match) in [
        ("a\n…\nd", "a\nb\nc\nd", true),
        ("a\n…", "a", true),
        ("a\n…\nd", "a\nb", false),
        ("a … c", "a b c", true),
        ("a … c", "a b d", false),
        ("12:00:01 + a", "23:59:59 + a", true),
        (
            "at 2026-11-22T13:31:41.38Z",
            "at 2027-01-01T00:00:00Z",
            true,
        ),
        (
            "revision 1 of epoch bc92d1e7461455f6",
            "revision 1 of epoch 0c92d1e7461455f6",
            true,
        ),
        (
            "revision 1 of epoch bc92d1e7461455f6",
            "revision 2 of epoch bc92d1e7461455f6",
            false,
        ),
        ("", "", true),
    ] {
        assert_eq!(
            matches(&lines(expected), &lines(actual)),
            is_match,
            "{expected} {actual}"
        );
    }
}
