//! The real binary with too few inotify watches or instances, and with too many events.

use std::fs;

use caproot_core::proto::caproot::v1::{RootState, WatchMode};
use rustix::process::Signal;

use crate::harness::fixture::Fixture;
use crate::harness::process::{Process, serve, wrap_command};
use crate::harness::replica::Replica;
use crate::harness::selected;
use crate::harness::watch_harness::{fresh_list, skill_text, watch_request, watch_status};

/// Starts `caproot serve` in a user namespace with a limit of inotify. Returns `None` without user
/// namespaces.
fn serve_with_limit(limit: &str, value: u32, fixture: &Fixture) -> Option<Process> {
    let script = format!("echo {value} > /proc/sys/user/{limit} && exec \"$@\"");
    let wrapper = [
        "unshare",
        "--user",
        "--map-root-user",
        "sh",
        "-c",
        &script,
        "sh",
    ];
    let mut command = serve(["--allow"]);
    command.arg(fixture.top());
    let skipped = format!("no user namespaces, so {limit} cannot be set");
    wrap_command(wrapper, command, &skipped).map(Process::start)
}

#[tokio::test]
async fn a_root_without_enough_watches_is_polled() {
    let fixture = Fixture::new("repeat 9 skill r/s{}");
    let Some(serving) = serve_with_limit("max_inotify_watches", 5, &fixture) else {
        return;
    };
    let daemon = serving.connect().await;
    let roots = vec![selected("r", fixture.path("r"))];
    let mut replica = Replica::synced(&daemon, watch_request(roots)).await;
    let root = &replica.roots["r"];
    assert_eq!(
        (root.state(), root.watch_mode()),
        (RootState::Ready, WatchMode::Polling)
    );
    assert!(
        root.watch_message.contains("max_user_watches"),
        "{}",
        root.watch_message
    );
    assert_eq!(watch_status(&daemon).await.polling_roots, 1);
    for n in [0, 8] {
        fixture.write(&format!("r/s{n}/SKILL.md"), skill_text("s", "Polled."));
        replica
            .wait_while(|replica| {
                replica.skills[&format!("skill://r/s{n}")].description != "Polled."
            })
            .await;
    }
    replica.catch_up(&daemon).await;
    serving.stop().await;
}

#[tokio::test]
async fn a_root_whose_watches_run_out_later_is_polled() {
    let fixture = Fixture::new("skill r/a");
    let Some(serving) = serve_with_limit("max_inotify_watches", 24, &fixture) else {
        return;
    };
    let daemon = serving.connect().await;
    let roots = vec![selected("r", fixture.path("r"))];
    let mut replica = Replica::synced(&daemon, watch_request(roots)).await;
    assert_eq!(replica.roots["r"].watch_mode(), WatchMode::Events);
    for n in 0..40 {
        fixture.write(&format!("r/b{n}/SKILL.md"), skill_text("b", "One of many."));
    }
    replica
        .wait_while(|replica| replica.roots["r"].watch_mode() == WatchMode::Events)
        .await;
    for n in 0..40 {
        fixture.write(&format!("r/b{n}/SKILL.md"), skill_text("b", "Polled."));
    }
    replica
        .wait_while(|replica| {
            replica
                .skills
                .values()
                .filter(|s| s.description == "Polled.")
                .count()
                < 40
        })
        .await;
    // Once the new directories are removed, the root returns to events by itself.
    for n in 0..40 {
        fs::remove_dir_all(fixture.path(&format!("r/b{n}"))).expect("remove");
    }
    replica
        .wait_while(|replica| replica.roots["r"].watch_mode() == WatchMode::Polling)
        .await;
    // The poll that found the removal is no evidence of a missed event.
    assert_eq!(watch_status(&daemon).await.missed_changes, 0);
    fixture.write("r/a/SKILL.md", skill_text("a", "By events."));
    replica
        .wait_while(|replica| replica.skills["skill://r/a"].description != "By events.")
        .await;
    assert_eq!(watch_status(&daemon).await.missed_changes, 0);
    serving.stop().await;
}

