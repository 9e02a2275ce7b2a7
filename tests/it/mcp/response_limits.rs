//! Size limits of responses, and hosts that do not read the responses.

use std::fs::File;
use std::io::{BufRead as _, Write as _};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use super::host::{Host, request_meta};
use crate::harness::fixture::Fixture;
use crate::harness::process::{Process, client_command};
use crate::harness::{Daemon, HANG_TIMEOUT, Setup, in_time};

#[tokio::test]
async fn files_of_512_kib_are_read_whole() {
    let fixture = Fixture::new("skill r/a");
    fixture.write("r/a/largest", vec![b'x'; 512 << 10]);
    fixture.write("r/a/larger", vec![b'x'; (512 << 10) + 1]);
    fixture.write("r/a/escaped", vec![1; 400_000]);
    fixture.write("r/a/quotes", vec![b'"'; 512 << 10]);
    fixture.write("r/a/bytes", vec![0xff; 512 << 10]);
    fixture.write("r/a/empty", "");
    let daemon = Daemon::start(Setup::publishing("r", fixture.path("r"))).await;
    let mut host = Host::start(&daemon, "");
    for name in ["largest", "larger", "escaped", "quotes", "bytes", "empty"] {
        let uri = format!("skill://r/a/{name}");
        let read = host
            .call("resources/read", json!({"uri": uri}))
            .await
            .expect(name);
        assert!(
            read.to_string().len() < 1 << 20,
            "{name}: {}",
            read.to_string().len()
        );
        let content = &read["contents"][0];
        let bytes = match (content["text"].as_str(), content["blob"].as_str()) {
            (Some(text), None) => text.as_bytes().to_vec(),
            (None, Some(blob)) => STANDARD.decode(blob).expect("base64"),
            _ => panic!("{name}: neither text nor blob, or both"),
        };
        assert!(bytes == std::fs::read(fixture.path(&format!("r/a/{name}"))).expect("a file"));
        let is_text = content.get("text").is_some();
        assert_eq!(
            is_text,
            ["largest", "larger", "empty"].contains(&name),
            "{name}"
        );
    }
    host.stop_with(daemon).await;
}

/// A host that closes its end, and a full disk behind stdout.
#[tokio::test]
async fn a_server_that_cannot_write_ends_with_a_message() {
    let (_fixture, daemon) = Daemon::publishing("r", "skill r/a").await;
    let (reader, closed) = std::io::pipe().expect("a pipe");
    drop(reader);
    let full = File::create("/dev/full").expect("the device");
    for (stdout, cause) in [
        (Stdio::from(closed), "Broken pipe"),
        (Stdio::from(full), "No space left on device"),
    ] {
        let mut command = client_command(&daemon, "mcp");
        let mut server = tokio::process::Command::from({
            command.stdin(Stdio::piped()).stdout(stdout);
            command
        });
        let mut server = server.kill_on_drop(true).spawn().expect("the command runs");
        let mut stdin = server.stdin.take().expect("piped");
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/list",
            "params": {"_meta": request_meta()}});
        stdin
            .write_all(format!("{call}\n").as_bytes())
            .await
            .expect("the server reads");
        // The host keeps stdin open.
        let output = in_time(server.wait_with_output()).await.expect("an end");
        drop(stdin);
        assert_eq!(output.status.code(), Some(74), "{output:?}");
        let message = String::from_utf8_lossy(&output.stderr);
        let expected = format!("caproot: cannot write to the MCP host: {cause}");
        assert!(message.starts_with(&expected), "{message}");
    }
    daemon.stop().await;
}

/// The server stops reading requests while the host does not read. Later the host gets every
/// response.
#[tokio::test]
async fn a_host_that_does_not_read_is_slowed_down() {
    // Each request is larger than 1 KiB, so a pipe holds few requests.
    const CALLS: usize = 500;
    let fixture = Fixture::new("skill r/a");
    fixture.write("r/a/x", vec![b'x'; 100 << 10]);
    let daemon = Daemon::start(Setup::publishing("r", fixture.path("r"))).await;
    let (mut process, stdout) = Process::spawn_unread(client_command(&daemon, "mcp"));
    let mut stdin = process.take_stdin().expect("piped");
    let sent = Arc::new(AtomicUsize::new(0));
    let count = sent.clone();
    let padding = "x".repeat(1 << 10);
    let sender = thread::spawn(move || {
        for id in 0..CALLS {
            let call = json!({"jsonrpc": "2.0", "id": id, "method": "resources/read",
                "params": {"uri": "skill://r/a/x", "padding": padding, "_meta": request_meta()}});
            writeln!(stdin, "{call}").expect("the server reads in the end");
            count.store(id + 1, Ordering::Relaxed);
        }
    });
    // The first response shows that the server is running.
    let first = tokio::task::spawn_blocking(move || {
        let (mut stdout, mut line) = (stdout, String::new());
        stdout.read_line(&mut line).expect("text");
        (stdout, line)
    });
    let (stdout, first) = in_time(first).await.expect("no panic");
    // No progress for half a second shows that the server has stopped reading.
    let (mut last, mut unchanged) = (0, 0);
    while unchanged < 50 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let now = sent.load(Ordering::Relaxed);
        unchanged = if now == last && now > 0 {
            unchanged + 1
        } else {
            0
        };
        last = now;
    }
    assert!(
        last < CALLS,
        "the server read every request, and buffers the responses"
    );

    let all_answered = tokio::task::spawn_blocking(move || {
        let mut answered = vec![false; CALLS];
        for line in std::iter::once(Ok(first)).chain(stdout.lines()) {
            let response: Value = serde_json::from_str(&line.expect("text")).expect("JSON");
            let id = response["id"]
                .as_u64()
                .and_then(|id| usize::try_from(id).ok())
                .expect("an id");
            assert!(
                response.get("result").is_some() && !answered[id],
                "{id}: {}",
                response["error"]
            );
            answered[id] = true;
        }
        answered.iter().all(|answered| *answered)
    });
    let all_answered = tokio::time::timeout(4 * HANG_TIMEOUT, all_answered)
        .await
        .expect("no hang")
        .expect("no panic");
    assert!(all_answered, "each call has its response");
    sender.join().expect("all requests were sent");
    drop(process);
    daemon.stop().await;
}
