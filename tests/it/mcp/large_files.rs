//! Files of 16 MiB: read whole by hosts over stdio and HTTP, one at a time, in bounded memory. A host that does
//! not read its response delays only other large files.

use std::fs;
use std::io::{BufRead as _, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::{join_all, select_all};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::host::request_meta;
use super::http::{HttpServer, begin_session};
use crate::harness::fixture::Fixture;
use crate::harness::process::{Process, client_command};
use crate::harness::process_usage::most_anonymous;
use crate::harness::{Daemon, HANG_TIMEOUT, Setup, in_time};

const LARGE: usize = 16 << 20;
/// Memory of a server that has one large file at a time.
const MAX_PROCESS_KIB: u64 = 96 << 10;
const TEXT: &str = "text";
const FILES: [&str; 3] = [TEXT, "bytes", "quotes"];

/// Publishes a skill with large files: a text, bytes, and a text that grows in JSON.
async fn publish_large_files() -> (Fixture, Daemon) {
    let fixture = Fixture::new("skill r/a");
    let line = format!("{}\n", "x".repeat(63));
    fixture.write("r/a/text", line.repeat(LARGE / 64));
    fixture.write("r/a/bytes", vec![0xff; LARGE]);
    fixture.write("r/a/quotes", vec![b'"'; LARGE]);
    fixture.write("r/a/larger", vec![b'x'; LARGE + 1]);
    let daemon = Daemon::start(Setup::publishing("r", fixture.path("r"))).await;
    (fixture, daemon)
}

fn read_request(id: usize, file: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "resources/read",
        "params": {"uri": format!("skill://r/a/{file}"), "_meta": request_meta()}})
}

/// Checks a response against the file, which only a plain text may have as a text.
fn check_response(fixture: &Fixture, file: &str, response: &Value) {
    let content = &response["result"]["contents"][0];
    let bytes = match (content["text"].as_str(), content["blob"].as_str()) {
        (Some(text), None) if file == TEXT => text.as_bytes().to_vec(),
        (None, Some(blob)) if file != TEXT => STANDARD.decode(blob).expect("base64"),
        _ => panic!("{file}: {}", response["error"]),
    };
    let expected = fs::read(fixture.path(&format!("r/a/{file}"))).expect("a file");
    assert!(bytes == expected, "{file} differs");
}

#[tokio::test]
async fn large_files_are_read_over_stdio() {
    let (fixture, daemon) = publish_large_files().await;
    let (mut process, mut stdout) = Process::spawn_unread(client_command(&daemon, "mcp"));
    let mut stdin = process.take_stdin().expect("piped");
    let files: Vec<_> = FILES.into_iter().chain(["larger"]).chain(FILES).collect();
    for (id, file) in files.iter().enumerate() {
        writeln!(stdin, "{}", read_request(id, file)).expect("the server reads");
    }

    let count = files.len();
    let read = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        let lines = (0..count).map(|_| {
            line.clear();
            stdout.read_line(&mut line).expect("text");
            serde_json::from_str::<Value>(&line).expect("JSON")
        });
        lines.collect::<Vec<_>>()
    });
    let responses = tokio::time::timeout(4 * HANG_TIMEOUT, read).await;
    for response in responses.expect("no hang").expect("no panic") {
        let id = response["id"]
            .as_u64()
            .and_then(|id| files.get(usize::try_from(id).ok()?));
        match *id.expect("a known id") {
            "larger" => assert_eq!(
                response["error"]["data"]["reason"], "TOO_LARGE",
                "{response}"
            ),
            file => check_response(&fixture, file, &response),
        }
    }
    let peak = most_anonymous(process.pid());
    println!("six files of 16 MiB over stdio: {peak} KiB");
    assert!(peak <= MAX_PROCESS_KIB, "{peak} KiB");
    drop(stdin);
    daemon.stop().await;
}

/// Sends a request of the current protocol version, or of the older one in a session, whose header is given. A
/// connection of HTTP/1.0 has the body as it is, until its end.
async fn begin_read(server: &HttpServer, file: &str, session: Option<&str>) -> TcpStream {
    // The requests of a session have different ids.
    let id = FILES.iter().position(|known| *known == file);
    let mut request = read_request(id.map_or(2, |at| at + 3), file);
    let mut version = "MCP-Protocol-Version: 2026-07-28".to_owned();
    if let Some(session) = session {
        request["params"] = json!({"uri": request["params"]["uri"]});
        version = format!("MCP-Protocol-Version: 2025-11-25\r\n{session}");
    }
    let body = request.to_string();
    let length = body.len();
    let head = format!(
        "POST /mcp HTTP/1.0\r\nHost: localhost\r\n{version}\r\nContent-Type: application/json\r\n\
         Mcp-Method: resources/read\r\nMcp-Name: skill://r/a/{file}\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: {length}\r\n\r\n"
    );
    let mut stream = TcpStream::connect(&server.address)
        .await
        .expect("the server listens");
    stream
        .write_all((head + &body).as_bytes())
        .await
        .expect("a request");
    stream
}

/// Reads a response, which is JSON or an event.
async fn finish_read(mut stream: TcpStream) -> Value {
    let mut response = String::new();
    let read = tokio::time::timeout(4 * HANG_TIMEOUT, stream.read_to_string(&mut response)).await;
    read.expect("no hang").expect("a response");
    let mut lines = response
        .lines()
        .map(|line| line.strip_prefix("data: ").unwrap_or(line));
    let message = lines.find(|line| line.starts_with('{'));
    serde_json::from_str(message.unwrap_or_else(|| panic!("{response:.300}"))).expect("JSON")
}

#[tokio::test]
async fn a_large_file_waits_until_the_host_has_read_the_one_before() {
    let (fixture, daemon) = publish_large_files().await;
    let server = HttpServer::start(&daemon, "").await;
    let names: Vec<_> = FILES.into_iter().chain(FILES).collect();
    let mut waiting = join_all(names.iter().map(|file| begin_read(&server, file, None))).await;
    let mut names = names.clone();

    while !waiting.is_empty() {
        let ready = waiting.iter().map(|stream| Box::pin(stream.readable()));
        let (_, first, _) = tokio::time::timeout(4 * HANG_TIMEOUT, select_all(ready))
            .await
            .expect("a response begins");
        // A small file is not delayed, and after it the others still have no response.
        let small = in_time(finish_read(begin_read(&server, "SKILL.md", None).await)).await;
        assert!(
            small["result"]["contents"][0]["text"].is_string(),
            "{small}"
        );
        let (stream, file) = (waiting.swap_remove(first), names.swap_remove(first));
        for other in &waiting {
            let begun = other.try_read(&mut [0]).expect_err("no response yet");
            assert_eq!(begun.kind(), std::io::ErrorKind::WouldBlock);
        }

        // A host that leaves ends its turn, too.
        if waiting.len() % 2 == 0 {
            check_response(&fixture, file, &finish_read(stream).await);
        }
    }

    // A session of an older client has events.
    let session = begin_session(&server).await;
    let begun = FILES.map(|file| begin_read(&server, file, Some(&session)));
    let read = join_all(join_all(begun).await.into_iter().map(finish_read)).await;
    for (file, response) in FILES.into_iter().zip(&read) {
        check_response(&fixture, file, response);
    }

    let peak = most_anonymous(server.pid());
    println!("nine files of 16 MiB over HTTP: {peak} KiB");
    assert!(peak <= MAX_PROCESS_KIB, "{peak} KiB");
    server.stop().await;
    daemon.stop().await;
}
