//! The real binary if the system refuses threads: scans go on with fewer threads, or fail with a
//! message about threads and are tried again. A start without a thread ends with that message.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use caproot_core::proto::caproot::v1::{RootReason, RootState, SelectedCapabilityRoot};

use crate::harness::fixture::{Fixture, is_root};
use crate::harness::process::{Process, serve, wrap_command};
use crate::harness::replica::Replica;
use crate::harness::strace;
use crate::harness::watch_harness::{fresh_list, watch_request};
use crate::harness::{in_time, read_request, rpc_error, selected};

/// Number of roots, each with more directories than one thread of a scan lists alone.
const ROOTS: usize = 40;

/// Daemon whose threads the test limits while the daemon runs.
struct LimitedDaemon {
    serving: Process,
    user: [String; 3],
}

/// Arguments of setpriv(1) for the user of a daemon. No other process has this user, so that its
/// limit of threads counts the daemon only.
fn set_new_user() -> [String; 3] {
    static USERS: AtomicU32 = AtomicU32::new(0);
    let number = USERS.fetch_add(1, Ordering::Relaxed);
    let uid = 1_000_000 + 10 * std::process::id() + number;
    let [uid, gid] = ["reuid", "regid"].map(|flag| format!("--{flag}={uid}"));
    [uid, gid, "--clear-groups".to_owned()]
}

impl LimitedDaemon {
    /// Starts the daemon as an ordinary user, because the kernel limits no thread of root.
    fn start(fixture: &Fixture) -> Option<Self> {
        if !is_root() {
            println!("SKIPPED: only root can run the daemon as a user without other threads");
            return None;
        }
        // The build directory may be inaccessible to that user.
        let binary = fixture.path("caproot");
        fs::copy(env!("CARGO_BIN_EXE_caproot"), &binary).expect("a copy of the binary");
        fs::set_permissions(fixture.top(), fs::Permissions::from_mode(0o755)).expect("chmod");
        let mut command = Command::new(binary);
        command.args(serve(["--allow"]).get_args());
        command.arg(fixture.top()).env("HOME", "/nonexistent");
        let user = set_new_user();
        let wrapper = ["setpriv"]
            .into_iter()
            .chain(user.iter().map(String::as_str));
        let skipped = "setpriv(1) cannot run a program in the temporary directory as another user";
        let serving = Process::start(wrap_command(wrapper, command, skipped)?);
        Some(Self { serving, user })
    }

    /// Permits this many threads in addition to the threads of now.
    fn permit_threads(&self, more: usize) {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.serving.pid()));
        let threads = tasks.expect("/proc").count() + more;
        self.set_limit(&threads.to_string());
    }

    /// Changes the soft limit, as the user of the daemon: another user needs `CAP_SYS_RESOURCE`.
    fn set_limit(&self, threads: &str) {
        let mut command = Command::new("setpriv");
        command.args(&self.user).arg("prlimit");
        command.arg(format!("--pid={}", self.serving.pid()));
        command.arg(format!("--nproc={threads}:"));
        assert!(command.status().expect("prlimit").success());
    }
}

fn many_roots(fixture: &Fixture) -> Vec<SelectedCapabilityRoot> {
    let root = |n| selected(&format!("r{n:02}"), fixture.path(&format!("r{n:02}")));
    (0..ROOTS).map(root).collect()
}

fn many_skills() -> String {
    let lines: Vec<_> = (0..ROOTS)
        .map(|n| format!("repeat 12 skill r{n:02}/s{{}}\n"))
        .collect();
    lines.concat()
}

fn lines_about_threads(log: &str) -> usize {
    log.lines()
        .filter(|line| line.contains("refuses a thread"))
        .count()
}

#[tokio::test]
async fn all_roots_are_scanned_with_the_threads_that_the_system_permits() {
    let fixture = Fixture::new(&many_skills());
    let Some(limited) = LimitedDaemon::start(&fixture) else {
        return;
    };
    let daemon = limited.serving.connect().await;
    limited.permit_threads(2);
    let list = fresh_list(&daemon, &many_roots(&fixture)).await;
    for root in &list.roots {
        assert_eq!(root.state(), RootState::Ready, "{root:?}");
    }
    assert_eq!(list.skills.len(), 12 * ROOTS);
    let log = limited.serving.stop().await;
    assert_eq!(lines_about_threads(&log), 1, "{log}");
    assert!(!log.contains("internal error"), "{log}");
}

#[tokio::test]
async fn roots_without_a_thread_say_so_and_return_with_the_threads() {
    let fixture = Fixture::new(&many_skills());
    let Some(limited) = LimitedDaemon::start(&fixture) else {
        return;
    };
    let daemon = limited.serving.connect().await;
    let roots = many_roots(&fixture);
    limited.set_limit("1");
    let mut replica = Replica::open(&daemon, watch_request(roots.clone())).await;
    let is_refused = |replica: &Replica| {
        let failed = replica.roots.values().filter(|root| {
            root.reason() == RootReason::IoError && root.message.contains("a thread")
        });
        failed.count() == ROOTS
    };
    in_time(replica.wait_while(|replica| !is_refused(replica))).await;
    let read = daemon.read(read_request(
        &roots[0],
        "skill://r00/s00",
        "skill://r00/s00/SKILL.md",
    ));
    let refused = rpc_error(&read.await.expect_err("no thread"));
    assert_eq!(refused.reason, "ROOT_UNAVAILABLE");

    // No call asks for the roots now: the daemon tries again by itself.
    limited.set_limit("10000");
    in_time(replica.wait_while(|replica| replica.skills.len() < 12 * ROOTS)).await;
    replica.catch_up(&daemon).await;
    drop((replica, daemon));
    let log = limited.serving.stop().await;
    assert_eq!(lines_about_threads(&log), 1, "{log}");
    assert!(!log.contains("internal error"), "{log}");
}

#[tokio::test]
async fn a_start_without_threads_ends_with_a_message() {
    let fixture = Fixture::new("skill r/a");
    let options = ["-e", "trace=clone3", "-e", "inject=clone3:error=EAGAIN"];
    let Some(command) = strace::trace_daemon(&fixture.path("strace"), &options) else {
        return;
    };
    let output = Process::start_failure(command).await;
    assert_eq!(output.code, Some(70), "{output:?}");
    assert!(
        output
            .stderr
            .contains("the system refuses a thread; raise the limit of threads"),
        "{output:?}"
    );
}
