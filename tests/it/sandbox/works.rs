//! A daemon behind its walls does all that one without them does, as far as the walls allow; and says
//! so where they do not.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;

use caproot::proto::caproot::v1::{
    Diagnostic, DiagnosticCode, RootReason, RootState, RootStatus, SelectedCapabilityRoot,
    WatchMode,
};

use super::{client, ends_well, has_landlock, lying, serving};
use crate::binary::DaemonProcess;
use crate::fixture::Fixture;
use crate::harness::{Daemon, in_time, located, read_request, selected};
use crate::watch_harness::{fresh_list, retarget, skill_text, watch_request};
use crate::replica::Replica;

/// A daemon that must be restricted, with directories of a fixture; `None` where the kernel cannot.
async fn restricted(fixture: &Fixture, flags: &[(&str, &str)]) -> Option<(DaemonProcess, Daemon)> {
    if !has_landlock() {
        return None;
    }
    let flags = flags.iter().flat_map(|(flag, dir)| [PathBuf::from(flag), fixture.path(dir)]);
    let flags: Vec<_> = flags.chain(["--sandbox".into(), "required".into()]).collect();
    Some(serving(&flags.iter().map(|flag| flag.as_os_str()).collect::<Vec<_>>()).await)
}

fn published(id: &str) -> [SelectedCapabilityRoot; 1] {
    [located(id, &format!("published:{id}"))]
}

/// Goes on until what a client holds is so.
async fn until(replica: &mut Replica, is_so: impl Fn(&Replica) -> bool) {
    let changes = async {
        while !is_so(replica) {
            replica.next_change().await;
        }
    };
    in_time(changes).await;
}

/// The state of the only root.
fn state(replica: &Replica) -> RootState {
    replica.roots.values().next().map_or(RootState::Unspecified, RootStatus::state)
}

/// A skill's description; empty where it is not held.
fn says_of<'a>(replica: &'a Replica, package: &str) -> &'a str {
    replica.skills.get(package).map_or("", |skill| &skill.description)
}

fn is_ready(replica: &Replica) -> bool {
    state(replica) == RootState::Ready
}

fn is_gone(replica: &Replica) -> bool {
    state(replica) == RootState::Unavailable
}

#[tokio::test]
async fn lists_reads_and_follows_changes() {
    let fixture = Fixture::new("skill root/a\nfile root/a/x.md\n| text");
    let Some((serving, daemon)) = restricted(&fixture, &[("--root", "root")]).await else { return };
    let root = published("root");
    let mut replica = Replica::open(&daemon, watch_request(root.to_vec())).await;
    until(&mut replica, is_ready).await;
    let read = read_request(&root[0], "skill://root/a", "skill://root/a/x.md");
    assert_eq!(daemon.read_all(read).await.expect("the file"), b"text\n");
    fixture.replace("root/a/SKILL.md", skill_text("a", "Edited."));
    assert_eq!(replica.next_change().await.upserted, ["skill://root/a"]);
    assert_eq!(replica.skills["skill://root/a"].description, "Edited.");
    assert_eq!(replica.roots["root"].watch_mode(), WatchMode::Events);
    fixture.write("root/b/SKILL.md", skill_text("b", "New."));
    assert_eq!(fresh_list(&daemon, &root).await.skills.len(), 2);
    replica.catch_up(&daemon).await;
    ends_well(serving).await;
}

#[tokio::test]
async fn a_published_root_is_removed_and_made_anew() {
    let fixture = Fixture::new("skill root/a");
    let Some((serving, daemon)) = restricted(&fixture, &[("--root", "root")]).await else { return };
    let mut replica = Replica::open(&daemon, watch_request(published("root").to_vec())).await;
    until(&mut replica, is_ready).await;
    for says in ["Once.", "Twice."] {
        fs::remove_dir_all(fixture.path("root")).expect("remove");
        until(&mut replica, is_gone).await;
        fixture.write("root/a/SKILL.md", skill_text("a", says));
        until(&mut replica, |held| says_of(held, "skill://root/a") == says).await;
    }
    replica.catch_up(&daemon).await;
    ends_well(serving).await;
}

