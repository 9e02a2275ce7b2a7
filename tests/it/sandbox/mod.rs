//! Landlock sandbox of the real binary: denied accesses, reported state, and kernels without
//! Landlock.

mod sandboxed_daemon;

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use caproot::proto::caproot::v1::{GetExecutorRequest, LandlockState, SandboxStatus};
use landlock::{ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _};
use landlock::{Ruleset, RulesetAttr as _};
use serde_json::Value;

use crate::binary::DaemonProcess;
use crate::fixture::Fixture;
use crate::harness::{Daemon, in_time};

/// Whether this kernel has the required Landlock version, checked without the daemon.
fn has_landlock() -> bool {
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let ruleset = ruleset.handle_access(AccessFs::from_all(ABI::V4));
    let ruleset = ruleset.and_then(|r| r.handle_access(AccessNet::from_all(ABI::V4)));
    match ruleset.and_then(Ruleset::create) {
        Ok(_) => true,
        Err(error) => {
            println!("SKIPPED: this kernel does not have the required Landlock version: {error}");
            false
        }
    }
}

/// Returns the binary under `strace`, which makes a system call fail, or `None` if tracing is not
/// permitted.
fn caproot_with_fault(inject: &str) -> Option<Command> {
    let strace = || {
        let mut command = Command::new("strace");
        // With -D the daemon is a direct child of the test and receives its signals.
        command.args(["-D", "-f", "-qq", "-o", "/dev/null"]);
        command.stdin(Stdio::null());
        command
    };
    if !strace().arg("true").status().is_ok_and(|status| status.success()) {
        println!("SKIPPED: strace is missing or may not trace");
        return None;
    }
    let mut command = strace();
    let call = inject.split(':').next().expect("a system call");
    command.args(["-e", &format!("trace={call}"), "-e", &format!("inject={inject}")]);
    command.args([env!("CARGO_BIN_EXE_caproot"), "serve", "--listen", "tcp:127.0.0.1:0"]);
    Some(command)
}

/// Starts a daemon on a free port and connects a client.
async fn start_daemon(flags: &[&OsStr]) -> (DaemonProcess, Daemon) {
    let serving =
        DaemonProcess::start(&[&["--listen", "tcp:127.0.0.1:0"].map(OsStr::new), flags].concat());
    let daemon = connect_client(&serving).await;
    (serving, daemon)
}

async fn connect_client(serving: &DaemonProcess) -> Daemon {
    Daemon::connect_to(serving.endpoint().strip_prefix("tcp:").expect("TCP")).await
}

/// Stops the daemon and returns its log.
async fn stop_and_read_log(serving: DaemonProcess) -> String {
    let (code, log) = serving.terminate_async().await;
    assert_eq!(code, Some(0), "{log}");
    log
}

async fn sandbox_status(daemon: &Daemon) -> SandboxStatus {
    let executor = in_time(daemon.client.clone().get_executor(GetExecutorRequest {})).await;
    executor.expect("GetExecutor").into_inner().sandbox.expect("a status")
}

/// Runs the self-test in a sandbox. Returns the exit code, and whether each access was denied.
fn run_self_test(root: &Path, outside: &Path, mode: &str) -> (Option<i32>, Vec<(String, bool)>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_caproot"));
    command.args(["serve", "--listen", "tcp:127.0.0.1:0", "--sandbox", mode]);
    command.arg("--root").arg(root).arg("--self-test").arg(outside);
    let Output { status, stdout, stderr } = command.output().expect("the binary runs");
    let stdout = String::from_utf8(stdout).expect("text");
    let lines = stdout.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let tried = lines.map(|line| {
        let what = line["attempt"].as_str().expect("a text").to_owned();
        assert_eq!(line["refused"] == true, line["errno"] == 13 || line["errno"] == 1, "{line}");
        (what, line["refused"] == true)
    });
    let tried = tried.collect();
    println!("{}", String::from_utf8_lossy(&stderr));
    (status.code(), tried)
}

#[test]
fn the_sandbox_denies_accesses_outside() {
    if !has_landlock() {
        return;
    }
    let fixture = Fixture::new("skill in/root/a");
    let outside = Fixture::new("file f\n| for everybody\nmode 0644 f\nmode 0755 .");
    let (code, tried) = run_self_test(&fixture.path("in/root"), &outside.path("f"), "required");
    assert_eq!(code, Some(0), "{tried:?}");
    let what: Vec<_> = tried.iter().map(|(what, _)| what.as_str()).collect();
    let needed = [
        "read /etc/shadow",
        "read a file outside",
        "list a directory outside",
        "write below a root",
        "execute /bin/true",
        "connect by TCP",
        "bind a TCP port",
    ];
    assert!(what.starts_with(&needed), "{what:?}");
    assert!(tried.iter().all(|(_, denied)| *denied), "{tried:?}");
}

#[test]
fn without_a_sandbox_the_same_accesses_succeed() {
    let fixture = Fixture::new("skill in/root/a");
    let outside = Fixture::new("file f\n| for everybody\nmode 0644 f\nmode 0755 .");
    let (code, tried) = run_self_test(&fixture.path("in/root"), &outside.path("f"), "off");
    assert_eq!(code, Some(1), "{tried:?}");
    // This file is unreadable for ordinary users even without a sandbox.
    let tried = tried.iter().filter(|(what, _)| what != "read /etc/shadow");
    let denied: Vec<_> = tried.filter(|(_, denied)| *denied).collect();
    assert!(denied.is_empty(), "this kernel denies {denied:?} without a sandbox");
    let left = std::fs::read_dir(fixture.path("in/root")).expect("a directory").count();
    assert_eq!(left, 1, "the written file is removed");
}

