//! The real binary if its socket file is removed or replaced while the daemon runs.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::Path;

use crate::harness::fixture::Fixture;
use crate::harness::process::{Process, caproot, run_command};

/// Starts a daemon with a Unix socket of this mode in the directory `run`.
fn serve_socket(fixture: &Fixture, mode: &str) -> Process {
    fs::set_permissions(fixture.path("run"), fs::Permissions::from_mode(0o755)).expect("chmod");
    fixture.write(
        "c.yaml",
        format!("listen: ['unix:run/c.sock']\nallow: [root]\nsocket: {{mode: '{mode}'}}"),
    );
    let mut command = caproot(["serve", "--config"]);
    command.arg(fixture.path("c.yaml"));
    Process::start(command)
}

async fn assert_serves(serving: &Process) {
    let output = run_command(caproot(["status", "--endpoint", serving.endpoint()])).await;
    output.succeeded();
}

/// Returns type, mode, user and group.
fn access(socket: &Path) -> (u32, u32, u32) {
    let metadata = fs::symlink_metadata(socket).expect("the socket file exists");
    (metadata.mode(), metadata.uid(), metadata.gid())
}

#[tokio::test]
async fn a_removed_socket_file_is_made_again_with_the_same_access() {
    let fixture = Fixture::new("dir root\ndir run");
    let mut serving = serve_socket(&fixture, "0660");
    let socket = fixture.path("run/c.sock");
    let before = access(&socket);
    for _ in 0..3 {
        fs::remove_file(&socket).expect("remove");
        let line = serving.wait_for_log("was made again").await;
        assert!(line.contains("c.sock"), "{line}");
        assert_eq!(access(&socket), before);
        assert_serves(&serving).await;
    }
    serving.stop().await;
    assert!(!socket.exists(), "the daemon removes its last socket file");
}

#[tokio::test]
async fn the_socket_file_of_another_process_is_left_alone() {
    let fixture = Fixture::new("dir root\ndir run");
    let mut serving = serve_socket(&fixture, "0600");
    let (socket, other) = (fixture.path("run/c.sock"), fixture.path("run/other.sock"));
    let foreign = UnixListener::bind(&other).expect("another socket");
    // The path is never missing.
    fs::rename(&other, &socket).expect("rename");
    let line = serving.wait_for_log("has a file of another process").await;
    assert!(line.contains("no client can connect"), "{line}");
    let inode = fs::symlink_metadata(&socket).expect("a file").ino();
    drop(foreign);

    // Once that file is gone, the daemon makes its own.
    fs::remove_file(&socket).expect("remove");
    serving.wait_for_log("was made again").await;
    assert_serves(&serving).await;
    let foreign = UnixListener::bind(&other).expect("another socket");
    fs::rename(&other, &socket).expect("rename");
    serving.wait_for_log("has a file of another process").await;
    serving.stop().await;
    assert!(
        socket.exists(),
        "the file of another process is not removed: {inode}"
    );
    drop(foreign);
}

#[tokio::test]
async fn a_removed_directory_is_reported_and_a_new_one_gets_the_socket() {
    let fixture = Fixture::new("dir root\ndir run");
    let mut command = caproot(["serve", "--sandbox", "off", "--listen"]);
    command.arg(format!("unix:{}", fixture.path("run/c.sock").display()));
    command.arg("--allow").arg(fixture.path("root"));
    let mut serving = Process::start(command);
    fs::remove_dir_all(fixture.path("run")).expect("remove");
    // The daemon creates the directory, as at its start.
    serving.wait_for_log("was made again").await;
    assert_serves(&serving).await;
    serving.stop().await;
}
