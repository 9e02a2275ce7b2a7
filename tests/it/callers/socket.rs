//! Users whom the mode and group of a Unix socket allow to connect.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use super::{ProcessUser, can_switch_user, reachable_fixture};
use crate::harness::fixture::{Fixture, is_root};
use crate::harness::process::{Output, Process, caproot, run_command, wrap_command};

const MEMBER: ProcessUser = ProcessUser {
    uid: 7_001,
    gid: 7_001,
    groups: &[7_100],
};
const OTHER_USER: ProcessUser = ProcessUser {
    uid: 7_002,
    gid: 7_002,
    groups: &[],
};

/// Returns the mode and the group of a socket.
fn mode_and_group(socket: &Path) -> (u32, u32) {
    let meta = fs::metadata(socket).expect("the socket");
    (meta.mode() & 0o7777, meta.gid())
}

/// Starts a daemon with the given config file and umask.
fn start_with_umask(fixture: &Fixture, config: &str, umask: &str) -> Process {
    fixture.write("caproot.yaml", config);
    let mut command = Command::new("sh");
    command.args(["-c", "umask $0; exec \"$@\"", umask]);
    command.args([env!("CARGO_BIN_EXE_caproot"), "serve", "--config"]);
    Process::start(command.arg(fixture.path("caproot.yaml")).env_clear())
}

#[tokio::test]
async fn mode_and_group_of_the_socket_follow_the_config() {
    let own = rustix::process::getegid().as_raw();
    for umask in ["000", "022", "077"] {
        let fixture = reachable_fixture("dir root");
        let socket = fixture.path("run/c.sock");
        let with = |section: &str| format!("listen: ['unix:run/c.sock']\nallow: [root]\n{section}");
        for (section, expected) in [
            ("", (0o600, own)),
            ("socket: {mode: '0660'}", (0o660, own)),
            (
                "socket: {mode: '0666'}\ncallers: [{name: a, uids: [1]}]",
                (0o666, own),
            ),
        ] {
            let serving = start_with_umask(&fixture, &with(section), umask);
            assert_eq!(mode_and_group(&socket), expected, "{section}");
            serving.stop().await;
        }
        if !can_switch_user() {
            return;
        }
        let config = with("socket: {group: 7100}");
        let serving = start_with_umask(&fixture, &config, umask);
        assert_eq!(mode_and_group(&socket), (0o660, 7_100));
        MEMBER.connect(&socket).expect("a member of the group");
        let refused = OTHER_USER
            .connect(&socket)
            .expect_err("not a member")
            .kind();
        assert_eq!(refused, ErrorKind::PermissionDenied);
        serving.stop().await;
    }
}

/// As with a daemon and a client in two containers: the kernel reports the process id 0 then.
#[tokio::test]
async fn a_caller_outside_the_pid_namespace_of_the_daemon_is_served() {
    let fixture = Fixture::new("skill root/a\ndir run");
    let mut command = caproot(["serve", "--audit", "--root"]);
    command
        .arg(fixture.path("root"))
        .env("RUNTIME_DIRECTORY", fixture.path("run"));
    let unshare = [
        "unshare",
        "--user",
        "--map-root-user",
        "--pid",
        "--fork",
        "--kill-child",
    ];
    let skipped = "unshare(1) cannot make a PID namespace here";
    let Some(command) = wrap_command(unshare, command, skipped) else {
        return;
    };
    let serving = Process::start(command);
    let listed = run_command(caproot(["list", "--endpoint", serving.endpoint()])).await;
    assert!(listed.text().contains("Does a."), "{listed:?}");
    let log = serving.exit_on(Signal::KILL).await.stderr;
    assert!(log.contains(" pid=0 "), "{log}");
}

#[tokio::test]
async fn a_group_that_the_daemon_cannot_set_ends_the_start() {
    let fixture = reachable_fixture("dir root");
    let mut command = caproot(["serve", "--config"]);
    command.arg(fixture.path("c.yaml"));
    let setpriv = ["setpriv", "--reuid=7002", "--regid=7002", "--clear-groups"];
    let skipped = "setpriv(1) cannot run the binary as another user here";
    let Some(command) = wrap_command(setpriv, command, skipped) else {
        return;
    };
    std::os::unix::fs::chown(fixture.path("run"), Some(7_002), Some(7_002)).expect("chown");
    fixture.write(
        "c.yaml",
        "listen: ['unix:run/c.sock']\nallow: [root]\nsocket: {group: 7100}",
    );
    let Output { code, stderr, .. } = run_command(command).await;
    assert_eq!(code, Some(73), "{stderr}");
    let message = "cannot be given the group 7100; the daemon's user must be in it";
    assert!(
        stderr.contains(message) && stderr.lines().count() == 1,
        "{stderr}"
    );
    assert!(
        !fixture.path("run/c.sock").exists(),
        "no socket is left behind"
    );
}

/// Starts a daemon in a unit's runtime directory, with the given `/etc/group`.
fn start_in_unit(fixture: &Fixture, groups: &str, user: Option<&str>) -> Option<Process> {
    fixture.write("group", groups);
    let mut wrapper = vec![
        OsString::from("unshare"),
        "--mount".into(),
        "sh".into(),
        "-c".into(),
    ];
    wrapper.push("mount --bind \"$0\" /etc/group && exec \"$@\"".into());
    wrapper.push(fixture.path("group").into());
    if let Some(user) = user {
        wrapper.extend(["setpriv", user, "--regid=7002", "--clear-groups"].map(OsString::from));
    }
    let mut command = caproot(["serve", "--allow"]);
    command
        .arg(fixture.path("root"))
        .env("RUNTIME_DIRECTORY", fixture.path("run"));
    let skipped = "unshare(1) cannot mount a fake /etc/group here";
    wrap_command(wrapper, command, skipped)
        .filter(|_| is_root())
        .map(Process::start)
}

#[tokio::test]
async fn the_socket_of_a_unit_gets_the_group_caproot() {
    let fixture = reachable_fixture("dir root");
    let socket = fixture.path("run/caproot.sock");
    let groups = "root:x:0:\ncaproot:x:7100:\n";
    let Some(serving) = start_in_unit(&fixture, groups, None) else {
        return;
    };
    assert_eq!(mode_and_group(&socket), (0o660, 7_100));
    serving.stop().await;
    let Some(serving) = start_in_unit(&fixture, "root:x:0:\n", None) else {
        return;
    };
    assert_eq!(mode_and_group(&socket), (0o600, 0));
    serving.stop().await;
    // A user that may not set the group keeps its own, and the daemon logs a warning.
    fs::remove_file(fixture.path("run/caproot.sock.lock")).expect("the lock file exists");
    std::os::unix::fs::chown(fixture.path("run"), Some(7_002), Some(7_002)).expect("chown");
    let Some(serving) = start_in_unit(&fixture, groups, Some("--reuid=7002")) else {
        return;
    };
    assert_eq!(mode_and_group(&socket), (0o600, 7_002));
    let log = serving.stop().await;
    assert!(log.contains("not in the group"), "{log}");
}
