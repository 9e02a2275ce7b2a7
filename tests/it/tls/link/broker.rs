//! A NATS server as a process.

use std::path::{Path, PathBuf};

use rustix::process::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::nats_cluster::find_nats_server;
use crate::harness::in_time;
use crate::harness::process::{Process, program};
use crate::harness::test_servers::free_port;

/// `nats-server` at an address of its own.
pub(super) struct NatsServer {
    pub(super) process: Process,
    /// Address with its port.
    address: String,
    /// Port for `wss://`, if the server has one.
    websocket_port: Option<String>,
    program: PathBuf,
    flags: String,
}

impl NatsServer {
    /// Starts a server with flags, which are split at spaces. Returns `None` if the program is not
    /// installed.
    pub(super) async fn start(flags: &str) -> Option<Self> {
        let Some(program) = find_nats_server() else {
            println!("SKIPPED: nats-server is not installed");
            return None;
        };
        let host = free_port();
        let host = host.strip_suffix(":0").expect("port 0");
        let started = start_process(&program, &format!("-a {host} -p -1 {flags}")).await;
        let (process, address, websocket_port) = started;
        Some(Self {
            process,
            address,
            websocket_port,
            program,
            flags: flags.to_owned(),
        })
    }

    pub(super) fn kill(&self) {
        self.process.send_signal(Signal::KILL);
    }

    /// Starts a killed server at the same address.
    pub(super) async fn restart(&mut self) {
        let (host, port) = self.address.split_once(':').expect("a port");
        let flags = format!("-a {host} -p {port} {}", self.flags);
        (self.process, self.address, _) = start_process(&self.program, &flags).await;
    }

    pub(super) fn url(&self) -> String {
        format!("nats://{}", self.address)
    }

    /// Address as `HOST:PORT`.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) fn tls_url(&self) -> String {
        let (_, port) = self.address.split_once(':').expect("a port");
        format!("tls://127.0.0.1:{port}")
    }

    pub(super) fn websocket_url(&self) -> String {
        let port = self.websocket_port.as_deref().expect("a port");
        format!("wss://127.0.0.1:{port}")
    }

    /// Subscribes to all subjects. The messages of all later publishers are recorded.
    pub(super) async fn record_everything(&self) -> Recorder {
        let mut stream = TcpStream::connect(&self.address).await.expect("a server");
        let hello = b"CONNECT {\"verbose\":false}\r\nSUB > 1\r\nPING\r\n";
        stream.write_all(hello).await.expect("a server");
        let mut recorder = Recorder {
            stream,
            recorded: Vec::new(),
        };
        recorder.read_until(b"PONG\r\n").await;
        recorder
    }
}

/// Subscriber of all subjects. The broker queues the messages until the recorder reads them.
pub(super) struct Recorder {
    stream: TcpStream,
    recorded: Vec<u8>,
}

impl Recorder {
    /// Returns all messages that the broker took before this call.
    pub(super) async fn stop(mut self) -> Vec<u8> {
        let last = b"PUB last 8\r\nthe last\r\n";
        self.stream.write_all(last).await.expect("a server");
        self.read_until(b"the last\r\n").await;
        self.recorded
    }

    async fn read_until(&mut self, end: &[u8]) {
        let mut searched = 0;
        while !self.recorded[searched..]
            .windows(end.len())
            .any(|bytes| bytes == end)
        {
            searched = self.recorded.len().saturating_sub(end.len());
            let read = in_time(self.stream.read_buf(&mut self.recorded)).await;
            assert!(
                read.expect("a server") > 0,
                "the broker closed the connection"
            );
        }
    }
}

/// Starts a server, and waits until the server accepts connections. Returns its address, and its port for
/// `wss://`.
async fn start_process(path: &Path, flags: &str) -> (Process, String, Option<String>) {
    let mut command = program(path);
    command.args(flags.split_whitespace());
    let mut process = Process::spawn(command);
    let line = process.wait_for_log("Listening for").await;
    let (mut address, mut websocket_port) = (last_word(&line), None);
    if line.contains("websocket clients") {
        websocket_port = address.rsplit(':').next().map(str::to_owned);
        address = last_word(
            &process
                .wait_for_log("Listening for client connections on")
                .await,
        );
    }
    process.wait_for_log("Server is ready").await;
    (process, address, websocket_port)
}

fn last_word(line: &str) -> String {
    line.rsplit(' ').next().expect("an address").to_owned()
}
