//! Landlock sandbox of the real binary: denied accesses, reported state, and kernels without
//! Landlock.

#[allow(dead_code, clippy::needless_pass_by_value)]
#[path = "../../../../examples/sandbox_probe.rs"]
mod sandbox_probe;
mod sandboxed_daemon;

use std::path::Path;
use std::process::Command;

use caproot_core::proto::caproot::v1::{LandlockState, SandboxStatus};
use landlock::{ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _};
use landlock::{Ruleset, RulesetAttr as _};
use serde_json::Value;

use crate::harness::fixture::Fixture;
use crate::harness::process::{
    ConfiguredDaemon, Output, Process, caproot, program, run_blocking, run_command, serve,
};
use crate::harness::strace;
use crate::harness::{Daemon, located};

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

/// Returns the daemon under `strace`, which makes a system call fail, or `None` if tracing is not
/// permitted.
fn caproot_with_fault(inject: &str) -> Option<Command> {
    let call = inject.split(':').next().expect("a system call");
    let options = [
        "-e",
        &format!("trace={call}"),
        "-e",
        &format!("inject={inject}"),
    ];
    strace::trace_daemon(Path::new("/dev/null"), &options)
}

async fn sandbox_status(daemon: &Daemon) -> SandboxStatus {
    daemon.executor().await.sandbox.expect("a status")
}

/// Environment variables of the process that probes the sandbox.
const PROBE_VARIABLES: [&str; 3] = ["PROBE_MODE", "PROBE_ROOT", "PROBE_OUTSIDE"];

/// Probes the sandbox and ends the process. The other tests start this test in a process of its own,
/// because no later test could run in the sandbox.
#[test]
#[ignore = "started by other tests in a process of its own"]
fn probe_and_exit() {
    let [mode, root, outside] =
        PROBE_VARIABLES.map(|name| std::env::var(name).expect("a variable of the probe"));
    let all_denied = sandbox_probe::probe_sandbox(&mode, Path::new(&root), Path::new(&outside));
    std::process::exit(i32::from(!all_denied.expect("attempts")));
}

/// Runs the probe in a sandbox. Returns the exit code, and whether each access was denied.
fn run_probe(root: &Path, outside: &Path, mode: &str) -> (Option<i32>, Vec<(String, bool)>) {
    let mut command = program(std::env::current_exe().expect("a path"));
    command
        .args([
            "daemon::sandbox::probe_and_exit",
            "--exact",
            "--ignored",
            "--nocapture",
        ])
        .args(["--test-threads", "1"])
        .env_clear()
        .env("HOME", "/nonexistent")
        .env(PROBE_VARIABLES[0], mode)
        .env(PROBE_VARIABLES[1], root)
        .env(PROBE_VARIABLES[2], outside);
    let output = run_blocking(&mut command);
    // The harness prints the name of the test in front of the first line.
    let lines = output
        .text()
        .lines()
        .filter_map(|line| line.find('{').map(|at| &line[at..]))
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let tried = lines.map(|line| {
        let what = line["attempt"].as_str().expect("a text").to_owned();
        assert_eq!(
            line["refused"] == true,
            line["errno"] == 13 || line["errno"] == 1,
            "{line}"
        );
        (what, line["refused"] == true)
    });
    let tried = tried.collect();
    println!("{}", output.stderr);
    (output.code, tried)
}

#[test]
fn the_sandbox_denies_accesses_outside() {
    if !has_landlock() {
        return;
    }
    let fixture = Fixture::new("skill in/root/a");
    let outside = Fixture::new("file f\n| for everybody\nmode 0644 f\nmode 0755 .");
    let (code, tried) = run_probe(&fixture.path("in/root"), &outside.path("f"), "required");
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
    let (code, tried) = run_probe(&fixture.path("in/root"), &outside.path("f"), "off");
    assert_eq!(code, Some(1), "{tried:?}");
    // This file is unreadable for ordinary users even without a sandbox.
    let tried = tried.iter().filter(|(what, _)| what != "read /etc/shadow");
    let denied: Vec<_> = tried.filter(|(_, denied)| *denied).collect();
    assert!(
        denied.is_empty(),
        "this kernel denies {denied:?} without a sandbox"
    );
    let left = std::fs::read_dir(fixture.path("in/root"))
        .expect("a directory")
        .count();
    assert_eq!(left, 1, "the written file is removed");
}

