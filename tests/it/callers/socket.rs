//! Users whom the mode and group of a Unix socket allow to connect.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use super::{ProcessUser, can_switch_user, reachable_fixture};
use crate::binary::{DaemonProcess, run};
use crate::fixture::{Fixture, is_root};

const MEMBER: ProcessUser = ProcessUser { uid: 7_001, gid: 7_001, groups: &[7_100] };
const OTHER_USER: ProcessUser = ProcessUser { uid: 7_002, gid: 7_002, groups: &[] };

/// Returns the mode and the group of a socket.
fn mode_and_group(socket: &Path) -> (u32, u32) {
    let meta = fs::metadata(socket).expect("the socket");
    (meta.mode() & 0o7777, meta.gid())
}

/// Returns a `caproot serve` command with the given config file and umask.
fn serve_command(fixture: &Fixture, config: &str, umask: &str) -> Command {
    fixture.write("caproot.yaml", config);
    let mut command = Command::new("sh");
    command.args(["-c", "umask $0; exec \"$@\"", umask]);
    command.args([env!("CARGO_BIN_EXE_caproot"), "serve", "--config"]);
    command.arg(fixture.path("caproot.yaml")).env_clear();
    command
}

#[test]
fn mode_and_group_of_the_socket_follow_the_config() {
    let own = rustix::process::getegid().as_raw();
    for umask in ["000", "022", "077"] {
        let fixture = reachable_fixture("dir root");
        let socket = fixture.path("run/c.sock");
        let with = |section: &str| format!("listen: ['unix:run/c.sock']\nallow: [root]\n{section}");
        for (section, expected) in [
            ("", (0o600, own)),
            ("socket: {mode: '0660'}", (0o660, own)),
            ("socket: {mode: '0666'}\ncallers: [{name: a, uids: [1]}]", (0o666, own)),
        ] {
            let serving = DaemonProcess::spawn(&mut serve_command(&fixture, &with(section), umask));
            assert_eq!(mode_and_group(&socket), expected, "{section}");
            assert_eq!(serving.terminate().0, Some(0));
        }
        if !can_switch_user() {
            return;
        }
        let config = with("socket: {group: 7100}");
        let serving = DaemonProcess::spawn(&mut serve_command(&fixture, &config, umask));
        assert_eq!(mode_and_group(&socket), (0o660, 7_100));
        MEMBER.connect(&socket).expect("a member of the group");
        let refused = OTHER_USER.connect(&socket).expect_err("not a member").kind();
        assert_eq!(refused, ErrorKind::PermissionDenied);
        assert_eq!(serving.terminate().0, Some(0));
    }
}

/// As with a daemon and a client in two containers: the kernel reports the process id 0 then.
#[test]
fn a_caller_outside_the_pid_namespace_of_the_daemon_is_served() {
    let fixture = Fixture::new("skill root/a\ndir run");
    let in_namespace = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child"]);
        command
    };
    if !in_namespace().arg("true").status().is_ok_and(|status| status.success()) {
        println!("SKIPPED: unshare(1) cannot make a PID namespace here");
        return;
    }
    let mut command = in_namespace();
    command.args([env!("CARGO_BIN_EXE_caproot"), "serve", "--audit", "--root"]);
    command.arg(fixture.path("root")).env_clear().env("RUNTIME_DIRECTORY", fixture.path("run"));
    let serving = DaemonProcess::spawn(&mut command);
    let listed = run(["list", "--endpoint", serving.endpoint()]);
    assert!(listed.stdout.contains("Does a."), "{}{}", listed.stdout, listed.stderr);
    serving.send_signal(Signal::KILL);
    let (_, log) = serving.wait_for_exit();
    assert!(log.contains(" pid=0 "), "{log}");
}

#[test]
fn a_group_that_the_daemon_cannot_set_ends_the_start() {
    let runs = |command: &mut Command| command.output().is_ok_and(|done| done.status.success());
    let as_other_user = || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=7002", "--regid=7002", "--clear-groups"]);
        command.arg(env!("CARGO_BIN_EXE_caproot")).env_clear();
        command
    };
    if !runs(as_other_user().arg("--version")) {
        println!("SKIPPED: setpriv(1) cannot run the binary as another user here");
        return;
    }
    let fixture = reachable_fixture("dir root");
    std::os::unix::fs::chown(fixture.path("run"), Some(7_002), Some(7_002)).expect("chown");
    fixture.write("c.yaml", "listen: ['unix:run/c.sock']\nallow: [root]\nsocket: {group: 7100}");
    let mut command = as_other_user();
    let done = command.args(["serve", "--config"]).arg(fixture.path("c.yaml")).output();
    let done = done.expect("the command runs");
    let stderr = String::from_utf8(done.stderr).expect("text");
    assert_eq!(done.status.code(), Some(73), "{stderr}");
    let message = "cannot be given the group 7100; the daemon's user must be in it";
    assert!(stderr.contains(message) && stderr.lines().count() == 1, "{stderr}");
    assert!(!fixture.path("run/c.sock").exists(), "no socket is left behind");
}

/// Starts a daemon in a unit's runtime directory, with the given `/etc/group`.
fn start_in_unit(fixture: &Fixture, groups: &str, user: Option<&str>) -> Option<DaemonProcess> {
    fixture.write("group", groups);
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", "mount --bind \"$0\" /etc/group && exec \"$@\""]);
    command.arg(fixture.path("group"));
    if let Some(user) = user {
        command.args(["setpriv", user, "--regid=7002", "--clear-groups"]);
    }
    let mut probe = Command::new("unshare");
    probe.args(command.get_args().map(OsStr::to_owned)).arg("true");
    if !is_root() || !probe.status().is_ok_and(|status| status.success()) {
        println!("SKIPPED: unshare(1) cannot mount a fake /etc/group here");
        return None;
    }
    command.args([env!("CARGO_BIN_EXE_caproot"), "serve", "--allow"]).arg(fixture.path("root"));
    command.env("RUNTIME_DIRECTORY", fixture.path("run"));
    Some(DaemonProcess::spawn(&mut command))
}

#[test]
fn the_socket_of_a_unit_gets_the_group_caproot() {
    let fixture = reachable_fixture("dir root");
    let socket = fixture.path("run/caproot.sock");
    let groups = "root:x:0:\ncaproot:x:7100:\n";
    let Some(serving) = start_in_unit(&fixture, groups, None) else { return };
    assert_eq!(mode_and_group(&socket), (0o660, 7_100));
    assert_eq!(serving.terminate().0, Some(0));
    let Some(serving) = start_in_unit(&fixture, "root:x:0:\n", None) else { return };
    assert_eq!(mode_and_group(&socket), (0o600, 0));
    assert_eq!(serving.terminate().0, Some(0));
    // A user that may not set the group keeps its own, and the daemon logs a warning.
    fs::remove_file(fixture.path("run/caproot.sock.lock")).expect("the lock file exists");
    std::os::unix::fs::chown(fixture.path("run"), Some(7_002), Some(7_002)).expect("chown");
    let Some(serving) = start_in_unit(&fixture, groups, Some("--reuid=7002")) else { return };
    assert_eq!(mode_and_group(&socket), (0o600, 7_002));
    let (code, log) = serving.terminate();
    assert_eq!(code, Some(0));
    assert!(log.contains("not in the group"), "{log}");
}
