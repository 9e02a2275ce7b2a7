//! Runs the real binary as a process and checks its output, its exit code and its socket.

use std::borrow::BorrowMut;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;

use crate::harness::fixture::Fixture;
use crate::harness::process::{Output, Process, caproot, run_command};
use crate::harness::test_servers::silent_listener;

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/trees/demo");

/// Command of `caproot serve` that publishes the demo on these listeners.
fn serve_demo<const N: usize>(listeners: [&str; N]) -> Command {
    let mut command = caproot(["serve", "--root", DEMO]);
    command.args(listeners.iter().flat_map(|listener| ["--listen", listener]));
    command
}

/// Runs a command with an endpoint. Returns its output.
async fn run_client(endpoint: &str, args: &[&str]) -> Output {
    run_command(caproot(args).args(["--endpoint", endpoint])).await
}

/// Asserts that the daemon fails at startup with one sentence and this exit code.
async fn assert_startup_fails(command: impl BorrowMut<Command>, code: i32, says: &str) {
    let output = Process::start_failure(command).await.exited_with(code, "");
    assert_eq!(
        output.stderr.trim_end().lines().count(),
        1,
        "one sentence: {}",
        output.stderr
    );
    assert!(
        output.stderr.contains(says),
        "{says:?} in {}",
        output.stderr
    );
}

/// Directory that only this user can write, and the path of a socket in it.
fn private_socket_dir() -> (Fixture, PathBuf, String) {
    let fixture = Fixture::new("dir run\nmode 0700 run");
    let socket = fixture.path("run/c.sock");
    let listen = format!("unix:{}", socket.display());
    (fixture, socket, listen)
}

#[tokio::test]
async fn serves_the_demo_until_a_signal_stops_it() {
    for signal in [Signal::TERM, Signal::INT] {
        let (fixture, _, _) = private_socket_dir();
        let serving = Process::start(serve_demo([]).env("XDG_RUNTIME_DIR", fixture.path("run")));
        let socket = fixture.path("run/caproot.sock");
        assert_eq!(serving.endpoint(), format!("unix:{}", socket.display()));
        assert!(
            fs::metadata(&socket)
                .expect("the socket")
                .file_type()
                .is_socket()
        );
        let mode = fs::metadata(&socket)
            .expect("the socket")
            .permissions()
            .mode()
            & 0o777;
        assert_eq!(mode, 0o600, "only the owner may connect");
        serving.exit_on(signal).await.succeeded();
        assert!(!socket.exists(), "the daemon removes its socket");
    }
}

#[tokio::test]
async fn without_a_runtime_directory_the_daemon_creates_one() {
    let fixture = Fixture::new("dir tmp");
    let serving = Process::start(serve_demo([]).env("TMPDIR", fixture.path("tmp")));
    let uid = rustix::process::geteuid().as_raw();
    let dir = fixture.path("tmp").join(format!("caproot-{uid}"));
    assert_eq!(
        serving.endpoint(),
        format!("unix:{}/caproot.sock", dir.display())
    );
    let mode = fs::metadata(&dir)
        .expect("its directory")
        .permissions()
        .mode()
        & 0o777;
    assert_eq!(mode, 0o700);
    serving.stop().await;
}

#[tokio::test]
async fn each_listener_is_printed_on_its_own_line() {
    let (_fixture, _, listen) = private_socket_dir();
    let command = serve_demo([&listen, "tcp:127.0.0.1:0"]);
    let serving = Process::start_until(command, |endpoints| endpoints.len() == 2);
    assert_eq!(serving.endpoints()[0], listen);
    let port = serving.endpoints()[1]
        .strip_prefix("tcp:127.0.0.1:")
        .expect("the real port");
    assert_ne!(port.parse::<u16>().expect("a port"), 0);
    serving.stop().await;
}

#[tokio::test]
async fn a_socket_in_use_is_reported() {
    let (_fixture, socket, listen) = private_socket_dir();
    let serving = Process::start(serve_demo([&listen]));
    assert_startup_fails(serve_demo([&listen]), 73, "c.sock").await;
    assert!(socket.exists(), "the first daemon keeps its socket");
    assert_eq!(
        run_client(&listen, &["status"]).await.code,
        Some(0),
        "the first daemon still serves"
    );
    serving.stop().await;
}

#[tokio::test]
async fn a_port_in_use_is_reported() {
    let (_taken, address) = silent_listener();
    assert_startup_fails(serve_demo([&format!("tcp:{address}")]), 73, &address).await;
}

#[tokio::test]
async fn a_stale_socket_is_replaced() {
    let (_fixture, socket, listen) = private_socket_dir();
    drop(UnixListener::bind(&socket).expect("bind"));
    assert!(socket.exists(), "the file remains without a listener");
    let serving = Process::start(serve_demo([&listen]));
    assert_eq!(run_client(&listen, &["status"]).await.code, Some(0));
    serving.stop().await;
}

