//! A sandboxed daemon works like one without a sandbox, and reports the accesses that the sandbox
//! denies.

use std::fs;
use std::path::PathBuf;

use caproot_core::proto::caproot::v1::{
    Diagnostic, DiagnosticCode, RootReason, RootState, RootStatus, WatchMode,
};

use super::{caproot_with_fault, has_landlock};
use crate::harness::fixture::Fixture;
use crate::harness::process::{ConfiguredDaemon, Process, caproot, run_command, serve};
use crate::harness::replica::Replica;
use crate::harness::watch_harness::{fresh_list, retarget, skill_text, watch_request};
use crate::harness::{in_time, packages, published, read_request, selected};

/// Starts a daemon with a required sandbox, or returns `None` if the kernel has no Landlock.
async fn start_sandboxed(fixture: &Fixture, flags: &[(&str, &str)]) -> Option<ConfiguredDaemon> {
    if !has_landlock() {
        return None;
    }
    let flags = flags
        .iter()
        .flat_map(|(flag, dir)| [PathBuf::from(flag), fixture.path(dir)]);
    let command = serve(flags.chain(["--sandbox".into(), "required".into()]));
    Some(ConfiguredDaemon::start_command(command).await)
}

/// Reads changes until the replica meets a condition.
async fn read_until(replica: &mut Replica, condition: impl Fn(&Replica) -> bool) {
    in_time(replica.wait_while(|replica| !condition(replica))).await;
}

/// Returns the state of the only root.
fn root_state(replica: &Replica) -> RootState {
    replica
        .roots
        .values()
        .next()
        .map_or(RootState::Unspecified, RootStatus::state)
}

/// Returns the description of a skill, or an empty text if the replica does not have it.
fn description_of<'a>(replica: &'a Replica, package: &str) -> &'a str {
    replica
        .skills
        .get(package)
        .map_or("", |skill| &skill.description)
}

fn is_ready(replica: &Replica) -> bool {
    root_state(replica) == RootState::Ready
}

fn is_gone(replica: &Replica) -> bool {
    root_state(replica) == RootState::Unavailable
}

