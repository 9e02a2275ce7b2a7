//! Sockets that the real binary is handed over, as by systemd: served, left where they are, and held
//! to the rules of its own.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};

use crate::binary::{Serving, run};
use crate::fixture::Fixture;

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/trees/demo");
/// Above what a test has open, so that moving one onto another number closes none.
const FIRST: i32 = 500;

/// Whoever starts the daemon: it listens, and has a directory of its own.
struct Starter {
    fixture: Fixture,
    sockets: Vec<(OwnedFd, &'static str)>,
}

impl Starter {
    fn new() -> Self {
        Self { fixture: Fixture::new("dir run\nmode 0700 run"), sockets: Vec::new() }
    }

    fn hand(mut self, socket: impl Into<OwnedFd>, name: &'static str) -> Self {
        self.sockets.push((socket.into(), name));
        self
    }

    fn unix(self, name: &'static str) -> Self {
        let listener = UnixListener::bind(self.socket()).expect("a socket");
        fs::set_permissions(self.socket(), fs::Permissions::from_mode(0o660)).expect("chmod");
        self.hand(listener, name)
    }

    fn tcp(self, address: &str, name: &'static str) -> Self {
        self.hand(TcpListener::bind(address).expect("a port"), name)
    }

    fn socket(&self) -> PathBuf {
        self.fixture.path("run/lent.sock")
    }

    fn lent(&self) -> String {
        format!("unix:{}", self.socket().display())
    }

    /// Runs `caproot serve` with the sockets from descriptor 3 on. A shell moves them there, and then
    /// becomes the daemon, which keeps its process id.
    fn with<T>(&self, pid: &str, flags: &[&str], run: impl FnOnce(&mut Command) -> T) -> T {
        let passed: Vec<_> = self.sockets.iter().map(|(fd, _)| pass(fd)).collect();
        let moves = (3..).zip(&passed).map(|(to, fd)| {
            let from = fd.as_raw_fd();
            format!(" {to}<&{from} {from}<&-")
        });
        let script = format!("LISTEN_PID={pid} exec \"$@\"{}", moves.collect::<String>());
        let names: Vec<_> = self.sockets.iter().map(|(_, name)| *name).collect();
        let mut command = Command::new("bash");
        command.args(["-c", &script, "bash", env!("CARGO_BIN_EXE_caproot"), "serve"]).args(flags);
        command.env_clear().env("HOME", "/nonexistent").env("LISTEN_FDNAMES", names.join(":"));
        command.env("LISTEN_FDS", passed.len().to_string());
        command.env("XDG_RUNTIME_DIR", self.fixture.path("run"));
        run(&mut command)
    }

    fn serve(&self, listeners: usize, flags: &[&str]) -> Serving {
        self.with("$$", flags, |command| Serving::of_many(command, listeners))
    }

    /// A start that must fail: its exit code and what it says.
    fn refused(&self, flags: &[&str]) -> (Option<i32>, String) {
        self.with("$$", flags, |command| {
            let mut child = command
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("it runs");
            let mut line = String::new();
            let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
            stdout.read_line(&mut line).expect("text");
            if !line.is_empty() {
                child.kill().expect("kill");
            }
            let output = child.wait_with_output().expect("it ends");
            assert_eq!(line, "", "it starts");
            (output.status.code(), String::from_utf8(output.stderr).expect("text"))
        })
    }
}

/// A copy of a descriptor that a child inherits.
fn pass(fd: &OwnedFd) -> OwnedFd {
    let copy = fcntl_dupfd_cloexec(fd, FIRST).expect("a descriptor");
    fcntl_setfd(copy.as_fd(), FdFlags::empty()).expect("a flag");
    copy
}

fn lists(endpoint: &str) {
    let list = run(["list", "--endpoint", endpoint]);
    assert_eq!(list.code, Some(0), "{endpoint}: {}", list.stderr);
    assert!(list.stdout.contains("triage-logs"), "{}", list.stdout);
}

#[test]
fn served_in_place_of_the_default_socket_and_left_where_they_are() {
    let starter = Starter::new().unix("caproot").tcp("127.0.0.1:0", "caproot-tcp");
    let before = fs::metadata(starter.socket()).expect("the socket");
    let serving = starter.serve(2, &["--root", DEMO]);
    let [unix, tcp] = serving.endpoints() else { panic!("{:?}", serving.endpoints()) };
    assert_eq!(*unix, starter.lent());
    assert!(tcp.starts_with("tcp:127.0.0.1:"), "{tcp}");
    lists(unix);
    lists(tcp);
    assert!(!starter.fixture.path("run/caproot.sock").exists(), "no default one beside them");
    let (code, log) = serving.terminate();
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains("WARN"), "{log}");
    let after = fs::metadata(starter.socket()).expect("the socket stays");
    let of = |meta: &fs::Metadata| (meta.ino(), meta.mode(), meta.uid(), meta.gid());
    assert_eq!(of(&after), of(&before), "as whoever made it made it");

