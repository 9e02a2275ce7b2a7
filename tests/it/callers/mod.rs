//! Authentication and access rules: the real daemon with rules, and callers of every kind.

mod access_scope;
mod access_scope_property;
mod audit;
mod calls;
mod hostile_text;
mod peer_credentials;
mod socket;
mod tokens;

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::{fs, io, thread};

use caproot::daemon::config::{Config, ServeFlags};
use caproot_core::net::endpoint::ProcessEnv;
use hyper_util::rt::TokioIo;
use rustix::fs::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use tonic::Request;
use tonic::transport::{Channel, Endpoint};

use crate::harness::fixture::Fixture;
use crate::harness::process::with_listener;
use crate::harness::{Daemon, in_time, isolated_env};

/// Starts a daemon with a config file at the fixture's top. Its last listener is a free TCP port.
async fn start_configured_daemon(fixture: &Fixture, config: &str) -> Daemon {
    Daemon::start_with(parse_config(
        fixture,
        config,
        &isolated_env(Path::new("/nonexistent")),
    ))
    .await
}

pub(crate) fn parse_config(fixture: &Fixture, config: &str, env: &ProcessEnv) -> Config {
    let file = fixture.path("caproot.yaml");
    let text = with_listener(config).into_bytes();
    Config::from_bytes(ServeFlags::default(), &file, text, env).expect("a valid configuration")
}

/// Writes a token file by renaming a new file over it, as tools that replace secrets do.
pub(crate) fn write_token(fixture: &Fixture, path: &str, token: &str) {
    write_token_as(fixture, path, token, 0o600);
}

fn write_token_as(fixture: &Fixture, path: &str, token: &str, mode: u32) {
    let fresh = fixture.path(&format!("{path}.fresh"));
    fs::write(&fresh, token).expect("a file");
    fs::set_permissions(&fresh, fs::Permissions::from_mode(mode)).expect("a mode");
    fs::rename(&fresh, fixture.path(path)).expect("renamed");
}

/// Builds a request with a bearer token.
pub(crate) fn with_token<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let value = format!("Bearer {token}").parse().expect("a header's value");
    request.metadata_mut().insert("authorization", value);
    request
}

/// User and groups of a process that connects to a Unix socket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessUser {
    pub uid: u32,
    pub gid: u32,
    pub groups: &'static [u32],
}

impl ProcessUser {
    /// Connects from a thread that switches to this user.
    fn connect(self, socket: &Path) -> io::Result<UnixStream> {
        let socket = socket.to_owned();
        let connected = thread::spawn(move || {
            self.switch_thread()?;
            UnixStream::connect(socket)
        });
        connected.join().expect("no panic")
    }

    /// Opens a channel over one connection of this user.
    pub(crate) async fn open_channel(self, socket: &Path) -> Channel {
        channel_over(self.connect(socket).expect("a connection")).await
    }

    /// Returns the words that run a program as this user.
    pub(crate) fn setpriv(self) -> [String; 4] {
        let groups: Vec<_> = self.groups.iter().map(ToString::to_string).collect();
        let groups = match &*groups {
            [] => "--clear-groups".to_owned(),
            groups => format!("--groups={}", groups.join(",")),
        };
        let (uid, gid) = (
            format!("--reuid={}", self.uid),
            format!("--regid={}", self.gid),
        );
        ["setpriv".to_owned(), uid, gid, groups]
    }

    fn switch_thread(self) -> io::Result<()> {
        let groups: Vec<_> = self.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        set_thread_groups(&groups)?;
        set_thread_res_gid(gid, gid, gid)?;
        Ok(set_thread_res_uid(uid, uid, uid)?)
    }
}

/// Whether this process may switch to another user. Prints a note if it may not.
pub(crate) fn can_switch_user() -> bool {
    let other = ProcessUser {
        uid: 7_002,
        gid: 7_002,
        groups: &[],
    };
    let may = thread::spawn(move || other.switch_thread().is_ok())
        .join()
        .expect("no panic");
    if !may {
        println!("SKIPPED: this user cannot switch to another user; run the tests as root");
    }
    may
}

/// Opens a channel over an existing connection.
pub(crate) async fn channel_over(stream: UnixStream) -> Channel {
    stream.set_nonblocking(true).expect("a socket");
    let mut stream = Some(tokio::net::UnixStream::from_std(stream).expect("a socket"));
    let connector = tower::service_fn(move |_| {
        let stream = stream
            .take()
            .ok_or_else(|| io::Error::other("connected once"));
        async move { stream.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://localhost");
    in_time(endpoint.connect_with_connector(connector))
        .await
        .expect("HTTP/2")
}

/// Builds a fixture whose directory `run` and its sockets other users can reach.
fn reachable_fixture(tree: &str) -> Fixture {
    let fixture = Fixture::new(&format!("dir run\nmode 0755 run\n{tree}"));
    fs::set_permissions(fixture.top(), fs::Permissions::from_mode(0o711)).expect("a mode");
    fixture
}
