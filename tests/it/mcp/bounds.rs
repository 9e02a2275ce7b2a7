//! Large files, and hosts that ask for more than they take.

use std::io::{BufRead as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::host::{Host, meta};
use crate::commands::client_command;
use crate::fixture::Fixture;
use crate::harness::{Daemon, HANG_TIMEOUT, Setup, in_time};

#[tokio::test]
async fn files() {
    let fixture = Fixture::new("skill r/a");
    fixture.write("r/a/largest", vec![b'x'; 512 << 10]);
    fixture.write("r/a/larger", vec![b'x'; (512 << 10) + 1]);
    fixture.write("r/a/escaped", vec![1; 400_000]);
    fixture.write("r/a/quotes", vec![b'"'; 512 << 10]);
    fixture.write("r/a/bytes", vec![0xff; 512 << 10]);
    fixture.write("r/a/empty", "");
    let daemon = Daemon::start(Setup::publishing("r", fixture.path("r"))).await;
    let mut host = Host::start(&daemon, "");
    for name in ["largest", "escaped", "quotes", "bytes", "empty"] {
        let uri = format!("skill://r/a/{name}");
        let read = host.ask("resources/read", json!({"uri": uri})).await.expect(name);
        assert!(read.to_string().len() < 1 << 20, "{name}: {}", read.to_string().len());
        let content = &read["contents"][0];
        let bytes = match (content["text"].as_str(), content["blob"].as_str()) {
            (Some(text), None) => text.as_bytes().to_vec(),
            (None, Some(blob)) => STANDARD.decode(blob).expect("base64"),
            _ => panic!("{name}: one of both"),
        };
        assert!(bytes == std::fs::read(fixture.path(&format!("r/a/{name}"))).expect("a file"));
        let is_text = content.get("text").is_some();
        assert_eq!(is_text, ["largest", "empty"].contains(&name), "{name}");
    }
    let uri = "skill://r/a/larger";
    let error = host.ask("resources/read", json!({"uri": uri})).await.expect_err("too large");
    assert_eq!(
        (&error["data"]["reason"], &error["data"]["uri"]),
        (&json!("TOO_LARGE"), &json!(uri))
    );
    assert!(error["message"].as_str().expect("text").contains("524289"), "{error}");
    assert_eq!(host.end().await.code, Some(0));
    daemon.stop().await;
}

/// A host that asks and does not read is read no further; when it reads, it has every answer.
#[tokio::test]
async fn a_host_that_does_not_read() {
    // Each request is over 1 KiB, so that a pipe holds few of them.
    const CALLS: usize = 500;
    let fixture = Fixture::new("skill r/a");
    fixture.write("r/a/x", vec![b'x'; 100 << 10]);
    let daemon = Daemon::start(Setup::publishing("r", fixture.path("r"))).await;
    let (mut host, stdout) = Host::deaf(client_command(&daemon, "mcp"));
    let mut stdin = host.stdin();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let padding = "x".repeat(1 << 10);
    let asking = thread::spawn(move || {
        for id in 0..CALLS {
            let call = json!({"jsonrpc": "2.0", "id": id, "method": "resources/read",
                "params": {"uri": "skill://r/a/x", "padding": padding, "_meta": meta()}});
            writeln!(stdin, "{call}").expect("it reads in the end");
            count.store(id + 1, Ordering::Relaxed);
        }
    });
    // It is at work once there is an answer.
    let first = tokio::task::spawn_blocking(move || {
        let (mut stdout, mut line) = (stdout, String::new());
        stdout.read_line(&mut line).expect("text");
        (stdout, line)
    });
    let (stdout, first) = in_time(first).await.expect("no panic");
    // Nothing says that it reads no further but that it goes on no more.
    let (mut last, mut still) = (0, 0);
    while still < 50 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let now = asked.load(Ordering::Relaxed);
        still = if now == last && now > 0 { still + 1 } else { 0 };
        last = now;
    }
    assert!(last < CALLS, "it read all, and holds every answer");

    let heard = tokio::task::spawn_blocking(move || {
        let mut answered = vec![false; CALLS];
        for line in std::iter::once(Ok(first)).chain(stdout.lines()) {
            let answer: Value = serde_json::from_str(&line.expect("text")).expect("JSON");
            let id = answer["id"].as_u64().and_then(|id| usize::try_from(id).ok()).expect("an id");
            assert!(answer.get("result").is_some() && !answered[id], "{id}: {}", answer["error"]);
            answered[id] = true;
        }
        answered.iter().all(|answered| *answered)
    });
    let heard = tokio::time::timeout(4 * HANG_TIMEOUT, heard).await.expect("no hang").expect("no panic");
    assert!(heard, "each call has its answer");
    asking.join().expect("all was asked");
    drop(host);
    daemon.stop().await;
}
