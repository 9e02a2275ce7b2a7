//! What commands print on a terminal of some width.

use std::fs::File;
use std::io::Read as _;
use std::process::{Command, ExitStatus, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use unicode_width::UnicodeWidthStr;

use crate::commands::client_command;
use crate::fixture::Fixture;
use crate::harness::{Daemon, Setup, in_time};

/// What a command prints on a terminal of so many columns.
fn on_terminal(command: Command, columns: u16) -> String {
    let (printed, ended) = attached(command, columns, |command, terminal| {
        command.stdout(terminal).stderr(Stdio::null());
    });
    assert!(ended.success());
    printed
}

/// Runs a command whose streams are attached to a terminal, and gives what came there.
pub(crate) fn attached(
    mut command: Command,
    columns: u16,
    attach: impl FnOnce(&mut Command, File),
) -> (String, ExitStatus) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&ours).and_then(|()| unlockpt(&ours)).expect("ours");
    let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&ours, size).expect("a size");
    let name = ptsname(&ours, Vec::new()).expect("a name").into_string().expect("UTF-8");
    let theirs = File::options().read(true).write(true).open(name).expect("its other side");
    attach(&mut command, theirs);
    let mut child = command.spawn().expect("the binary runs");
    // Its copy of the other side must go, or the terminal never ends.
    drop(command);
    let mut printed = Vec::new();
    let mut buffer = [0; 4_096];
    let mut terminal = File::from(ours);
    // The end is an error: EIO, once the other side is closed.
    while let Ok(n @ 1..) = terminal.read(&mut buffer) {
        printed.extend(&buffer[..n]);
    }
    let printed = String::from_utf8(printed).expect("text").replace("\r\n", "\n");
    (printed, child.wait().expect("it ends"))
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
            let printed = tokio::task::spawn_blocking(move || on_terminal(command, columns));
            let printed = in_time(printed).await.expect("no panic");
            // Behind the table of roots comes the tree of their plugins, whose handles are whole.
            let table: Vec<_> = printed.lines().take_while(|line| !line.is_empty()).collect();
            assert_eq!(table.len(), lines, "{words}: {printed}");
            let widths: Vec<_> = table.into_iter().map(UnicodeWidthStr::width).collect();
            let most = usize::from(columns);
            assert!(widths.iter().all(|width| *width <= most), "{words}, {columns}: {printed}");
            // One short where a wide character is cut off.
            let is_used = widths.iter().any(|width| *width + 1 >= most);
            assert!(is_used || words != "list", "{columns}: {printed}");
        }
    }
    daemon.stop().await;
}
