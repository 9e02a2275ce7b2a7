//! Files that the daemon's user may not read: other files are unaffected, the diagnostics name
//! them, and they return with the permission. Run as root, the test starts the daemon as another
//! user.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use caproot_core::proto::caproot::v1::{DiagnosticCode, RootReason, RootState};
use tonic::Code;

use crate::harness::fixture::{Fixture, is_root};
use crate::harness::process::{Process, serve, wrap_command};
use crate::harness::replica::Replica;
use crate::harness::watch_harness::{fresh_list, watch_request};
use crate::harness::{assert_rpc_error, read_request, selected};

/// Returns `caproot serve` as a user without special rights. `None` if there is no such user.
fn unprivileged_daemon(fixture: &Fixture) -> Option<Command> {
    let mut command = serve(["--allow"]);
    command.arg(fixture.top());
    if !is_root() {
        return Some(command);
    }
    // The build directory may be inaccessible to that user.
    let copy = fixture.path("caproot");
    fs::copy(env!("CARGO_BIN_EXE_caproot"), &copy).expect("a copy of the binary");
    let mut copied = Command::new(copy);
    copied.args(command.get_args()).env("HOME", "/nonexistent");
    let wrapper = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--",
    ];
    wrap_command(
        wrapper,
        copied,
        "setpriv cannot run a program as an ordinary user here",
    )
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
}

/// Resources below `r` with an `UNREADABLE` diagnostic.
fn unreadable(replica: &Replica) -> Vec<&str> {
    let found = replica.diagnostics["r"]
        .iter()
        .filter(|d| d.code() == DiagnosticCode::Unreadable);
    let mut resources: Vec<_> = found.map(|d| d.resource.as_str()).collect();
    resources.sort_unstable();
    resources
}

#[tokio::test]
async fn unreadable_files_affect_no_others_and_return_with_permission() {
    let mut fixture = Fixture::new("skill r/a\nskill r/dir\nskill r/file\nfile r/a/x.md\n| text");
    fixture.add("mode 0755 .");
    let closed = ["r/dir", "r/file/SKILL.md", "r/a/x.md"].map(|name| fixture.path(name));
    for path in &closed {
        set_mode(path, 0);
    }
    let Some(command) = unprivileged_daemon(&fixture) else {
        return;
    };
    let serving = Process::start(command);
    let daemon = serving.connect().await;
    let root = selected("r", fixture.path("r"));
    let mut replica = Replica::synced(&daemon, watch_request(vec![root.clone()])).await;
    let names = |replica: &Replica| replica.skills.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&replica), ["skill://r/a"]);
    assert_eq!(
        unreadable(&replica),
        ["skill://r/dir", "skill://r/file/SKILL.md"]
    );
    let read = || read_request(&root, "skill://r/a", "skill://r/a/x.md");
    assert_rpc_error(
        daemon.read(read()).await,
        Code::NotFound,
        "RESOURCE_NOT_FOUND",
        None,
    );

    // An unreadable directory cannot be watched, so it is polled.
    set_mode(&closed[0], 0o755);
    replica
        .wait_while(|replica| names(replica) != ["skill://r/a", "skill://r/dir"])
        .await;
    set_mode(&closed[1], 0o644);
    replica.wait_while(|replica| names(replica).len() < 3).await;
    assert_eq!(unreadable(&replica), [""; 0]);
    set_mode(&closed[2], 0o644);
    assert_eq!(
        daemon.read_all(read()).await.expect("readable again"),
        b"text\n"
    );
    set_mode(&closed[0], 0);
    replica
        .wait_while(|replica| names(replica) != ["skill://r/a", "skill://r/file"])
        .await;

    // The root itself becomes unreadable.
    set_mode(&fixture.path("r"), 0);
    replica
        .wait_while(|replica| replica.roots["r"].state() == RootState::Ready)
        .await;
    assert_eq!(replica.roots["r"].reason(), RootReason::PermissionDenied);
    assert_eq!(
        fresh_list(&daemon, std::slice::from_ref(&root))
            .await
            .skills
            .len(),
        0
    );
    set_mode(&fixture.path("r"), 0o755);
    replica
        .wait_while(|replica| names(replica) != ["skill://r/a", "skill://r/file"])
        .await;
    replica.catch_up(&daemon).await;
    drop(daemon);
    serving.stop().await;
}
