//! Sockets that the real binary inherits, as with systemd socket activation. The daemon serves
//! them, leaves them in place, and checks them like its own sockets.

use std::fs;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::Command;

use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};

use crate::harness::fixture::Fixture;
use crate::harness::process::{Output, Process, caproot, program, run_command};

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/trees/demo");
/// Above all descriptors of a test, so that moving a descriptor to another number closes none.
const FIRST_COPY: i32 = 500;

/// Process that starts the daemon. It listens and has a directory of its own.
struct ServiceManager {
    fixture: Fixture,
    sockets: Vec<(OwnedFd, &'static str)>,
}

impl ServiceManager {
    fn new() -> Self {
        Self {
            fixture: Fixture::new("dir run\nmode 0700 run"),
            sockets: Vec::new(),
        }
    }

    fn add_socket(mut self, socket: impl Into<OwnedFd>, name: &'static str) -> Self {
        self.sockets.push((socket.into(), name));
        self
    }

    fn unix(self, name: &'static str) -> Self {
        let listener = UnixListener::bind(self.socket()).expect("a socket");
        fs::set_permissions(self.socket(), fs::Permissions::from_mode(0o660)).expect("chmod");
        self.add_socket(listener, name)
    }

    fn tcp(self, address: &str, name: &'static str) -> Self {
        self.add_socket(TcpListener::bind(address).expect("a port"), name)
    }

    fn socket(&self) -> PathBuf {
        self.fixture.path("run/lent.sock")
    }

    fn inherited_endpoint(&self) -> String {
        format!("unix:{}", self.socket().display())
    }

    /// Runs a function with `caproot serve` that inherits the sockets from descriptor 3 on. A shell
    /// moves the sockets there and executes the daemon, which keeps the process id of the shell.
    async fn with_command<T>(
        &self,
        pid: &str,
        flags: &[&str],
        run: impl AsyncFnOnce(&mut Command) -> T,
    ) -> T {
        let passed: Vec<_> = self
            .sockets
            .iter()
            .map(|(fd, _)| inheritable_copy(fd))
            .collect();
        let moves = (3..).zip(&passed).map(|(to, fd)| {
            let from = fd.as_raw_fd();
            format!(" {to}<&{from} {from}<&-")
        });
        let script = format!("LISTEN_PID={pid} exec \"$@\"{}", moves.collect::<String>());
        let names: Vec<_> = self.sockets.iter().map(|(_, name)| *name).collect();
        let mut command = program("bash");
        command
            .args([
                "-c",
                &script,
                "bash",
                env!("CARGO_BIN_EXE_caproot"),
                "serve",
            ])
            .args(flags);
        command
            .env_clear()
            .env("HOME", "/nonexistent")
            .env("LISTEN_FDNAMES", names.join(":"));
        command.env("LISTEN_FDS", passed.len().to_string());
        command.env("XDG_RUNTIME_DIR", self.fixture.path("run"));
        run(&mut command).await
    }

    async fn serve(&self, listeners: usize, flags: &[&str]) -> Process {
        self.serve_as("$$", listeners, flags).await
    }

    async fn serve_as(&self, pid: &str, listeners: usize, flags: &[&str]) -> Process {
        let start = async |command: &mut Command| {
            Process::start_until(command, |endpoints| endpoints.len() == listeners)
        };
        self.with_command(pid, flags, start).await
    }