#[tokio::test]
async fn the_daemon_reports_its_sandbox() {
    if !has_landlock() {
        return;
    }
    let fixture = Fixture::new("skill in/root/a\ndir b\ndir c");
    let flags = ["--root", "in/root", "--allow", "b", "--allow", "c", "--allow", "in/root/a"];
    let flags: Vec<_> = flags.chunks(2).flat_map(|f| [f[0].into(), fixture.path(f[1])]).collect();
    let flags: Vec<_> = flags.iter().map(|f| f.as_os_str()).collect();
    let (serving, daemon) = start_daemon(&flags).await;
    let status = sandbox_status(&daemon).await;
    assert_eq!((status.landlock(), status.no_new_privs), (LandlockState::Enforced, true));
    assert!(status.landlock_abi >= 4, "{status:?}");
    assert_eq!(status.readable_dirs, 3, "one directory lies inside another");
    // Every thread inherits the restriction from the first thread.
    let tasks = format!("/proc/{}/task", serving.pid());
    for task in std::fs::read_dir(tasks).expect("a task directory") {
        let of_task = task.expect("a thread").path().join("status");
        let of_task = std::fs::read_to_string(of_task).expect("a status file");
        assert!(of_task.contains("\nNoNewPrivs:\t1\n"), "{of_task}");
    }
    let mut command = crate::commands::caproot(["status", "--endpoint", serving.endpoint()]);
    let text = String::from_utf8(command.output().expect("the binary runs").stdout).expect("text");
    let row = text.lines().find(|line| line.starts_with("sandbox")).expect("a row");
    let expected = format!(
        "landlock enforced, ABI {}, reads below 3 directories, no_new_privs",
        status.landlock_abi
    );
    assert!(row.ends_with(&expected), "{row}");
    let log = stop_and_read_log(serving).await;
    assert!(log.contains("landlock=\"enforced\"") && !log.contains("WARN"), "{log}");
}

#[tokio::test]
async fn a_kernel_without_landlock_is_reported_or_fatal() {
    let fixture = Fixture::new("skill root/a");
    let without = "landlock_create_ruleset:error=ENOSYS";
    let Some(mut command) = caproot_with_fault(without) else { return };
    let serving = DaemonProcess::spawn(command.arg("--root").arg(fixture.path("root")));
    let daemon = connect_client(&serving).await;
    let status = sandbox_status(&daemon).await;
    assert_eq!((status.landlock(), status.no_new_privs), (LandlockState::Unavailable, true));
    assert_eq!((status.landlock_abi, status.readable_dirs), (0, 0));
    assert_eq!(
        daemon.list(&[crate::harness::located("r", "published:root")]).await.skills.len(),
        1
    );
    let log = stop_and_read_log(serving).await;
    assert!(log.contains("WARN") && log.contains("this kernel has no Landlock"), "{log}");

    let Some(command) = caproot_with_fault(without) else { return };
    assert_start_fails(command, &fixture, "this kernel has no Landlock");
}

#[tokio::test]
async fn an_old_landlock_version_is_reported_or_fatal() {
    if !has_landlock() {
        return;
    }
    let fixture = Fixture::new("skill root/a");
    // The first call asks for the version.
    let old = "landlock_create_ruleset:retval=3:when=1";
    let Some(mut command) = caproot_with_fault(old) else { return };
    let serving = DaemonProcess::spawn(command.arg("--root").arg(fixture.path("root")));
    let daemon = connect_client(&serving).await;
    let status = sandbox_status(&daemon).await;
    assert_eq!((status.landlock(), status.landlock_abi), (LandlockState::Partial, 3));
    assert_eq!(status.readable_dirs, 1);
    let log = stop_and_read_log(serving).await;
    assert!(log.contains("WARN") && log.contains("Landlock ABI 3"), "{log}");

    let Some(command) = caproot_with_fault(old) else { return };
    assert_start_fails(command, &fixture, "Landlock ABI 3");
}

#[tokio::test]
async fn a_kernel_that_denies_landlock_is_reported_or_fatal() {
    let fixture = Fixture::new("skill root/a");
    // A system call filter that knows only some of the calls behaves like this.
    let refusing = "landlock_restrict_self:error=EPERM";
    let Some(mut command) = caproot_with_fault(refusing).filter(|_| has_landlock()) else { return };
    let serving = DaemonProcess::spawn(command.arg("--root").arg(fixture.path("root")));
    let daemon = connect_client(&serving).await;
    assert_eq!(sandbox_status(&daemon).await.landlock(), LandlockState::Unavailable);
    let log = stop_and_read_log(serving).await;
    assert!(log.contains("WARN") && log.contains("this kernel rejects Landlock"), "{log}");

    let Some(command) = caproot_with_fault(refusing) else { return };
    assert_start_fails(command, &fixture, "this kernel rejects Landlock");
}

/// Asserts that a daemon with a required sandbox exits with one sentence that contains `why`.
fn assert_start_fails(mut command: Command, fixture: &Fixture, why: &str) {
    command.args(["--sandbox", "required", "--root"]).arg(fixture.path("root"));
    let Output { status, stdout, stderr } = command.output().expect("the binary runs");
    let text = String::from_utf8(stderr).expect("text");
    assert_eq!((status.code(), stdout.len()), (Some(78), 0), "{text}");
    assert!(text.contains("the sandbox is required") && text.contains(why), "{text}");
    assert_eq!(text.trim_end().lines().count(), 1, "{text}");
}