#[tokio::test]
async fn a_published_link_is_turned_to_another_release() {
    let fixture = Fixture::new("skill rel/1/a\nskill rel/2/b\ndir srv\nlink srv/r -> ../rel/1");
    let Some((serving, daemon)) = restricted(&fixture, &[("--root", "srv/r")]).await else {
        return;
    };
    let mut replica = Replica::open(&daemon, watch_request(published("r").to_vec())).await;
    until(&mut replica, is_ready).await;
    retarget(&fixture.path("srv/r"), "../rel/2");
    until(&mut replica, |held| held.skills.contains_key("skill://r/b")).await;
    // A directory takes the link's place.
    fs::remove_file(fixture.path("srv/r")).expect("remove");
    fixture.write("srv/r/c/SKILL.md", skill_text("c", "Here."));
    until(&mut replica, |held| held.skills.contains_key("skill://r/c")).await;
    replica.catch_up(&daemon).await;
    ends_well(serving).await;
}

#[tokio::test]
async fn roots_that_come_later() {
    let fixture = Fixture::new("dir top");
    let flags = [("--root", "top/one"), ("--root", "top/not/yet/two")];
    let Some((serving, daemon)) = restricted(&fixture, &flags).await else { return };
    for (id, dir) in [("one", "top/one"), ("two", "top/not/yet/two")] {
        let mut replica = Replica::open(&daemon, watch_request(published(id).to_vec())).await;
        until(&mut replica, is_gone).await;
        assert_eq!(replica.roots[id].reason(), RootReason::NotFound);
        fixture.write(&format!("{dir}/a/SKILL.md"), skill_text("a", "Here."));
        until(&mut replica, |held| !held.skills.is_empty()).await;
        replica.catch_up(&daemon).await;
    }
    ends_well(serving).await;
}

#[tokio::test]
async fn links_between_two_allowed_directories() {
    let fixture = Fixture::new("skill one/r/a\nlink one/r/l -> ../../two/b\nskill two/b");
    let flags = [("--allow", "one"), ("--allow", "two")];
    let Some((serving, daemon)) = restricted(&fixture, &flags).await else { return };
    let root = selected("r", fixture.path("one/r"));
    let list = daemon.list(std::slice::from_ref(&root)).await;
    let packages: Vec<_> = list.skills.iter().map(|s| &*s.package).collect();
    assert_eq!(packages, ["skill://r/a", "skill://r/l"]);
    let read = daemon.read(read_request(&root, "skill://r/l", "")).await.expect("the file");
    assert!(read.total_bytes > 0);
    // What a caller selects may come after the daemon.
    fixture.write("two/later/c/SKILL.md", skill_text("c", "Later."));
    let list = daemon.list(&[selected("later", fixture.path("two/later"))]).await;
    assert_eq!(list.skills.len(), 1);
    ends_well(serving).await;
}

#[tokio::test]
async fn an_allowed_directory_that_is_made_anew_stays_closed_until_a_restart() {
    let fixture = Fixture::new("skill allowed/r/a\ndir aside");
    let flags = [("--allow", "allowed")];
    let Some((serving, daemon)) = restricted(&fixture, &flags).await else { return };
    let root = [selected("r", fixture.path("allowed/r"))];
    let mut replica = Replica::open(&daemon, watch_request(root.to_vec())).await;
    until(&mut replica, is_ready).await;
    // Renamed away and back it is the one that it was.
    let away = fixture.path("aside/away");
    fs::rename(fixture.path("allowed"), &away).expect("away");
    until(&mut replica, is_gone).await;
    assert_eq!(replica.roots["r"].reason(), RootReason::NotFound);
    fs::rename(&away, fixture.path("allowed")).expect("back");
    until(&mut replica, is_ready).await;
    // Made anew it is another.
    fs::remove_dir_all(fixture.path("allowed")).expect("remove");
    fixture.write("allowed/r/a/SKILL.md", skill_text("a", "Anew."));
    until(&mut replica, |held| held.roots["r"].reason() == RootReason::PermissionDenied).await;
    assert!(replica.skills.is_empty());
    let message = &replica.roots["r"].message;
    assert!(message.contains("restart"), "{message}");
    assert_eq!(fresh_list(&daemon, &root).await.roots[0].reason(), RootReason::PermissionDenied);
    drop((replica, daemon));
    let log = ends_well(serving).await;
    let told = log.lines().filter(|line| line.contains("WARN") && line.contains("restart"));
    assert_eq!(told.count(), 1, "{log}");

    let Some((serving, daemon)) = restricted(&fixture, &flags).await else { return };
    assert_eq!(daemon.list(&root).await.skills.len(), 1);
    ends_well(serving).await;
}

