//! A reader of the log, or of stdout, that stops does not stop the daemon.

use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use caproot_core::proto::caproot::v1::GetExecutorRequest;
use rustix::process::Signal;
use tonic::Code;

use crate::callers::with_token;
use crate::config::metrics::scrape;
use crate::harness::fixture::Fixture;
use crate::harness::namespaces::{Mount, run_in_namespaces};
use crate::harness::process::{Process, caproot, run_command, serve, serve_config, wrap};
use crate::harness::{Client, Daemon, HANG_TIMEOUT, in_time, published, read_request};

const CALLS: usize = 2_000;
const DENIED: usize = 5;
const CONFIG: &str = "audit: true\nmetrics: {listen: 'unix:run/m.sock'}\n\
    roots: [{id: r, path: root}]\ncallers: [{name: me, token_file: token}]\n";

fn build_tree_with_token() -> Fixture {
    Fixture::new("dir run\nmode 0700 run\nskill root/a\nfile token\n| s3cret\nmode 0600 token")
}

/// Makes calls whose lines in the audit log are long, and then denied calls. All calls are answered.
async fn make_calls(client: &Client) {
    let long = format!("skill://r/{}", "a".repeat(1_500));
    let call = || {
        let mut client = client.clone();
        let read = read_request(&published("r"), &long, &format!("{long}/b"));
        async move {
            let answer = in_time(client.read_resource(with_token("s3cret", read))).await;
            let status = answer.expect_err("no such skill");
            assert_eq!(status.code(), Code::NotFound, "{status:?}");
        }
    };
    // Before its first accepted call, a connection may have few calls in flight.
    call().await;
    futures_util::future::join_all((1..CALLS).map(|_| call())).await;
    for _ in 0..DENIED {
        let request = with_token("wr0ng", GetExecutorRequest {});
        let answer = in_time(client.clone().get_executor(request)).await;
        assert_eq!(answer.expect_err("denied").code(), Code::Unauthenticated);
    }
}

/// Asserts that SIGTERM ends the daemon although its log is not read.
async fn assert_exits(process: Process, daemon: Daemon) {
    drop(daemon);
    let started = Instant::now();
    process.exit_on(Signal::TERM).await.succeeded();
    assert!(
        started.elapsed() < Duration::from_secs(8),
        "{:?}",
        started.elapsed()
    );
}

/// Numbers of entries in a log. The entry about dropped ones comes after the waiting ones, or after 10 s.
#[derive(Default)]
struct ReadEntries {
    calls: usize,
    denied: usize,
    dropped: usize,
}

impl ReadEntries {
    /// Whether each call is accounted for, and each denied call has an entry.
    fn are_complete(&self) -> bool {
        self.calls + self.dropped >= CALLS && self.denied >= DENIED
    }
}

/// Returns the number after a text in a line.
fn number_after(line: &str, text: &str) -> usize {
    let (_, rest) = line
        .split_once(text)
        .unwrap_or_else(|| panic!("{text}: {line}"));
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

#[tokio::test]
async fn a_reader_of_stderr_that_stops_loses_lines_and_is_told_how_many() {
    let fixture = build_tree_with_token();
    let (mut process, stderr) = Process::start_with_unread_log(serve_config(&fixture, CONFIG));
    let daemon = process.connect().await;
    make_calls(&daemon.client).await;
    let metric = "caproot_dropped_log_lines_total ";
    let scraped = number_after(&scrape(&fixture), metric);
    assert!((1..CALLS).contains(&scraped), "{scraped} lines dropped");

    process.read_log(stderr);
    let mut read = ReadEntries::default();
    while !read.are_complete() {
        let line = process.log_line().await;
        if line.contains("lines of the log were dropped") {
            read.dropped += number_after(&line, "dropped=");
        }
        read.calls += usize::from(line.contains("caproot::audit: call "));
        read.denied += usize::from(line.contains("caproot::audit: access denied "));
    }
    assert_eq!(read.dropped, scraped);
    assert_exits(process, daemon).await;
}

#[tokio::test]
async fn a_debug_log_that_is_not_read_stops_neither_calls_nor_the_shutdown() {
    let fixture = build_tree_with_token();
    let mut command = serve(["--log", "debug", "--root"]);
    command.arg(fixture.path("root"));
    let (process, stderr) = Process::start_with_unread_log(command);
    let daemon = process.connect().await;
    let calls = (0..CALLS).map(|_| daemon.executor());
    in_time(futures_util::future::join_all(calls)).await;
    assert_exits(process, daemon).await;
    drop(stderr);
}

#[tokio::test]
async fn a_journal_that_does_not_read_stops_neither_calls_nor_the_shutdown() {
    run_in_namespaces!("--mount");
    let _run = Mount::new("tmpfs", "/run".as_ref(), "").expect("a filesystem");
    std::fs::create_dir_all("/run/systemd/journal").expect("a directory");
    let journal = UnixDatagram::bind("/run/systemd/journal/socket").expect("a socket");
    journal
        .set_read_timeout(Some(HANG_TIMEOUT))
        .expect("a time-out");
    let fixture = build_tree_with_token();
    let config = format!("{CONFIG}log: {{format: journald}}\n");
    for reads_again in [true, false] {
        let process = Process::start(serve_config(&fixture, &config));
        let daemon = process.connect().await;
        make_calls(&daemon.client).await;
        if reads_again {
            let journal = journal.try_clone().expect("a socket");
            let read = tokio::task::spawn_blocking(move || read_all_entries(&journal));
            let read = read.await.expect("no panic");
            assert!(read.dropped > 0);
        }
        assert_exits(process, daemon).await;
    }
}

/// Reads the entries of a journal until all are complete.
fn read_all_entries(journal: &UnixDatagram) -> ReadEntries {
    let mut read = ReadEntries::default();
    let mut buffer = vec![0; 1 << 16];
    while !read.are_complete() {
        let bytes = journal.recv(&mut buffer).expect("an entry");
        let entry = String::from_utf8_lossy(&buffer[..bytes]);
        let has_line = |end: &str| entry.lines().any(|line| line.ends_with(end));
        if has_line("because its reader was too slow") {
            // The length of a field's value, eight bytes, comes before the value.
            let (_, dropped) = entry.split_once("CAPROOT_DROPPED\n").expect("a field");
            let digits: String = dropped.chars().filter(char::is_ascii_digit).collect();
            assert!(
                entry.contains("PRIORITY\n\u{1}\0\0\0\0\0\0\x004\n"),
                "{entry}"
            );
            read.dropped += digits.parse::<usize>().expect("a number");
        }
        read.calls += usize::from(entry.contains("MESSAGE\n\u{4}\0\0\0\0\0\0\0call\n"));
        read.denied += usize::from(has_line("access denied"));
    }
    read
}

#[tokio::test]
async fn a_stdout_that_is_not_read_does_not_stop_the_start() {
    let fixture = build_tree_with_token();
    let listen = format!("unix:{}", fixture.path("run/c.sock").display());
    let mut command = caproot(["serve", "--listen", &listen, "--root"]);
    command.arg(fixture.path("root"));
    // Fills the pipe first.
    let script = "head -c 65536 /dev/zero; exec \"$@\"";
    let (mut process, stdout) = Process::spawn_unread(wrap(&["sh", "-c", script, "sh"], &command));
    process.wait_for_log("stdout is not read").await;
    let status = caproot(["status", "--endpoint", &listen]);
    run_command(status).await.succeeded();
    process.exit_on(Signal::TERM).await.succeeded();
    drop(stdout);
}