    // The next daemon is handed the same: nobody who connects meanwhile is refused.
    let early = UnixStream::connect(starter.socket()).expect("in the backlog");
    let serving = starter.serve(2, &["--root", DEMO]);
    lists(&serving.endpoints()[0]);
    drop(early);
    assert_eq!(serving.terminate().0, Some(0));
}

#[test]
fn the_kernel_still_says_who_calls() {
    let uid = rustix::process::geteuid().as_raw();
    for (uid, code) in [(uid, 0), (uid + 1, 5)] {
        let starter = Starter::new().unix("caproot");
        let text =
            format!("callers: [{{name: a, uids: [{uid}]}}]\nroots: [{{id: d, path: {DEMO}}}]");
        starter.fixture.write("config.yaml", text);
        let config = starter.fixture.path("config.yaml");
        let serving = starter.serve(1, &["--config", config.to_str().expect("UTF-8")]);
        let list = run(["list", "--endpoint", &starter.lent()]);
        assert_eq!(list.code, Some(code), "{}", list.stderr);
        assert_eq!(serving.terminate().0, Some(0));
    }
}

#[test]
fn what_is_asked_for_is_served_beside_them() {
    let starter = Starter::new().unix("caproot");
    let own = format!("unix:{}", starter.fixture.path("run/own.sock").display());
    let serving = starter.serve(2, &["--root", DEMO, "--listen", &own]);
    assert_eq!(serving.endpoints(), [starter.lent(), own.clone()]);
    lists(&starter.lent());
    lists(&own);
    assert_eq!(serving.terminate().0, Some(0));
    assert!(starter.socket().exists() && !starter.fixture.path("run/own.sock").exists());
}

#[test]
fn one_is_for_metrics() {
    let starter = Starter::new().tcp("127.0.0.1:0", "metrics");
    // The default socket is still needed, and what is printed behind it is where to scrape.
    let serving = starter.serve(2, &["--root", DEMO]);
    let [socket, metrics] = serving.endpoints() else { panic!("{:?}", serving.endpoints()) };
    assert!(socket.ends_with("run/caproot.sock"), "{socket}");
    let address = metrics.strip_prefix("tcp:").expect("a port");
    let mut stream = TcpStream::connect(address).expect("a connection");
    std::io::Write::write_all(
        &mut stream,
        b"GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
    )
    .expect("a request");
    let answer = std::io::read_to_string(stream).expect("an answer");
    assert!(answer.contains("caproot_build_info"), "{answer}");
    assert_eq!(serving.terminate().0, Some(0));

    starter.fixture.write("config.yaml", "metrics: {listen: 'tcp:127.0.0.1:0'}");
    let config = starter.fixture.path("config.yaml");
    let (code, said) = starter.refused(&["--config", config.to_str().expect("UTF-8")]);
    assert_eq!(code, Some(78), "{said}");
    assert!(said.contains("`metrics.listen` is set too"), "{said}");
    let afar = Starter::new().tcp("0.0.0.0:0", "metrics");
    let (code, said) = afar.refused(&["--root", DEMO, "--insecure-tcp"]);
    assert_eq!(code, Some(78), "{said}");
    let twice = Starter::new().tcp("127.0.0.1:0", "metrics").tcp("127.0.0.1:0", "metrics");
    let (code, said) = twice.refused(&["--root", DEMO]);
    assert_eq!((code, said.contains("duplicate socket for metrics")), (Some(73), true), "{said}");
}

