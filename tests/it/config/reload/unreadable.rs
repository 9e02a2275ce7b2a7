//! Files that are no regular files or do not answer: a reload is rejected, and a later one works.

use std::os::unix::net::UnixDatagram;
use std::process::Command;

use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::process::Signal;

use super::service_manager::receive_message;
use super::{APPLIED, REJECTED, ReloadingDaemon};
use crate::harness::HANG_TIMEOUT;
use crate::harness::fixture::Fixture;
use crate::harness::fuse::Fuse;
use crate::harness::namespaces::run_in_namespaces;
use crate::harness::process::{Process, caproot, serve_config, with_listener};

const PLAIN: &str = "roots: [{id: r, path: r}]";

#[tokio::test]
async fn a_fifo_is_rejected_and_a_later_reload_works() {
    let mut process = ReloadingDaemon::start("skill r/a\nfifo token\nmode 0600 token", PLAIN).await;
    let file = process.fixture.path("caproot.yaml");
    std::fs::remove_file(&file).expect("removed");
    mkfifoat(CWD, &file, Mode::RUSR).expect("a fifo");
    process.process.send_signal(Signal::HUP);
    let line = process.process.wait_for_log("rejected").await;
    assert!(
        line.contains("caproot.yaml: is not a regular file") && line.contains(REJECTED),
        "{line}"
    );
    let with_token = format!("{PLAIN}\ncallers: [{{name: a, token_file: token}}]");
    assert!(process.try_reload(PLAIN).await.contains(APPLIED));
    assert!(process.try_reload(&with_token).await.contains(REJECTED));
    assert!(process.try_reload(PLAIN).await.contains(APPLIED));
    process.stop().await;
}

#[tokio::test]
async fn a_fifo_does_not_hang_the_start() {
    let fixture = Fixture::new("skill r/a");
    let command = serve_config(&fixture, PLAIN);
    let file = fixture.path("caproot.yaml");
    std::fs::remove_file(&file).expect("removed");
    mkfifoat(CWD, &file, Mode::RUSR).expect("a fifo");
    Process::start_failure(command)
        .await
        .exited_with(78, "caproot.yaml: is not a regular file");
}

/// Mounts a filesystem with a config file. Returns `None` without FUSE.
fn mount_config() -> Option<(Fixture, Fuse, Command)> {
    let fixture = Fixture::new("dir run\nmode 0700 run\ndir etc\nskill r/a");
    let disk = Fuse::mount(&fixture.path("etc"))?;
    let config = "roots: [{id: r, path: ../r}]";
    disk.write("caproot.yaml", with_listener(config));
    let mut command = caproot(["serve", "--config"]);
    command.arg(fixture.path("etc/caproot.yaml"));
    Some((fixture, disk, command))
}

#[tokio::test]
async fn a_file_that_does_not_answer_is_rejected_and_a_later_reload_works() {
    run_in_namespaces!("--mount");
    let Some((fixture, disk, mut command)) = mount_config() else {
        return;
    };
    let notify = fixture.path("run/notify");
    let socket = UnixDatagram::bind(&notify).expect("a socket");
    socket
        .set_read_timeout(Some(HANG_TIMEOUT))
        .expect("a time-out");
    command.env("NOTIFY_SOCKET", notify);
    let mut process = ReloadingDaemon::start_command(fixture, command).await;
    receive_message(&socket, "READY=1").await;

    disk.hang();
    process.process.send_signal(Signal::HUP);
    receive_message(&socket, "RELOADING=1").await;
    let ready = receive_message(&socket, "READY=1").await;
    assert!(
        ready.contains("etc/caproot.yaml: does not answer"),
        "{ready}"
    );
    let line = process.process.wait_for_log("rejected").await;
    assert!(
        line.contains("etc/caproot.yaml: does not answer") && line.contains(REJECTED),
        "{line}"
    );
    assert_eq!(process.config().await.rejected_reloads, 1);

    disk.resume();
    process.process.send_signal(Signal::HUP);
    process.process.wait_for_log(APPLIED).await;
    receive_message(&socket, "READY=1").await;
    process.stop().await;
}

#[tokio::test]
async fn a_file_that_does_not_answer_does_not_hang_the_start() {
    run_in_namespaces!("--mount");
    let Some((_fixture, disk, command)) = mount_config() else {
        return;
    };
    disk.hang();
    Process::start_failure(command)
        .await
        .exited_with(78, "etc/caproot.yaml: does not answer");
}