#[tokio::test]
async fn a_link_into_a_directory_that_was_made_anew_cannot_be_read() {
    let fixture = Fixture::new("skill one/r/a\nlink one/r/l -> ../../two/b\nskill two/b");
    let flags = [("--allow", "one"), ("--allow", "two")];
    let Some((serving, daemon)) = restricted(&fixture, &flags).await else { return };
    let root = [selected("r", fixture.path("one/r"))];
    let mut replica = Replica::open(&daemon, watch_request(root.to_vec())).await;
    until(&mut replica, |held| held.skills.len() == 2).await;
    fs::remove_dir_all(fixture.path("two")).expect("remove");
    fixture.write("two/b/SKILL.md", skill_text("b", "Anew."));
    let of_link = |d: &&Diagnostic| d.resource.starts_with("skill://r/l");
    let unreadable = Some(DiagnosticCode::Unreadable);
    let is_unreadable = |held: &Replica| {
        held.diagnostics["r"].iter().find(of_link).map(Diagnostic::code) == unreadable
    };
    until(&mut replica, is_unreadable).await;
    assert!(replica.skills.keys().eq(["skill://r/a"]));
    ends_well(serving).await;
}

#[tokio::test]
async fn what_permissions_deny_is_not_blamed_on_the_walls() {
    let fixture = Fixture::new("skill allowed/r/a\nmode 0000 allowed/r");
    if rustix::process::geteuid().is_root() {
        return println!("SKIPPED: root may open every directory");
    }
    let flags = [("--allow", "allowed")];
    let Some((serving, daemon)) = restricted(&fixture, &flags).await else { return };
    let list = daemon.list(&[selected("r", fixture.path("allowed/r"))]).await;
    assert_eq!(list.roots[0].reason(), RootReason::PermissionDenied);
    assert!(!list.roots[0].message.contains("restart"), "{}", list.roots[0].message);
    ends_well(serving).await;
}

#[tokio::test]
async fn polls_where_there_are_no_events() {
    let fixture = Fixture::new("skill root/a");
    let Some(mut command) = lying("inotify_init1:error=EMFILE").filter(|_| has_landlock()) else {
        return;
    };
    command.args(["--sandbox", "required", "--root"]).arg(fixture.path("root"));
    let serving = DaemonProcess::spawn(&mut command);
    let daemon = client(&serving).await;
    let mut replica = Replica::open(&daemon, watch_request(published("root").to_vec())).await;
    until(&mut replica, is_ready).await;
    assert_eq!(replica.roots["root"].watch_mode(), WatchMode::Polling);
    fixture.write("root/a/SKILL.md", skill_text("a", "Edited."));
    until(&mut replica, |held| says_of(held, "skill://root/a") == "Edited.").await;
    fixture.write("root/a/SKILL.md", skill_text("a", "Again."));
    assert_eq!(fresh_list(&daemon, &published("root")).await.skills[0].description, "Again.");
    ends_well(serving).await;
}

#[tokio::test]
async fn its_socket_is_its_own_and_goes_with_it() {
    if !has_landlock() {
        return;
    }
    let fixture = Fixture::new("dir run\nmode 0700 run\nskill root/a");
    let (socket, root) = (fixture.path("run/c.sock"), fixture.path("root"));
    let listen = format!("unix:{}", socket.display());
    let flags = ["--listen", &listen, "--sandbox", "required", "--root"].map(OsStr::new);
    let flags = [&flags[..], &[root.as_os_str()]].concat();
    let serving = DaemonProcess::start(&flags);
    let second = [&[OsStr::new("serve")], &flags[..]].concat();
    let second = crate::commands::caproot(second).output().expect("the binary runs");
    assert_eq!(second.status.code(), Some(73), "taken");
    let list = crate::commands::caproot(["list", "--endpoint", &listen]).output();
    assert_eq!(list.expect("the binary runs").status.code(), Some(0));
    assert!(socket.exists());
    let log = ends_well(serving).await;
    assert!(!socket.exists() && !log.contains("WARN"), "{log}");
    let again = DaemonProcess::start(&flags);
    ends_well(again).await;
}