#[test]
fn those_of_another_process_are_not_taken() {
    let starter = Starter::new().unix("caproot");
    let serving = starter.with("1", &["--root", DEMO], |command| Serving::of_many(command, 1));
    assert!(serving.endpoint().ends_with("run/caproot.sock"), "{}", serving.endpoint());
    assert_eq!(serving.terminate().0, Some(0));
}

#[test]
fn a_port_that_leaves_the_machine_needs_tls_too() {
    let starter = Starter::new().tcp("0.0.0.0:0", "caproot-tcp");
    let (code, said) = starter.refused(&["--root", DEMO]);
    assert_eq!(code, Some(78), "{said}");
    assert!(
        said.contains("LISTEN_FDS: invalid value \"tcp:0.0.0.0:") && said.contains("without TLS"),
        "{said}"
    );
    let serving = starter.serve(1, &["--root", DEMO, "--insecure-tcp"]);
    let (code, log) = serving.terminate();
    assert_eq!(code, Some(0));
    assert!(log.contains("without TLS: an attacker on the network"), "{log}");
}

#[test]
fn one_that_every_user_may_connect_to_is_warned_of() {
    let starter = Starter::new().unix("caproot");
    fs::set_permissions(starter.socket(), fs::Permissions::from_mode(0o666)).expect("chmod");
    let (_, log) = starter.serve(1, &["--root", DEMO]).terminate();
    assert!(log.contains("every user can connect"), "{log}");
}

#[test]
fn socket_keys_without_effect_are_warned_of() {
    let own =
        |starter: &Starter| format!("unix:{}", starter.fixture.path("run/own.sock").display());
    for has_own in [false, true] {
        let starter = Starter::new().unix("caproot");
        let text = format!("socket: {{mode: '0660'}}\nroots: [{{id: d, path: {DEMO}}}]");
        starter.fixture.write("config.yaml", text);
        let (config, own) = (starter.fixture.path("config.yaml"), own(&starter));
        let mut flags = vec!["--config", config.to_str().expect("UTF-8")];
        if has_own {
            flags.extend(["--listen", &own]);
        }
        let (_, log) = starter.serve(1 + usize::from(has_own), &flags).terminate();
        assert_eq!(log.contains("`socket` has no effect"), !has_own, "{log}");
    }
}

#[test]
fn what_is_no_listening_stream_is_refused() {
    let file = tempfile::tempfile().expect("a file");
    let connected = || {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection")
    };
    let datagrams = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let name = format!("caproot-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name);
    let nowhere = UnixListener::bind_addr(&address.expect("a name")).expect("a socket");
    for (starter, says) in [
        (Starter::new().hand(file, "caproot"), "not a listening Unix or TCP stream socket"),
        (Starter::new().hand(connected(), "caproot"), "not a listening Unix or TCP stream socket"),
        (Starter::new().unix("a").hand(datagrams, "b"), "\"b\" (descriptor 4): not a listening"),
        (Starter::new().hand(nowhere, "caproot"), "has no path"),
    ] {
        let (code, said) = starter.refused(&["--root", DEMO]);
        assert_eq!(code, Some(73), "{said}");
        assert!(said.contains(says), "{says}: {said}");
        assert_eq!(said.trim_end().lines().count(), 1, "one sentence: {said}");
    }
    let none = Starter::new();
    let (code, said) = none.with("$$", &[], |command| {
        let output = command.env("LISTEN_FDS", "3").env_remove("LISTEN_FDNAMES").output();
        let output = output.expect("it runs");
        (output.status.code(), String::from_utf8(output.stderr).expect("text"))
    });
    assert_eq!((code, said.contains("inherited sockets")), (Some(73), true), "{said}");
}