#[tokio::test]
async fn the_daemon_reports_its_sandbox() {
    if !has_landlock() {
        return;
    }
    let fixture = Fixture::new("skill in/root/a\ndir b\ndir c");
    let flags = [
        "--root",
        "in/root",
        "--allow",
        "b",
        "--allow",
        "c",
        "--allow",
        "in/root/a",
    ];
    let flags: Vec<_> = flags
        .chunks(2)
        .flat_map(|f| [f[0].into(), fixture.path(f[1])])
        .collect();
    let serving = Process::start(serve(flags));
    let daemon = serving.connect().await;
    let status = sandbox_status(&daemon).await;
    assert_eq!(
        (status.landlock(), status.no_new_privs),
        (LandlockState::Enforced, true)
    );
    assert!(status.landlock_abi >= 4, "{status:?}");
    assert_eq!(status.readable_dirs, 3, "one directory lies inside another");
    // Every thread inherits the restriction from the first thread.
    let tasks = format!("/proc/{}/task", serving.pid());
    for task in std::fs::read_dir(tasks).expect("a task directory") {
        let of_task = task.expect("a thread").path().join("status");
        let of_task = std::fs::read_to_string(of_task).expect("a status file");
        assert!(of_task.contains("\nNoNewPrivs:\t1\n"), "{of_task}");
    }
    let output = run_command(caproot(["status", "--endpoint", serving.endpoint()])).await;
    let row = output
        .text()
        .lines()
        .find(|line| line.starts_with("sandbox"))
        .expect("a row");
    let expected = format!(
        "landlock enforced, ABI {}, reads below 3 directories, no_new_privs",
        status.landlock_abi
    );
    assert!(row.ends_with(&expected), "{row}");
    let log = serving.stop().await;
    assert!(
        log.contains("landlock=\"enforced\"") && !log.contains("WARN"),
        "{log}"
    );
}

#[tokio::test]
async fn a_kernel_without_landlock_is_reported_or_fatal() {
    let fixture = Fixture::new("skill root/a");
    for (error, reason) in [
        ("ENOSYS", "this kernel has no Landlock"),
        // The usual answer of a seccomp filter.
        (
            "EPERM",
            "a filter of system calls (seccomp) denies Landlock",
        ),
    ] {
        let without = format!("landlock_create_ruleset:error={error}");
        missing_landlock_is_reported_or_fatal(&fixture, &without, reason).await;
    }
}

async fn missing_landlock_is_reported_or_fatal(fixture: &Fixture, without: &str, reason: &str) {
    let Some(mut command) = caproot_with_fault(without) else {
        return;
    };
    let daemon =
        ConfiguredDaemon::start_command(command.arg("--root").arg(fixture.path("root"))).await;
    let status = sandbox_status(&daemon).await;
    assert_eq!(
        (status.landlock(), status.no_new_privs),
        (LandlockState::Unavailable, true)
    );
    assert_eq!((status.landlock_abi, status.readable_dirs), (0, 0));
    assert_eq!(
        daemon
            .list(&[located("r", "published:root")])
            .await
            .skills
            .len(),
        1
    );
    let log = daemon.stop().await;
    assert!(log.contains("WARN") && log.contains(reason), "{log}");

    let Some(command) = caproot_with_fault(without) else {
        return;
    };
    assert_start_fails(command, fixture, reason);
}

#[tokio::test]
async fn an_old_landlock_version_is_reported_or_fatal() {
    if !has_landlock() {
        return;
    }
    let fixture = Fixture::new("skill root/a");
    // The first call asks for the version.
    let old = "landlock_create_ruleset:retval=3:when=1";
    let Some(mut command) = caproot_with_fault(old) else {
        return;
    };
    let daemon =
        ConfiguredDaemon::start_command(command.arg("--root").arg(fixture.path("root"))).await;
    let status = sandbox_status(&daemon).await;
    assert_eq!(
        (status.landlock(), status.landlock_abi),
        (LandlockState::Partial, 3)
    );
    assert_eq!(status.readable_dirs, 1);
    let log = daemon.stop().await;
    assert!(
        log.contains("WARN") && log.contains("Landlock ABI 3"),
        "{log}"
    );

    let Some(command) = caproot_with_fault(old) else {
        return;
    };
    assert_start_fails(command, &fixture, "Landlock ABI 3");
}

#[tokio::test]
async fn a_kernel_that_denies_landlock_is_reported_or_fatal() {
    let fixture = Fixture::new("skill root/a");
    // A system call filter that knows only some of the calls behaves like this.
    let refusing = "landlock_restrict_self:error=EPERM";
    let Some(mut command) = caproot_with_fault(refusing).filter(|_| has_landlock()) else {
        return;
    };
    let daemon =
        ConfiguredDaemon::start_command(command.arg("--root").arg(fixture.path("root"))).await;
    assert_eq!(
        sandbox_status(&daemon).await.landlock(),
        LandlockState::Unavailable
    );
    let log = daemon.stop().await;
    assert!(
        log.contains("WARN") && log.contains("this kernel rejects Landlock"),
        "{log}"
    );

    let Some(command) = caproot_with_fault(refusing) else {
        return;
    };
    assert_start_fails(command, &fixture, "this kernel rejects Landlock");
}

/// Asserts that a daemon with a required sandbox exits with one sentence that contains `why`.
fn assert_start_fails(mut command: Command, fixture: &Fixture, why: &str) {
    command
        .args(["--sandbox", "required", "--root"])
        .arg(fixture.path("root"));
    let Output {
        code,
        stdout,
        stderr: text,
    } = run_blocking(command);
    assert_eq!((code, stdout.len()), (Some(78), 0), "{text}");
    assert!(
        text.contains("the sandbox is required") && text.contains(why),
        "{text}"
    );
    assert_eq!(text.trim_end().lines().count(), 1, "{text}");
}