#[tokio::test]
async fn files_with_other_names_count_as_watches() {
    const SKILLS: usize = 30;
    let fixture = Fixture::new(&format!("repeat {SKILLS} skill r/s{{}}\ndir out"));
    // Enough watches for the directories and half of the files.
    let Some(serving) = serve_with_limit("max_inotify_watches", 55, &fixture) else {
        return;
    };
    let daemon = serving.connect().await;
    let root = selected("r", fixture.path("r"));
    let mut replica = Replica::synced(&daemon, watch_request(vec![root.clone()])).await;
    assert_eq!(replica.roots["r"].watch_mode(), WatchMode::Events);
    for n in 0..SKILLS {
        let name = fixture.path(&format!("r/s{n:02}/SKILL.md"));
        fs::hard_link(name, fixture.path("out").join(n.to_string())).expect("another name");
    }
    let list = fresh_list(&daemon, &[root]).await;
    assert_eq!(list.roots[0].watch_mode(), WatchMode::Polling);
    assert!(list.roots[0].watch_message.contains("max_user_watches"));
    for n in 0..SKILLS {
        fixture.write(&format!("out/{n}"), skill_text("s", "Polled."));
    }
    replica
        .wait_while(|replica| {
            replica
                .skills
                .values()
                .any(|skill| skill.description != "Polled.")
        })
        .await;
    serving.stop().await;
}

#[tokio::test]
async fn without_an_instance_every_root_is_polled() {
    let fixture = Fixture::new("skill r/a");
    let Some(serving) = serve_with_limit("max_inotify_instances", 0, &fixture) else {
        return;
    };
    let daemon = serving.connect().await;
    let root = selected("r", fixture.path("r"));
    let mut replica = Replica::synced(&daemon, watch_request(vec![root.clone()])).await;
    assert_eq!(watch_status(&daemon).await.backend, "polling");
    assert_eq!(replica.roots["r"].watch_mode(), WatchMode::Polling);
    assert!(!replica.roots["r"].watch_message.is_empty());
    fixture.write("r/b/SKILL.md", skill_text("b", "Polled."));
    assert_eq!(replica.next_change().await.upserted, ["skill://r/b"]);
    fixture.write("r/b/SKILL.md", skill_text("b", "Searched for."));
    let list = fresh_list(&daemon, &[root]).await;
    assert_eq!(
        list.skills[1].description, "Searched for.",
        "a fresh list is up to date without events"
    );
    serving.stop().await;
}

#[tokio::test]
async fn an_overflow_of_the_event_queue_causes_a_scan() {
    let fixture = Fixture::new("skill r/a\nskill r/b");
    let (serving, daemon) = Process::allowing(fixture.top()).await;
    let root = selected("r", fixture.path("r"));
    let mut replica = Replica::synced(&daemon, watch_request(vec![root])).await;
    let before = watch_status(&daemon).await.overflows;
    serving.send_signal(Signal::STOP);
    let queued = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").expect("a limit");
    let queued: usize = queued.trim().parse().expect("a number");
    for n in 0..queued.max(20_000) {
        // Each write causes two or more events.
        fs::write(fixture.path("r/a").join(n.to_string()), "x").expect("write");
    }
    fixture.write("r/b/SKILL.md", skill_text("b", "After the flood."));
    fs::remove_file(fixture.path("r/a/SKILL.md")).expect("remove");
    serving.send_signal(Signal::CONT);
    replica
        .wait_while(|replica| replica.skills.contains_key("skill://r/a"))
        .await;
    replica.catch_up(&daemon).await;
    assert_eq!(
        replica.skills["skill://r/b"].description,
        "After the flood."
    );
    assert_eq!(watch_status(&daemon).await.overflows, before + 1);
    serving.stop().await;
}
