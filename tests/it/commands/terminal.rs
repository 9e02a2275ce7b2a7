//! Output of commands on terminals of different widths.

use std::fs::File;
use std::io::Read as _;
use std::process::{Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use unicode_width::UnicodeWidthStr;

use crate::harness::fixture::Fixture;
use crate::harness::process::client_command;
use crate::harness::{Daemon, Setup, in_time};

/// Output of a command on a terminal with this many columns.
fn output_on_terminal(command: Command, columns: u16) -> String {
    let (printed, ended) = run_on_terminal(command, columns, |command, terminal| {
        command.stdout(terminal).stderr(Stdio::null());
    });
    assert!(ended.success());
    printed
}

/// Runs a command with streams on a terminal. Returns the output and the exit status.
pub(crate) fn run_on_terminal(
    command: Command,
    columns: u16,
    attach: impl FnOnce(&mut Command, File),
) -> (String, ExitStatus) {
    run_on_terminal_until(command, columns, attach, |_| false)
}

/// Runs a command like [`run_on_terminal`], and sends SIGINT as soon as its output is the expected one.
pub(crate) fn run_on_terminal_until(
    mut command: Command,
    columns: u16,
    attach: impl FnOnce(&mut Command, File),
    is_expected: impl Fn(&str) -> bool,
) -> (String, ExitStatus) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&ours)
        .and_then(|()| unlockpt(&ours))
        .expect("grantpt and unlockpt");
    let size = Winsize {
        ws_row: 24,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&ours, size).expect("a size");
    let name = ptsname(&ours, Vec::new())
        .expect("a name")
        .into_string()
        .expect("UTF-8");
    let theirs = File::options()
        .read(true)
        .write(true)
        .open(name)
        .expect("the terminal device");
    attach(&mut command, theirs);
    let mut child = command.spawn().expect("the binary runs");
    // The command holds a copy of the terminal device, which would keep the terminal open.
    drop(command);
    let mut printed = Vec::new();
    let mut buffer = [0; 4_096];
    let mut terminal = File::from(ours);
    // A read fails with EIO once all copies of the terminal device are closed.
    while let Ok(n @ 1..) = terminal.read(&mut buffer) {
        printed.extend(&buffer[..n]);
        if is_expected(&String::from_utf8_lossy(&printed)) {
            let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            kill_process(pid.expect("a process"), Signal::INT).expect("a signal");
        }
    }
    let printed = String::from_utf8(printed)
        .expect("text")
        .replace("\r\n", "\n");
    (printed, child.wait().expect("the command exits"))
}

#[tokio::test]
async fn tables_fit_the_terminal() {
    let long = "\\{30*word \u{6f22}\u{5b57} }";
    let fixture = Fixture::new(&format!(
        "repeat 3 file skills/a-skill-with-quite-a-long-name-{{}}/SKILL.md
        | ---\n| description: {long}\n| ---
        skill skills/short\nfile skills/.codex-plugin/plugin.json\n| {{\"name\":\"a-plugin\"}}"
    ));
    let id = "a-root-with-quite-a-long-name";
    let daemon = Daemon::start(Setup::publishing(id, fixture.path("skills"))).await;
    for columns in [20, 80, 200] {
        for (words, lines) in [("list", 5), ("resolve --published", 2), ("resolve", 2)] {
            let command = client_command(&daemon, words);
            let printed = tokio::task::spawn_blocking(move || output_on_terminal(command, columns));
            let printed = in_time(printed).await.expect("no panic");
            // The tree of plugins below the table of roots prints handles in full.
            let table: Vec<_> = printed
                .lines()
                .take_while(|line| !line.is_empty())
                .collect();
            assert_eq!(table.len(), lines, "{words}: {printed}");
            let widths: Vec<_> = table.into_iter().map(UnicodeWidthStr::width).collect();
            let most = usize::from(columns);
            assert!(
                widths.iter().all(|width| *width <= most),
                "{words}, {columns}: {printed}"
            );
            // A row may be one column short if a wide character was cut.
            let is_used = widths.iter().any(|width| *width + 1 >= most);
            assert!(is_used || words != "list", "{columns}: {printed}");
        }
    }
    daemon.stop().await;
}

/// Removes the sequences of styles. Returns the text, and whether there were any.
fn strip_styles(printed: &str) -> (String, bool) {
    let mut parts = printed.split("\x1b[");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str(part.split_once('m').map_or(part, |(_, rest)| rest));
    }
    let has_styles = text != printed;
    (text, has_styles)
}

/// Runs a command with both streams on a terminal of 40 columns.
async fn run_on_small_terminal(mut command: Command) -> String {
    command.env("TERM", "xterm").env_remove("COLUMNS");
    let printed = tokio::task::spawn_blocking(move || {
        let attach = |command: &mut Command, terminal: File| {
            let stdout = terminal.try_clone().expect("a descriptor");
            command.stdout(stdout).stderr(terminal);
        };
        run_on_terminal(command, 40, attach).0
    });
    in_time(printed).await.expect("no panic")
}

#[tokio::test]
async fn messages_and_states_have_colors_and_break_between_words() {
    let fixture = Fixture::new("skill skills/pdf\nfile skills/bad/SKILL.md\n| no frontmatter");
    let daemon = Daemon::start(Setup::publishing("skills", fixture.path("skills"))).await;
    for (words, colored) in [
        ("list", "\x1b[1m\x1b[91merror[NO_FRONTMATTER]\x1b[0m"),
        ("resolve", "\x1b[32mREADY\x1b[0m"),
        ("resolve --published", "\x1b[32mREADY\x1b[0m"),
        ("status", "\x1b[32mSERVING\x1b[0m"),
        ("read pdv", "\x1b[1m\x1b[91mcaproot:\x1b[0m"),
        ("list --root gone=/proc", "\x1b[36mhint:\x1b[0m"),
    ] {
        let printed = run_on_small_terminal(client_command(&daemon, words)).await;
        assert!(printed.contains(colored), "{words}: {printed}");
        let (text, _) = strip_styles(&printed);

        let mut command = client_command(&daemon, words);
        command.env("NO_COLOR", "1");
        let plain = run_on_small_terminal(command).await;
        let (_, has_styles) = strip_styles(&plain);
        assert!(!has_styles, "{words}: {plain}");
        if words != "status" {
            assert_eq!(text, plain, "{words}");
        }
    }

    let printed = run_on_small_terminal(client_command(&daemon, "read pdv")).await;
    let (text, _) = strip_styles(&printed);
    assert_eq!(
        text,
        "caproot: no skill has the qualified name\n  `pdv`; did you mean pdf?\n\
         hint: `caproot list --long` shows names\n  and handles\n"
    );
    daemon.stop().await;
}
