//! The real binary without free file descriptors: the daemon reports the shortage, omits nothing
//! silently, keeps running, and recovers once descriptors are free again.

use std::collections::BTreeSet;
use std::fs;

use caproot_core::proto::caproot::v1::{DiagnosticCode, ListSkillsResponse, RootReason, RootState};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::harness::fixture::Fixture;
use crate::harness::process::{Process, serve, wrap_command};
use crate::harness::replica::Replica;
use crate::harness::watch_harness::{fresh_list, skill_text, watch_request};
use crate::harness::{in_time, read_request, rpc_error, selected};

/// Skills of the tree. All but the skill behind a link belong to a plugin.
const NAMES: [&str; 5] = ["e", "kit:a", "kit:b", "kit:c", "kit:d"];

/// Limit of open files that the test changes while the process runs.
struct OpenFileLimit {
    pid: Pid,
    before: Rlimit,
}

impl OpenFileLimit {
    fn new(serving: &Process) -> Self {
        let pid = i32::try_from(serving.pid())
            .ok()
            .and_then(Pid::from_raw)
            .expect("a pid");
        let before = rustix::process::getrlimit(Resource::Nofile);
        Self { pid, before }
    }

    /// Sets the limit to the open descriptors plus `spare` more.
    fn leave_spare(&self, spare: u64) {
        let open = fs::read_dir(format!("/proc/{}/fd", self.pid.as_raw_nonzero())).expect("/proc");
        let numbers = open.map(|entry| entry.expect("a descriptor").file_name());
        let numbers = numbers.map(|name| name.to_str().expect("a number").parse::<u64>());
        let open: BTreeSet<_> = numbers.map(|n| n.expect("a number")).collect();
        // The kernel assigns the lowest free number to a new descriptor.
        let limit = (0..)
            .filter(|n| !open.contains(n))
            .nth(usize::try_from(spare).expect("few"));
        self.set(limit);
    }

    fn restore(&self) {
        self.set(self.before.current);
    }

    fn set(&self, current: Option<u64>) {
        let limit = Rlimit {
            current,
            maximum: self.before.maximum,
        };
        prlimit(Some(self.pid), Resource::Nofile, limit).expect("a limit of our own child");
    }
}

/// Asserts that an incomplete list is reported as incomplete.
fn assert_omissions_are_reported(list: &ListSkillsResponse, spare: u64) {
    let root = &list.roots[0];
    if root.state() != RootState::Ready {
        assert_eq!(root.reason(), RootReason::IoError, "{spare} spare");
        assert!(
            root.message.contains("limit of open files"),
            "{}",
            root.message
        );
        return;
    }
    let unreadable = list
        .diagnostics
        .iter()
        .filter(|d| d.code() == DiagnosticCode::Unreadable);
    let unreadable: Vec<_> = unreadable.map(|d| d.message.as_str()).collect();
    assert!(
        unreadable
            .iter()
            .all(|text| text.contains("limit of open files")),
        "{unreadable:?}"
    );
    assert!(
        list.skills.len() == NAMES.len() || !unreadable.is_empty(),
        "{spare} spare: {list:?}"
    );
}

