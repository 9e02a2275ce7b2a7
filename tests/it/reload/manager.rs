//! Reloads under a service manager: messages to it, and the end of a daemon that needs a new process.

use std::os::unix::net::UnixDatagram;

use rustix::process::Signal;

use super::Served;
use crate::fixture::Fixture;
use crate::harness::{HANG_TIMEOUT, in_time};

/// The next message of which a line begins so.
async fn told(socket: &UnixDatagram, about: &'static str) -> String {
    let socket = socket.try_clone().expect("a socket");
    let told = tokio::task::spawn_blocking(move || {
        let mut buffer = [0; 4_096];
        loop {
            let bytes = socket.recv(&mut buffer).unwrap_or_else(|e| panic!("{about}: {e}"));
            let text = String::from_utf8_lossy(&buffer[..bytes]);
            if text.lines().any(|line| line.starts_with(about)) {
                return text.into_owned();
            }
        }
    });
    told.await.expect("told")
}

/// A daemon of a manager, which listens on the socket. Its config file is `etc/caproot.yaml`.
async fn start(tree: &str, config: &str) -> (Served, UnixDatagram) {
    let fixture = Fixture::new(&format!("dir run\nmode 0700 run\n{tree}"));
    fixture.write("etc/caproot.yaml", super::listening(config));
    let socket = UnixDatagram::bind(fixture.path("run/notify")).expect("a socket");
    socket.set_read_timeout(Some(HANG_TIMEOUT)).expect("a time-out");
    let (file, notify) = (fixture.path("etc/caproot.yaml"), fixture.path("run/notify"));
    let served = Served::begin(fixture, |command| {
        command.arg("--config").arg(file).env("NOTIFY_SOCKET", notify)
    });
    (served.await, socket)
}

fn hangup(served: &Served, config: &str) {
    served.fixture.replace("etc/caproot.yaml", super::listening(config));
    served.signal(Signal::HUP);
}

#[tokio::test]
async fn it_hears_that_the_file_is_read_and_what_came_of_it() {
    let plain = "roots: [{id: r, path: r}]";
    let (served, socket) = start("skill etc/r/a\nskill etc/r/b", plain).await;
    let ready = told(&socket, "READY=1").await;
    assert!(ready.contains("2 skills") && !ready.contains("RELOADING"), "{ready}");
    for (more, says, says_not) in [
        ("disabled_skills: [{name: a}]", " 1 skills", "restart"),
        ("nonsense: 1", "the new config was rejected: ", "restart"),
        ("", " 2 skills", ";"),
    ] {
        hangup(&served, &format!("{plain}\n{more}"));
        let reloading = told(&socket, "RELOADING=1").await;
        let micros = reloading.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC="));
        assert!(micros.is_some_and(|micros| micros.parse::<u64>().is_ok()), "{reloading}");
        let ready = told(&socket, "READY=1").await;
        assert!(ready.contains(says) && !ready.contains(says_not), "{more}: {ready}");
        assert_eq!(ready.matches("STATUS=").count(), 1, "{ready}");
    }
    served.signal(Signal::TERM);
    told(&socket, "STOPPING=1").await;
    served.stop().await;
}

#[tokio::test]
async fn a_key_that_needs_a_new_process_ends_the_daemon_with_75() {
    let plain = "roots: [{id: r, path: r}]";
    let token = "file out/token\n| secret\nmode 0600 out/token";
    let sandboxed = format!("callers: [{{name: a, token_file: ../out/token}}]\n{plain}");
    for (config, keys) in [
        (format!("{plain}\nlog: {{format: json}}"), "log.format"),
        (format!("{plain}\nallow: [../out]"), "allow"),
        // The daemon cannot read the token; the process that checks the file can.
        (sandboxed, "callers[0].token_file"),
    ] {
        let (mut served, socket) = start(&format!("skill etc/r/a\n{token}"), plain).await;
        told(&socket, "READY=1").await;
        let is_walled =
            served.executor().await.sandbox.is_some_and(|sandbox| sandbox.readable_dirs > 0);
        if keys != "log.format" && !is_walled {
            println!("SKIPPED: this kernel has no Landlock to close a directory");
            return;
        }
        hangup(&served, &config);
        let line = served.says(&["restarting to apply"]).await;
        assert!(line.ends_with(&format!("restarting to apply: {keys}")), "{line}");
        told(&socket, "RELOADING=1").await;
        let ready = told(&socket, "READY=1").await;
        assert!(ready.contains(&format!("STATUS=restarting for {keys}")), "{ready}");
        told(&socket, "STOPPING=1").await;
        while in_time(served.log.recv()).await.is_some() {}
        assert_eq!(served.child.wait().expect("wait").code(), Some(75), "{keys}");
    }
}

#[tokio::test]
async fn a_file_that_a_new_process_would_refuse_ends_nothing() {
    let plain = "roots: [{id: r, path: r}]";
    let tree = "skill etc/r/a\nfile out/empty\n|\nmode 0600 out/empty\ndir open\nmode 0777 open";
    let (mut served, socket) = start(tree, plain).await;
    told(&socket, "READY=1").await;
    let of_token =
        |file| format!("callers: [{{name: a, token_file: {file}}}]\nlog: {{format: json}}");
    for (more, says) in [
        (of_token("../out/empty"), "callers[0].token_file"),
        (of_token("../out/missing"), "callers[0].token_file"),
        ("allow: [../out]\nnonsense: 1".to_owned(), "nonsense: unknown key"),
        ("allow: [../out]\ncallers: [{name: a, uids: [no-such-user]}]".to_owned(), "uids"),
        (
            "listen: ['tcp:127.0.0.1:0', 'unix:../open/c.sock']".to_owned(),
            "writable for every user",
        ),
        ("listen: ['tcp:127.0.0.1:0', 'unix:../none/c.sock']".to_owned(), "No such file"),
    ] {
        hangup(&served, &format!("{plain}\n{more}"));
        let line = served.says(&["new configuration rejected"]).await;
        assert!(line.contains(says), "{more}: {line}");
        let ready = told(&socket, "READY=1").await;
        assert!(ready.contains("the new config was rejected: "), "{more}: {ready}");
    }
    hangup(&served, plain);
    served.says(&[super::DONE]).await;
    served.stop().await;
}