    /// Starts a daemon that must fail.
    async fn start_and_fail(&self, flags: &[&str]) -> Output {
        let start = async |command: &mut Command| Process::start_failure(command).await;
        self.with_command("$$", flags, start).await
    }
}

/// Copy of a descriptor that a child process inherits.
fn inheritable_copy(fd: &OwnedFd) -> OwnedFd {
    let copy = fcntl_dupfd_cloexec(fd, FIRST_COPY).expect("a descriptor");
    fcntl_setfd(copy.as_fd(), FdFlags::empty()).expect("a flag");
    copy
}

async fn assert_lists(endpoint: &str) {
    let list = run_command(caproot(["list", "--endpoint", endpoint])).await;
    assert_eq!(list.code, Some(0), "{endpoint}: {}", list.stderr);
    assert!(list.text().contains("triage-logs"), "{list:?}");
}

#[tokio::test]
async fn inherited_sockets_replace_the_default_socket_and_stay_in_place() {
    let starter = ServiceManager::new()
        .unix("caproot")
        .tcp("127.0.0.1:0", "caproot-tcp");
    let before = fs::metadata(starter.socket()).expect("the socket");
    let serving = starter.serve(2, &["--root", DEMO]).await;
    let [unix, tcp] = serving.endpoints() else {
        panic!("{:?}", serving.endpoints())
    };
    assert_eq!(*unix, starter.inherited_endpoint());
    assert!(tcp.starts_with("tcp:127.0.0.1:"), "{tcp}");
    assert_lists(unix).await;
    assert_lists(tcp).await;
    assert!(
        !starter.fixture.path("run/caproot.sock").exists(),
        "no default socket in addition"
    );
    let log = serving.stop().await;
    assert!(!log.contains("WARN"), "{log}");
    let after = fs::metadata(starter.socket()).expect("the socket stays");
    let attributes = |meta: &fs::Metadata| (meta.ino(), meta.mode(), meta.uid(), meta.gid());
    assert_eq!(
        attributes(&after),
        attributes(&before),
        "the socket is unchanged"
    );

    // The next daemon inherits the same sockets, so that no client is rejected during a restart.
    let early = UnixStream::connect(starter.socket()).expect("in the backlog");
    let serving = starter.serve(2, &["--root", DEMO]).await;
    assert_lists(&serving.endpoints()[0]).await;
    drop(early);
    serving.stop().await;
}

#[tokio::test]
async fn callers_on_an_inherited_socket_are_identified_by_the_kernel() {
    let uid = rustix::process::geteuid().as_raw();
    for (uid, code) in [(uid, 0), (uid + 1, 5)] {
        let starter = ServiceManager::new().unix("caproot");
        let text =
            format!("callers: [{{name: a, uids: [{uid}]}}]\nroots: [{{id: d, path: {DEMO}}}]");
        starter.fixture.write("config.yaml", text);
        let config = starter.fixture.path("config.yaml");
        let serving = starter
            .serve(1, &["--config", config.to_str().expect("UTF-8")])
            .await;
        let endpoint = starter.inherited_endpoint();
        let list = run_command(caproot(["list", "--endpoint", &endpoint])).await;
        assert_eq!(list.code, Some(code), "{}", list.stderr);
        serving.stop().await;
    }
}

#[tokio::test]
async fn the_group_of_an_inherited_socket_must_not_read_a_token() {
    let starter = ServiceManager::new().unix("caproot");
    starter.fixture.write("token", "secret");
    let uid = rustix::process::geteuid().as_raw();
    let text = format!("callers: [{{name: a, uids: [{uid}], token_file: token}}]");
    starter.fixture.write("config.yaml", text);
    let config = starter.fixture.path("config.yaml");
    let flags = ["--config", config.to_str().expect("UTF-8")];
    let set_mode = |mode| {
        let token = starter.fixture.path("token");
        fs::set_permissions(token, fs::Permissions::from_mode(mode)).expect("a mode");
    };
    set_mode(0o640);
    let Output { code, stderr, .. } = starter.start_and_fail(&flags).await;
    assert_eq!(code, Some(78), "{stderr}");
    assert!(
        stderr.contains("callers[0].token_file: ") && stderr.contains("`chmod 0600`"),
        "{stderr}"
    );
    set_mode(0o600);
    starter.serve(1, &flags).await.stop().await;
}

#[tokio::test]
async fn configured_listeners_are_served_in_addition() {
    let starter = ServiceManager::new().unix("caproot");
    let own = format!("unix:{}", starter.fixture.path("run/own.sock").display());
    let serving = starter.serve(2, &["--root", DEMO, "--listen", &own]).await;
    assert_eq!(
        serving.endpoints(),
        [starter.inherited_endpoint(), own.clone()]
    );
    assert_lists(&starter.inherited_endpoint()).await;
    assert_lists(&own).await;
    serving.stop().await;
    assert!(starter.socket().exists() && !starter.fixture.path("run/own.sock").exists());
}

#[tokio::test]
async fn a_socket_named_metrics_serves_metrics() {
    let starter = ServiceManager::new().tcp("127.0.0.1:0", "metrics");
    // The daemon still opens its default socket. The second printed line is the metrics address.
    let serving = starter.serve(2, &["--root", DEMO]).await;
    let [socket, metrics] = serving.endpoints() else {
        panic!("{:?}", serving.endpoints())
    };
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
    serving.stop().await;

    starter
        .fixture
        .write("config.yaml", "metrics: {listen: 'tcp:127.0.0.1:0'}");
    let config = starter.fixture.path("config.yaml");
    let Output { code, stderr, .. } = starter
        .start_and_fail(&["--config", config.to_str().expect("UTF-8")])
        .await;
    assert_eq!(code, Some(78), "{stderr}");
    assert!(stderr.contains("`metrics.listen` is set too"), "{stderr}");
    let public = ServiceManager::new().tcp("0.0.0.0:0", "metrics");
    let Output { code, stderr, .. } = public
        .start_and_fail(&["--root", DEMO, "--insecure-tcp"])
        .await;
    assert_eq!(code, Some(78), "{stderr}");
    let twice = ServiceManager::new()
        .tcp("127.0.0.1:0", "metrics")
        .tcp("127.0.0.1:0", "metrics");
    let Output { code, stderr, .. } = twice.start_and_fail(&["--root", DEMO]).await;
    assert_eq!(
        (code, stderr.contains("duplicate socket for metrics")),
        (Some(73), true),
        "{stderr}"
    );
}

#[tokio::test]
async fn sockets_for_another_process_id_are_ignored() {
    let starter = ServiceManager::new().unix("caproot");
    let serving = starter.serve_as("1", 1, &["--root", DEMO]).await;
    assert!(
        serving.endpoint().ends_with("run/caproot.sock"),
        "{}",
        serving.endpoint()
    );
    serving.stop().await;
}

#[tokio::test]
async fn a_public_inherited_port_needs_tls() {
    let starter = ServiceManager::new().tcp("0.0.0.0:0", "caproot-tcp");
    let Output { code, stderr, .. } = starter.start_and_fail(&["--root", DEMO]).await;
    assert_eq!(code, Some(78), "{stderr}");
    assert!(
        stderr.contains("LISTEN_FDS: invalid value \"tcp:0.0.0.0:")
            && stderr.contains("without TLS"),
        "{stderr}"
    );
    let serving = starter.serve(1, &["--root", DEMO, "--insecure-tcp"]).await;
    let log = serving.stop().await;
    assert!(
        log.contains("without TLS: an attacker on the network"),
        "{log}"
    );
}

#[tokio::test]
async fn a_world_accessible_inherited_socket_causes_a_warning() {
    let starter = ServiceManager::new().unix("caproot");
    fs::set_permissions(starter.socket(), fs::Permissions::from_mode(0o666)).expect("chmod");
    let log = starter.serve(1, &["--root", DEMO]).await.stop().await;
    assert!(log.contains("every user can connect"), "{log}");
}

#[tokio::test]
async fn socket_keys_without_effect_cause_a_warning() {
    let own = |starter: &ServiceManager| {
        format!("unix:{}", starter.fixture.path("run/own.sock").display())
    };
    for has_own in [false, true] {
        let starter = ServiceManager::new().unix("caproot");
        let text = format!("socket: {{mode: '0660'}}\nroots: [{{id: d, path: {DEMO}}}]");
        starter.fixture.write("config.yaml", text);
        let (config, own) = (starter.fixture.path("config.yaml"), own(&starter));
        let mut flags = vec!["--config", config.to_str().expect("UTF-8")];
        if has_own {
            flags.extend(["--listen", &own]);
        }
        let serving = starter.serve(1 + usize::from(has_own), &flags).await;
        let log = serving.stop().await;
        assert_eq!(log.contains("`socket` has no effect"), !has_own, "{log}");
    }
}

#[tokio::test]
async fn inherited_descriptors_that_do_not_listen_are_rejected() {
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
        (
            ServiceManager::new().add_socket(file, "caproot"),
            "not a listening Unix or TCP stream socket",
        ),
        (
            ServiceManager::new().add_socket(connected(), "caproot"),
            "not a listening Unix or TCP stream socket",
        ),
        (
            ServiceManager::new().unix("a").add_socket(datagrams, "b"),
            "\"b\" (descriptor 4): not a listening",
        ),
        (
            ServiceManager::new().add_socket(nowhere, "caproot"),
            "has no path",
        ),
    ] {
        let Output { code, stderr, .. } = starter.start_and_fail(&["--root", DEMO]).await;
        assert_eq!(code, Some(73), "{stderr}");
        assert!(stderr.contains(says), "{says}: {stderr}");
        assert_eq!(
            stderr.trim_end().lines().count(),
            1,
            "one sentence: {stderr}"
        );
    }
    let none = ServiceManager::new();
    let run = async |command: &mut Command| {
        run_command(command.env("LISTEN_FDS", "3").env_remove("LISTEN_FDNAMES")).await
    };
    let Output { code, stderr, .. } = none.with_command("$$", &[], run).await;
    assert_eq!(
        (code, stderr.contains("inherited sockets")),
        (Some(73), true),
        "{stderr}"
    );
}
