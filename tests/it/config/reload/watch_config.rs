//! A config file that is reloaded whenever it changes.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use super::{REJECTED, ReloadingDaemon};
use crate::harness::fixture::Fixture;
use crate::harness::in_time;
use crate::harness::process::{Process, caproot, with_listener};

const WATCHED_CONFIG: &str = "watch_config: true\nroots: [{id: r, path: r}]\n";

fn config_with_environment(id: &str) -> String {
    with_listener(&format!("{WATCHED_CONFIG}environment_ids: [{id}]"))
}

async fn wait_for_environment(process: &ReloadingDaemon, id: &str) {
    in_time(async { while process.daemon.executor().await.environment_ids != [id] {} }).await;
}

#[tokio::test]
async fn writes_in_place_and_by_rename_are_reloaded() {
    let mut process = ReloadingDaemon::start("skill r/a", WATCHED_CONFIG).await;
    for (id, in_place) in [("one", true), ("two", false), ("three", true)] {
        if in_place {
            process
                .fixture
                .write("caproot.yaml", config_with_environment(id));
        } else {
            process
                .fixture
                .replace("caproot.yaml", config_with_environment(id));
        }
        wait_for_environment(&process, id).await;
    }
    // A bad file is rejected, and the next good file is applied.
    process.fixture.replace("caproot.yaml", "nonsense: 1");
    process.process.wait_for_log(REJECTED).await;
    fs::remove_file(process.fixture.path("caproot.yaml")).expect("removed");
    process
        .fixture
        .write("caproot.yaml", config_with_environment("four"));
    wait_for_environment(&process, "four").await;
    process.stop().await;
}

#[tokio::test]
async fn the_flag_reloads_a_mounted_config_map_when_its_link_changes() {
    let fixture = Fixture::new("skill r/a\ndir etc/..1\ndir etc/..2");
    for (dir, id) in [("..1", "one"), ("..2", "two")] {
        let config = with_listener(&format!("environment_ids: [{id}]"));
        fixture.write(&format!("etc/{dir}/caproot.yaml"), config);
    }
    symlink("..1", fixture.path("etc/..data")).expect("a link");
    symlink("..data/caproot.yaml", fixture.path("etc/caproot.yaml")).expect("a link");
    let mut command = caproot(["serve", "--watch-config", "--config"]);
    command.arg(fixture.path("etc/caproot.yaml"));
    let process = ReloadingDaemon::start_command(fixture, command).await;
    wait_for_environment(&process, "one").await;
    symlink("..2", process.fixture.path("etc/..new")).expect("a link");
    fs::rename(
        process.fixture.path("etc/..new"),
        process.fixture.path("etc/..data"),
    )
    .expect("renamed");
    wait_for_environment(&process, "two").await;

    // The kubelet removes the old directory. The log has no warning about its watch.
    fs::remove_dir_all(process.fixture.path("etc/..1")).expect("removed");
    process
        .fixture
        .replace("etc/..2/caproot.yaml", config_with_environment("three"));
    wait_for_environment(&process, "three").await;
    let log = process.stop().await;
    assert!(!log.contains("notify"), "{log}");
}

#[tokio::test]
async fn a_timer_reloads_after_the_watcher_ended() {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root || Command::new("strace").arg("-V").output().is_err() {
        println!("SKIPPED: only root with strace can end the watcher");
        return;
    }
    let mut process = ReloadingDaemon::start("skill r/a", WATCHED_CONFIG).await;
    process
        .fixture
        .replace("caproot.yaml", config_with_environment("one"));
    wait_for_environment(&process, "one").await;
    let tasks =
        fs::read_dir(format!("/proc/{}/task", process.process.pid())).expect("a task directory");
    let thread = tasks
        .map(|task| task.expect("a thread").path())
        .find(|task| {
            fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("notify-rs"))
        });
    let thread = thread.expect("the watcher's thread");
    let thread = thread
        .file_name()
        .expect("a number")
        .to_str()
        .expect("a number");
    // The next `epoll_wait` of the thread fails.
    let mut strace = Command::new("strace");
    strace.args([
        "-qq",
        "-o",
        "/dev/null",
        "-p",
        thread,
        "-e",
        "trace=?epoll_wait,?epoll_pwait",
    ]);
    strace.args(["-e", "inject=?epoll_wait,?epoll_pwait:error=EINVAL"]);
    let strace = Process::spawn(strace);
    let line = process
        .process
        .wait_for_log("file watcher ended unexpectedly; comparing files every 10 s")
        .await;
    assert!(line.contains("WARN"), "{line}");
    // strace ends with the thread.
    strace.exit().await;
    process
        .fixture
        .replace("caproot.yaml", config_with_environment("two"));
    wait_for_environment(&process, "two").await;
    process.stop().await;
}