#[tokio::test]
async fn a_sandboxed_daemon_lists_reads_and_watches() {
    let fixture = Fixture::new("skill root/a\nfile root/a/x.md\n| text");
    let Some(daemon) = start_sandboxed(&fixture, &[("--root", "root")]).await else {
        return;
    };
    let root = [published("root")];
    let mut replica = Replica::open(&daemon, watch_request(root.to_vec())).await;
    read_until(&mut replica, is_ready).await;
    let read = read_request(&root[0], "skill://root/a", "skill://root/a/x.md");
    assert_eq!(daemon.read_all(read).await.expect("the file"), b"text\n");
    fixture.replace("root/a/SKILL.md", skill_text("a", "Edited."));
    assert_eq!(replica.next_change().await.upserted, ["skill://root/a"]);
    assert_eq!(replica.skills["skill://root/a"].description, "Edited.");
    assert_eq!(replica.roots["root"].watch_mode(), WatchMode::Events);
    fixture.write("root/b/SKILL.md", skill_text("b", "New."));
    assert_eq!(fresh_list(&daemon, &root).await.skills.len(), 2);
    replica.catch_up(&daemon).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_published_root_can_be_removed_and_recreated() {
    let fixture = Fixture::new("skill root/a");
    let Some(daemon) = start_sandboxed(&fixture, &[("--root", "root")]).await else {
        return;
    };
    let mut replica = Replica::open(&daemon, watch_request(vec![published("root")])).await;
    read_until(&mut replica, is_ready).await;
    for description in ["Once.", "Twice."] {
        fs::remove_dir_all(fixture.path("root")).expect("remove");
        read_until(&mut replica, is_gone).await;
        fixture.write("root/a/SKILL.md", skill_text("a", description));
        read_until(&mut replica, |held| {
            description_of(held, "skill://root/a") == description
        })
        .await;
    }
    replica.catch_up(&daemon).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_published_link_can_change_its_target() {
    let fixture = Fixture::new("skill rel/1/a\nskill rel/2/b\ndir srv\nlink srv/r -> ../rel/1");
    let Some(daemon) = start_sandboxed(&fixture, &[("--root", "srv/r")]).await else {
        return;
    };
    let mut replica = Replica::open(&daemon, watch_request(vec![published("r")])).await;
    read_until(&mut replica, is_ready).await;
    retarget(&fixture.path("srv/r"), "../rel/2");
    read_until(&mut replica, |held| held.skills.contains_key("skill://r/b")).await;
    // A directory replaces the link.
    fs::remove_file(fixture.path("srv/r")).expect("remove");
    fixture.write("srv/r/c/SKILL.md", skill_text("c", "Here."));
    read_until(&mut replica, |held| held.skills.contains_key("skill://r/c")).await;
    replica.catch_up(&daemon).await;
    daemon.stop().await;
}

#[tokio::test]
async fn published_roots_may_appear_after_the_start() {
    let fixture = Fixture::new("dir top");
    let flags = [("--root", "top/one"), ("--root", "top/not/yet/two")];
    let Some(daemon) = start_sandboxed(&fixture, &flags).await else {
        return;
    };
    for (id, dir) in [("one", "top/one"), ("two", "top/not/yet/two")] {
        let mut replica = Replica::open(&daemon, watch_request(vec![published(id)])).await;
        read_until(&mut replica, is_gone).await;
        assert_eq!(replica.roots[id].reason(), RootReason::NotFound);
        fixture.write(&format!("{dir}/a/SKILL.md"), skill_text("a", "Here."));
        read_until(&mut replica, |held| !held.skills.is_empty()).await;
        replica.catch_up(&daemon).await;
    }
    daemon.stop().await;
}

#[tokio::test]
async fn links_between_two_allowed_directories_are_followed() {
    let fixture = Fixture::new("skill one/r/a\nlink one/r/l -> ../../two/b\nskill two/b");
    let flags = [("--allow", "one"), ("--allow", "two")];
    let Some(daemon) = start_sandboxed(&fixture, &flags).await else {
        return;
    };
    let root = selected("r", fixture.path("one/r"));
    let list = daemon.list(std::slice::from_ref(&root)).await;
    assert_eq!(packages(&list), ["skill://r/a", "skill://r/l"]);
    let read = daemon
        .read(read_request(&root, "skill://r/l", ""))
        .await
        .expect("the file");
    assert!(read.total_bytes > 0);
    // The selected directory is created after the start of the daemon.
    fixture.write("two/later/c/SKILL.md", skill_text("c", "Later."));
    let list = daemon
        .list(&[selected("later", fixture.path("two/later"))])
        .await;
    assert_eq!(list.skills.len(), 1);
    daemon.stop().await;
}

#[tokio::test]
async fn a_recreated_allowed_directory_needs_a_restart() {
    let fixture = Fixture::new("skill allowed/r/a\ndir aside");
    let flags = [("--allow", "allowed")];
    let Some(daemon) = start_sandboxed(&fixture, &flags).await else {
        return;
    };
    let root = [selected("r", fixture.path("allowed/r"))];
    let mut replica = Replica::open(&daemon, watch_request(root.to_vec())).await;
    read_until(&mut replica, is_ready).await;
    // A directory that is renamed away and back is the same directory.
    let away = fixture.path("aside/away");
    fs::rename(fixture.path("allowed"), &away).expect("away");
    read_until(&mut replica, is_gone).await;
    assert_eq!(replica.roots["r"].reason(), RootReason::NotFound);
    fs::rename(&away, fixture.path("allowed")).expect("back");
    read_until(&mut replica, is_ready).await;
    // A new directory at the path is a different directory.
    fs::remove_dir_all(fixture.path("allowed")).expect("remove");
    fixture.write("allowed/r/a/SKILL.md", skill_text("a", "Anew."));
    read_until(&mut replica, |held| {
        held.roots["r"].reason() == RootReason::PermissionDenied
    })
    .await;
    assert!(replica.skills.is_empty());
    let message = &replica.roots["r"].message;
    assert!(message.contains("restart"), "{message}");
    assert_eq!(
        fresh_list(&daemon, &root).await.roots[0].reason(),
        RootReason::PermissionDenied
    );
    drop(replica);
    let log = daemon.stop().await;
    let warnings = log
        .lines()
        .filter(|line| line.contains("WARN") && line.contains("restart"));
    assert_eq!(warnings.count(), 1, "{log}");

    let Some(daemon) = start_sandboxed(&fixture, &flags).await else {
        return;
    };
    assert_eq!(daemon.list(&root).await.skills.len(), 1);
    daemon.stop().await;
}

#[tokio::test]
async fn a_link_into_a_recreated_directory_is_unreadable() {
    let fixture = Fixture::new("skill one/r/a\nlink one/r/l -> ../../two/b\nskill two/b");
    let flags = [("--allow", "one"), ("--allow", "two")];
    let Some(daemon) = start_sandboxed(&fixture, &flags).await else {
        return;
    };
    let root = [selected("r", fixture.path("one/r"))];
    let mut replica = Replica::open(&daemon, watch_request(root.to_vec())).await;
    read_until(&mut replica, |held| held.skills.len() == 2).await;
    fs::remove_dir_all(fixture.path("two")).expect("remove");
    fixture.write("two/b/SKILL.md", skill_text("b", "Anew."));
    let of_link = |d: &&Diagnostic| d.resource.starts_with("skill://r/l");
    let unreadable = Some(DiagnosticCode::Unreadable);
    let is_unreadable = |held: &Replica| {
        held.diagnostics["r"]
            .iter()
            .find(of_link)
            .map(Diagnostic::code)
            == unreadable
    };
    read_until(&mut replica, is_unreadable).await;
    assert!(replica.skills.keys().eq(["skill://r/a"]));
    daemon.stop().await;
}

#[tokio::test]
async fn denied_permissions_are_not_blamed_on_the_sandbox() {
    let fixture = Fixture::new("skill allowed/r/a\nmode 0000 allowed/r");
    if rustix::process::geteuid().is_root() {
        return println!("SKIPPED: root may open every directory");
    }
    let flags = [("--allow", "allowed")];
    let Some(daemon) = start_sandboxed(&fixture, &flags).await else {
        return;
    };
    let list = daemon
        .list(&[selected("r", fixture.path("allowed/r"))])
        .await;
    assert_eq!(list.roots[0].reason(), RootReason::PermissionDenied);
    assert!(
        !list.roots[0].message.contains("restart"),
        "{}",
        list.roots[0].message
    );
    daemon.stop().await;
}

#[tokio::test]
async fn a_sandboxed_daemon_polls_if_inotify_fails() {
    let fixture = Fixture::new("skill root/a");
    let Some(mut command) =
        caproot_with_fault("inotify_init1:error=EMFILE").filter(|_| has_landlock())
    else {
        return;
    };
    command
        .args(["--sandbox", "required", "--root"])
        .arg(fixture.path("root"));
    let serving = Process::start(&mut command);
    let daemon = serving.connect().await;
    let mut replica = Replica::open(&daemon, watch_request(vec![published("root")])).await;
    read_until(&mut replica, is_ready).await;
    assert_eq!(replica.roots["root"].watch_mode(), WatchMode::Polling);
    fixture.write("root/a/SKILL.md", skill_text("a", "Edited."));
    read_until(&mut replica, |held| {
        description_of(held, "skill://root/a") == "Edited."
    })
    .await;
    fixture.write("root/a/SKILL.md", skill_text("a", "Again."));
    assert_eq!(
        fresh_list(&daemon, &[published("root")]).await.skills[0].description,
        "Again."
    );
    serving.stop().await;
}

#[tokio::test]
async fn a_sandboxed_daemon_owns_its_socket_and_removes_it() {
    if !has_landlock() {
        return;
    }
    let fixture = Fixture::new("dir run\nmode 0700 run\nskill root/a");
    let socket = fixture.path("run/c.sock");
    let listen = format!("unix:{}", socket.display());
    let command = || {
        let mut command = caproot(["serve", "--listen", &listen, "--sandbox", "required"]);
        command.arg("--root").arg(fixture.path("root"));
        command
    };
    let serving = Process::start(command());
    assert_eq!(run_command(command()).await.code, Some(73), "taken");
    run_command(caproot(["list", "--endpoint", &listen]))
        .await
        .succeeded();
    assert!(socket.exists());
    let log = serving.stop().await;
    assert!(!socket.exists() && !log.contains("WARN"), "{log}");
    let again = Process::start(command());
    again.stop().await;
}
