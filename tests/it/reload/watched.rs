//! A config file that is reloaded whenever it changes.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use super::{REFUSED, Served, listening};
use crate::fixture::Fixture;
use crate::harness::in_time;

const WATCHED: &str = "watch_config: true\nroots: [{id: r, path: r}]\n";

fn environment(id: &str) -> String {
    listening(&format!("{WATCHED}environment_ids: [{id}]"))
}

async fn answers_for(served: &Served, id: &str) {
    in_time(async { while served.executor().await.environment_ids != [id] {} }).await;
}

#[tokio::test]
async fn every_way_to_write_it_is_a_reload() {
    let mut served = Served::start("skill r/a", WATCHED).await;
    for (id, in_place) in [("one", true), ("two", false), ("three", true)] {
        if in_place {
            served.fixture.write("caproot.yaml", environment(id));
        } else {
            served.fixture.replace("caproot.yaml", environment(id));
        }
        answers_for(&served, id).await;
    }
    // A bad file is refused, and the next good one is applied.
    served.fixture.replace("caproot.yaml", "nonsense: 1");
    served.says(&[REFUSED]).await;
    fs::remove_file(served.fixture.path("caproot.yaml")).expect("removed");
    served.fixture.write("caproot.yaml", environment("four"));
    answers_for(&served, "four").await;
    // Without the key, a signal is needed; with it again, no other one.
    served.fixture.replace("caproot.yaml", listening("environment_ids: [five]"));
    answers_for(&served, "five").await;
    served.hangup("environment_ids: [six]\nwatch_config: true").await;
    answers_for(&served, "six").await;
    served.fixture.replace("caproot.yaml", environment("seven"));
    answers_for(&served, "seven").await;
    served.stop().await;
}

#[tokio::test]
async fn by_a_flag_and_through_links_as_of_a_mounted_config_map() {
    let fixture = Fixture::new("skill r/a\ndir etc/..1\ndir etc/..2");
    for (dir, id) in [("..1", "one"), ("..2", "two")] {
        let config = listening(&format!("environment_ids: [{id}]"));
        fixture.write(&format!("etc/{dir}/caproot.yaml"), config);
    }
    symlink("..1", fixture.path("etc/..data")).expect("a link");
    symlink("..data/caproot.yaml", fixture.path("etc/caproot.yaml")).expect("a link");
    let file = fixture.path("etc/caproot.yaml");
    let served =
        Served::begin(fixture, |command| command.arg("--config").arg(file).arg("--watch-config"));
    let served = served.await;
    answers_for(&served, "one").await;
    symlink("..2", served.fixture.path("etc/..new")).expect("a link");
    fs::rename(served.fixture.path("etc/..new"), served.fixture.path("etc/..data"))
        .expect("renamed");
    answers_for(&served, "two").await;
    served.stop().await;
}

#[tokio::test]
async fn a_timer_goes_on_when_the_watcher_ends() {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root || Command::new("strace").arg("-V").output().is_err() {
        println!("SKIPPED: only root with strace can end the watcher");
        return;
    }
    let mut served = Served::start("skill r/a", WATCHED).await;
    served.fixture.replace("caproot.yaml", environment("one"));
    answers_for(&served, "one").await;
    let tasks = fs::read_dir(format!("/proc/{}/task", served.child.id())).expect("its threads");
    let thread = tasks.map(|task| task.expect("a thread").path()).find(|task| {
        fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("notify-rs"))
    });
    let thread = thread.expect("the watcher's thread");
    let thread = thread.file_name().expect("a number").to_str().expect("a number");
    // Its next wait for events fails.
    let mut strace = Command::new("strace");
    strace.args(["-qq", "-o", "/dev/null", "-p", thread, "-e", "trace=?epoll_wait,?epoll_pwait"]);
    strace.args(["-e", "inject=?epoll_wait,?epoll_pwait:error=EINVAL"]);
    let mut strace = strace.spawn().expect("strace runs");
    let line = served.says(&["file watcher ended unexpectedly; comparing files every 10 s"]).await;
    assert!(line.contains("WARN"), "{line}");
    strace.wait().expect("strace ends with the thread");
    served.fixture.replace("caproot.yaml", environment("two"));
    answers_for(&served, "two").await;
    served.stop().await;
}
