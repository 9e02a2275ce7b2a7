//! Who may ask, and for what: the real daemon with rules, and callers of every kind.

mod audit;
mod bound;
mod bound_law;
mod calls;
mod hostile;
mod logging;
mod socket;
mod tokens;
mod who;

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::{fs, thread};

use caproot::config::{Config, ServeFlags};
use caproot::endpoint::ProcessEnv;
use hyper_util::rt::TokioIo;
use rustix::fs::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use tonic::Request;
use tonic::transport::{Channel, Endpoint};

use crate::fixture::Fixture;
use crate::harness::{Daemon, in_time, isolated_env};

/// A daemon with this config file, which lies at the fixture's top; its last listener is a free port.
async fn daemon(fixture: &Fixture, config: &str) -> Daemon {
    Daemon::start_with(config_of(fixture, config, &isolated_env(Path::new("/nonexistent")))).await
}

fn config_of(fixture: &Fixture, config: &str, env: &ProcessEnv) -> Config {
    let listen = "listen: ['tcp:127.0.0.1:0']\n";
    let listen = if config.contains("listen:") { "" } else { listen };
    let file = fixture.path("caproot.yaml");
    let text = format!("{config}\n{listen}").into_bytes();
    Config::from_bytes(ServeFlags::default(), &file, text, env).expect("a good configuration")
}

/// Writes a token where a rule may find it: by renaming, as those do who replace one.
fn write_token(fixture: &Fixture, path: &str, token: &str) {
    write_token_as(fixture, path, token, 0o600);
}

fn write_token_as(fixture: &Fixture, path: &str, token: &str, mode: u32) {
    let fresh = fixture.path(&format!("{path}.fresh"));
    fs::write(&fresh, token).expect("a file");
    fs::set_permissions(&fresh, fs::Permissions::from_mode(mode)).expect("a mode");
    fs::rename(&fresh, fixture.path(path)).expect("renamed");
}

/// A request that shows a token.
fn by<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let value = format!("Bearer {token}").parse().expect("a header's value");
    request.metadata_mut().insert("authorization", value);
    request
}

/// Whose process connects to a Unix socket.
#[derive(Debug, Clone, Copy)]
struct As {
    uid: u32,
    gid: u32,
    groups: &'static [u32],
}

impl As {
    /// Connects from a thread that becomes this user, and ends.
    fn connect(self, socket: &Path) -> io::Result<UnixStream> {
        let socket = socket.to_owned();
        let connected = thread::spawn(move || {
            self.become_it()?;
            UnixStream::connect(socket)
        });
        connected.join().expect("no panic")
    }

    /// What it asks goes over one connection.
    async fn channel(self, socket: &Path) -> Channel {
        channel(self.connect(socket).expect("a connection")).await
    }

    fn become_it(self) -> io::Result<()> {
        let groups: Vec<_> = self.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        set_thread_groups(&groups)?;
        set_thread_res_gid(gid, gid, gid)?;
        Ok(set_thread_res_uid(uid, uid, uid)?)
    }
}

/// Whether this process may be somebody else; says so if not.
fn may_be_others() -> bool {
    let nobody = As { uid: 7_002, gid: 7_002, groups: &[] };
    let may = thread::spawn(move || nobody.become_it().is_ok()).join().expect("no panic");
    if !may {
        println!("SKIPPED: this user cannot be another one; run the tests as root");
    }
    may
}

/// A channel over a connection that is there.
async fn channel(stream: UnixStream) -> Channel {
    stream.set_nonblocking(true).expect("a socket");
    let mut stream = Some(tokio::net::UnixStream::from_std(stream).expect("a socket"));
    let connector = tower::service_fn(move |_| {
        let stream = stream.take().ok_or_else(|| io::Error::other("connected once"));
        async move { stream.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://localhost");
    in_time(endpoint.connect_with_connector(connector)).await.expect("HTTP/2")
}

/// A fixture whose sockets others can reach, in `run`.
fn reachable(tree: &str) -> Fixture {
    let fixture = Fixture::new(&format!("dir run\nmode 0755 run\n{tree}"));
    fs::set_permissions(fixture.top(), fs::Permissions::from_mode(0o711)).expect("a mode");
    fixture
}
