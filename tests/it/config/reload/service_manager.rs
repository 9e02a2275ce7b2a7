//! Reloads under a service manager: `sd_notify` messages, and the exit of a daemon that needs a new
//! process.

use std::os::unix::net::UnixDatagram;

use rustix::process::Signal;

use super::ReloadingDaemon;
use crate::harness::HANG_TIMEOUT;
use crate::harness::fixture::Fixture;
use crate::harness::process::{caproot, with_listener};

/// Returns the next message with a line that starts with this text.
pub(super) async fn receive_message(socket: &UnixDatagram, prefix: &'static str) -> String {
    let socket = socket.try_clone().expect("a socket");
    let message = tokio::task::spawn_blocking(move || {
        let mut buffer = [0; 4_096];
        loop {
            let bytes = socket
                .recv(&mut buffer)
                .unwrap_or_else(|e| panic!("{prefix}: {e}"));
            let text = String::from_utf8_lossy(&buffer[..bytes]);
            if text.lines().any(|line| line.starts_with(prefix)) {
                return text.into_owned();
            }
        }
    });
    message.await.expect("a message")
}

/// Starts a daemon with a notify socket. Its config file is `etc/caproot.yaml`.
async fn start_notifying_daemon(tree: &str, config: &str) -> (ReloadingDaemon, UnixDatagram) {
    let fixture = Fixture::new(&format!("dir run\nmode 0700 run\n{tree}"));
    fixture.write("etc/caproot.yaml", with_listener(config));
    let socket = UnixDatagram::bind(fixture.path("run/notify")).expect("a socket");
    socket
        .set_read_timeout(Some(HANG_TIMEOUT))
        .expect("a time-out");
    let mut command = caproot(["serve", "--config"]);
    command.arg(fixture.path("etc/caproot.yaml"));
    command.env("NOTIFY_SOCKET", fixture.path("run/notify"));
    (
        ReloadingDaemon::start_command(fixture, command).await,
        socket,
    )
}

fn write_config_and_hang_up(process: &ReloadingDaemon, config: &str) {
    process
        .fixture
        .replace("etc/caproot.yaml", with_listener(config));
    process.process.send_signal(Signal::HUP);
}

#[tokio::test]
async fn the_service_manager_is_notified_of_reloads_and_their_outcome() {
    let plain = "roots: [{id: r, path: r}]";
    let (process, socket) = start_notifying_daemon("skill etc/r/a\nskill etc/r/b", plain).await;
    let ready = receive_message(&socket, "READY=1").await;
    assert!(
        ready.contains("2 skills") && !ready.contains("RELOADING"),
        "{ready}"
    );
    for (more, expected, unexpected) in [
        ("disabled_skills: [{name: a}]", " 1 skills", "restart"),
        ("nonsense: 1", "the new config was rejected: ", "restart"),
        ("", " 2 skills", ";"),
    ] {
        write_config_and_hang_up(&process, &format!("{plain}\n{more}"));
        let reloading = receive_message(&socket, "RELOADING=1").await;
        let micros = reloading
            .lines()
            .find_map(|line| line.strip_prefix("MONOTONIC_USEC="));
        assert!(
            micros.is_some_and(|micros| micros.parse::<u64>().is_ok()),
            "{reloading}"
        );
        let ready = receive_message(&socket, "READY=1").await;
        assert!(
            ready.contains(expected) && !ready.contains(unexpected),
            "{more}: {ready}"
        );
        assert_eq!(ready.matches("STATUS=").count(), 1, "{ready}");
    }
    process.process.send_signal(Signal::TERM);
    receive_message(&socket, "STOPPING=1").await;
    process.stop().await;
}

#[tokio::test]
async fn a_key_that_needs_a_restart_ends_the_daemon_with_exit_code_75() {
    let plain = "roots: [{id: r, path: r}]";
    let token = "file out/token\n| secret\nmode 0600 out/token";
    let sandboxed = format!("callers: [{{name: a, token_file: ../out/token}}]\n{plain}");
    for (config, keys) in [
        (format!("{plain}\nlog: {{format: json}}"), "log.format"),
        (format!("{plain}\nallow: [../out]"), "allow"),
        // The daemon cannot read the token, but the process that checks the file can.
        (sandboxed, "callers[0].token_file"),
    ] {
        let (mut process, socket) =
            start_notifying_daemon(&format!("skill etc/r/a\n{token}"), plain).await;
        receive_message(&socket, "READY=1").await;
        let is_sandboxed = process
            .daemon
            .executor()
            .await
            .sandbox
            .is_some_and(|sandbox| sandbox.readable_dirs > 0);
        if keys != "log.format" && !is_sandboxed {
            println!("SKIPPED: this kernel has no Landlock");
            return;
        }
        write_config_and_hang_up(&process, &config);
        let line = process.process.wait_for_log("restarting to apply").await;
        assert!(
            line.ends_with(&format!("restarting to apply: {keys}")),
            "{line}"
        );
        receive_message(&socket, "RELOADING=1").await;
        let ready = receive_message(&socket, "READY=1").await;
        assert!(
            ready.contains(&format!("STATUS=restarting for {keys}")),
            "{ready}"
        );
        receive_message(&socket, "STOPPING=1").await;
        assert_eq!(process.process.exit().await.code, Some(75), "{keys}");
    }
}

#[tokio::test]
async fn a_file_that_a_new_process_would_reject_does_not_end_the_daemon() {
    let plain = "roots: [{id: r, path: r}]";
    let tree = "skill etc/r/a\nfile out/empty\n|\nmode 0600 out/empty\ndir open\nmode 0777 open";
    let (mut process, socket) = start_notifying_daemon(tree, plain).await;
    receive_message(&socket, "READY=1").await;
    let of_token =
        |file| format!("callers: [{{name: a, token_file: {file}}}]\nlog: {{format: json}}");
    for (more, expected) in [
        (of_token("../out/empty"), "callers[0].token_file"),
        (of_token("../out/missing"), "callers[0].token_file"),
        (
            "allow: [../out]\nnonsense: 1".to_owned(),
            "nonsense: unknown key",
        ),
        (
            "allow: [../out]\ncallers: [{name: a, uids: [no-such-user]}]".to_owned(),
            "uids",
        ),
        (
            "listen: ['tcp:127.0.0.1:0', 'unix:../open/c.sock']".to_owned(),
            "writable for every user",
        ),
        (
            "listen: ['tcp:127.0.0.1:0', 'unix:../none/run/c.sock']".to_owned(),
            "No such file",
        ),
        // An address for documentation, RFC 5737, which no machine has.
        (
            "listen: ['tcp:127.0.0.1:0', 'tcp:192.0.2.1:7420']\ninsecure_tcp: true".to_owned(),
            "listen: cannot listen on tcp:192.0.2.1:7420: Cannot assign requested address",
        ),
    ] {
        write_config_and_hang_up(&process, &format!("{plain}\n{more}"));
        let line = process
            .process
            .wait_for_log("new configuration rejected")
            .await;
        assert!(line.contains(expected), "{more}: {line}");
        let ready = receive_message(&socket, "READY=1").await;
        assert!(
            ready.contains("the new config was rejected: "),
            "{more}: {ready}"
        );
    }
    write_config_and_hang_up(&process, plain);
    process.process.wait_for_log(super::APPLIED).await;
    process.stop().await;
}
