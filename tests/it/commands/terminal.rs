//! Output of commands on terminals of different widths.

use std::fs::File;
use std::io::Read as _;
use std::process::{Command, ExitStatus, Stdio};

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
    mut command: Command,
    columns: u16,
    attach: impl FnOnce(&mut Command, File),
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
        for (words, lines) in [("list", 5), ("roots", 2), ("resolve", 2)] {
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