#[tokio::test]
async fn a_file_that_is_not_a_socket_is_not_replaced() {
    let (fixture, socket, listen) = private_socket_dir();
    fs::write(&socket, "precious").expect("write");
    assert_startup_fails(serve_demo([&listen]), 73, "c.sock").await;
    assert_eq!(fs::read(&socket).expect("read"), b"precious");
    fs::remove_file(&socket).expect("remove");
    symlink(fixture.path("run/target"), &socket).expect("link");
    assert_startup_fails(serve_demo([&listen]), 73, "c.sock").await;
    assert!(
        !fixture.path("run/target").exists(),
        "nothing was created through the link"
    );
}

#[tokio::test]
async fn a_socket_in_a_world_writable_directory_is_rejected() {
    let (fixture, _, listen) = private_socket_dir();
    fs::set_permissions(fixture.path("run"), fs::Permissions::from_mode(0o777)).expect("chmod");
    assert_startup_fails(serve_demo([&listen]), 73, "run").await;
}

#[tokio::test]
async fn a_missing_directory_of_a_socket_is_created_in_a_shared_directory() {
    let fixture = Fixture::new("dir volume\nmode 0777 volume");
    let socket = fixture.path("volume/run/c.sock");
    let listen = format!("unix:{}", socket.display());
    for _ in 0..2 {
        let serving = Process::start(serve_demo([&listen]));
        let dir = fs::metadata(fixture.path("volume/run")).expect("the directory");
        assert_eq!(dir.permissions().mode() & 0o777, 0o755);
        assert_eq!(run_client(&listen, &["status"]).await.code, Some(0));
        serving.stop().await;
        assert!(!socket.exists(), "the sandbox permits removing the socket");
    }
}

#[tokio::test]
async fn a_socket_without_the_parent_of_its_directory_is_rejected() {
    let (fixture, _, _) = private_socket_dir();
    let listen = format!("unix:{}", fixture.path("run/none/run/c.sock").display());
    assert_startup_fails(serve_demo([&listen]), 73, "none").await;
    assert!(!fixture.path("run/none").exists());
}

#[tokio::test]
async fn version_flags_print_version_and_build() {
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        run_command(caproot(["-V"])).await.text(),
        format!("caproot {version}\n")
    );
    let long = run_command(caproot(["--version"])).await.text().to_owned();
    let build = long
        .strip_prefix(&format!("caproot {version} ("))
        .and_then(|l| l.strip_suffix(")\n"));
    let build = build.unwrap_or_else(|| panic!("{long}"));
    assert_eq!(build, caproot::daemon::server::BUILD_INFO);
    let parts: Vec<_> = build.split(", ").collect();
    let [.., profile, target] = parts[..] else {
        panic!("{build}")
    };
    let expected = if cfg!(debug_assertions) {
        "debug"
    } else {
        "release"
    };
    assert_eq!(profile, expected);
    assert!(
        target.contains(std::env::consts::ARCH) && target.contains("linux"),
        "{target}"
    );
}

#[tokio::test]
async fn client_commands_work_against_the_demo() {
    let (_fixture, _, listen) = private_socket_dir();
    let serving = Process::start(serve_demo([&listen]));
    run_client(&listen, &["status"]).await.succeeded();

    let list = run_client(&listen, &["list", "--output", "json"])
        .await
        .succeeded()
        .json();
    let names: Vec<_> = list["skills"]
        .as_array()
        .expect("skills")
        .iter()
        .map(|s| s["name"].clone())
        .collect();
    assert_eq!(
        names,
        ["review-kit:review-diff", "triage-logs", "write-changelog"]
    );
    let severe: Vec<_> = list["diagnostics"]
        .as_array()
        .into_iter()
        .flatten()
        .collect();
    assert!(
        severe.iter().all(|d| d["severity"] == "SEVERITY_NOTE"),
        "the demo has no problems: {severe:?}"
    );

    let handle = "skill://demo/write-changelog";
    let read = run_client(&listen, &["read", handle]).await.succeeded();
    let on_disk = fs::read_to_string(format!("{DEMO}/write-changelog/SKILL.md")).expect("on disk");
    assert_eq!(read.text(), on_disk);

    let gone = run_client(&listen, &["read", "skill://demo/gone"]).await;
    assert_eq!(gone.code, Some(4), "{}", gone.stderr);
    assert_eq!(gone.text(), "", "stdout is for results");
    serving.stop().await;
    assert_eq!(
        run_client(&listen, &["status"]).await.code,
        Some(3),
        "no daemon answers"
    );
}