#[tokio::test]
async fn without_free_descriptors_the_daemon_reports_the_shortage_and_recovers() {
    let fixture = Fixture::new(
        "skill r/a\nskill r/b\nskill r/deep/er/c\nskill r/d\nskill far/e\nlink r/e -> ../far/e
         file r/.claude-plugin/plugin.json\n| {\"name\": \"kit\"}\nfile r/d/agents/openai.yaml
         file r/a/x.md\n| text",
    );
    let serving = Process::start(serve(["--allow"]).arg(fixture.top()));
    let limited = OpenFileLimit::new(&serving);
    let daemon = serving.connect().await;
    let root = [selected("r", fixture.path("r"))];
    let read = || read_request(&root[0], "skill://r/a", "skill://r/a/x.md");
    let whole = fresh_list(&daemon, &root).await;
    assert_eq!(whole.skills.len(), NAMES.len());
    let mut replica = Replica::synced(&daemon, watch_request(root.to_vec())).await;

    limited.leave_spare(0);
    let refused = rpc_error(&daemon.read(read()).await.expect_err("no free descriptor"));
    assert_eq!(refused.reason, "ROOT_UNAVAILABLE");
    let status = daemon.read(read()).await.expect_err("no free descriptor");
    assert!(
        status.message().contains("limit of open files"),
        "{status:?}"
    );
    let none = fresh_list(&daemon, &root).await;
    assert_eq!(none.roots[0].reason(), RootReason::IoError);
    assert_omissions_are_reported(&none, 0);
    daemon.executor().await;
    limited.restore();
    assert_eq!(fresh_list(&daemon, &root).await.skills, whole.skills);
    assert_eq!(daemon.read_all(read()).await.expect("as before"), b"text\n");

    let mut cut = 0;
    for spare in 1..12 {
        limited.leave_spare(spare);
        for (dir, name) in [("a", "a"), ("b", "b"), ("d", "d"), ("deep/er/c", "c")] {
            let says = format!("With {spare} to spare.");
            fixture.write(&format!("r/{dir}/SKILL.md"), skill_text(name, &says));
        }
        // The moved directory needs a new watch and a new listing.
        fs::rename(fixture.path("r/deep"), fixture.path("r/away")).expect("move");
        fs::rename(fixture.path("r/away"), fixture.path("r/deep")).expect("move back");
        let list = fresh_list(&daemon, &root).await;
        assert_omissions_are_reported(&list, spare);
        cut += usize::from(list.skills.len() < NAMES.len());
        // The daemon has handled the changes, and the stream has reached the same revision.
        replica.catch_up(&daemon).await;
        limited.restore();
        if spare % 2 == 0 {
            // A fresh list does not wait until the daemon tries again by itself.
            let healed = fresh_list(&daemon, &root).await;
            let names: BTreeSet<_> = healed.skills.iter().map(|s| s.name.as_str()).collect();
            assert_eq!(names, NAMES.into(), "{spare} spare: {healed:?}");
            assert!(healed.diagnostics.is_empty(), "{spare} spare: {healed:?}");
        }
        // Failed reads are repeated although nothing changes below the root.
        let is_complete = |replica: &Replica| {
            let names: BTreeSet<_> = replica.skills.values().map(|s| s.name.as_str()).collect();
            let unread = replica.diagnostics.get("r").into_iter().flatten();
            let unread = unread
                .filter(|d| d.code() == DiagnosticCode::Unreadable)
                .count();
            names == NAMES.into() && unread == 0
        };
        let healed = async {
            replica.wait_while(|replica| !is_complete(replica)).await;
        };
        in_time(healed).await;
    }
    assert!(cut > 0, "the limit never had an effect");
    replica.catch_up(&daemon).await;
    drop(daemon);
    serving.stop().await;
}

#[tokio::test]
async fn a_start_with_too_few_descriptors_says_how_many_are_needed() {
    let fixture = Fixture::new("skill r/a");
    let command = |files: u64| {
        let mut command = serve(["--allow"]);
        command.arg(fixture.path("r"));
        let limit = format!("--nofile={files}:{files}");
        let skipped = "prlimit(1) is missing, so open files cannot be limited";
        wrap_command(["prlimit", &limit], command, skipped)
    };
    let Some(refused) = command(40) else {
        return;
    };
    let output = Process::start_failure(refused).await;
    assert_eq!(output.code, Some(78), "{output:?}");
    let words = output.stderr.split(|c: char| !c.is_alphanumeric());
    let mut after_name = words.skip_while(|word| *word != "LimitNOFILE").skip(1);
    let needed = after_name.next().and_then(|word| word.parse().ok());
    let needed = needed.unwrap_or_else(|| panic!("the number: {output:?}"));

    let too_few = command(needed - 1).expect("prlimit");
    assert_eq!(Process::start_failure(too_few).await.code, Some(78));
    let serving = Process::start(command(needed).expect("prlimit"));
    let daemon = serving.connect().await;
    let list = fresh_list(&daemon, &[selected("r", fixture.path("r"))]).await;
    assert_eq!(
        (list.skills.len(), list.diagnostics.len()),
        (1, 0),
        "{list:?}"
    );
    drop(daemon);
    serving.stop().await;
}
