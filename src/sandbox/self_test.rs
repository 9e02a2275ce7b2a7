//! Attempts actions that the sandbox denies, from inside a restricted process. For tests.

use std::fs::{File, OpenOptions, read_dir, remove_file};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Actions that the sandbox denies, and that succeed without a sandbox.
#[derive(Debug)]
pub struct SelfTest {
    /// World-readable file outside the readable directories.
    outside_file: PathBuf,
    tcp_listener: TcpListener,
    abstract_address: UnixAddr,
    _abstract_listener: UnixListener,
}

type AttemptFn<'a> = &'a dyn Fn() -> io::Result<()>;

/// Outcome of one action.
#[derive(Debug)]
pub struct AttemptResult {
    /// Description of the action.
    pub action: &'static str,
    /// Error if the action failed.
    pub error: Option<io::Error>,
}

impl SelfTest {
    /// Creates the listeners that the restricted process must not reach. Call before the process is
    /// restricted.
    pub fn prepare(outside_file: PathBuf) -> io::Result<Self> {
        let tcp_listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0))?;
        let name = format!("caproot-self-test-{}", std::process::id());
        let abstract_address = UnixAddr::from_abstract_name(name)?;
        let listener = UnixListener::bind_addr(&abstract_address)?;
        Ok(Self {
            outside_file,
            tcp_listener,
            abstract_address,
            _abstract_listener: listener,
        })
    }

    /// Attempts all actions that a sandbox with this Landlock ABI denies; `None` attempts all.
    /// `below` is a readable directory.
    pub fn run(&self, below: &Path, abi: Option<u32>) -> io::Result<Vec<AttemptResult>> {
        let file = below.join(format!(".caproot-self-test-{}", std::process::id()));
        let address = self.tcp_listener.local_addr()?;
        let dir = self.outside_file.parent().unwrap_or(Path::new("/"));
        let actions: [(u32, &'static str, AttemptFn<'_>); 9] = [
            (1, "read /etc/shadow", &|| {
                File::open("/etc/shadow").map(drop)
            }),
            (1, "read a file outside", &|| {
                File::open(&self.outside_file).map(drop)
            }),
            (1, "list a directory outside", &|| read_dir(dir).map(drop)),
            (1, "write below a root", &|| create_and_remove_file(&file)),
            (1, "execute /bin/true", &execute_true),
            (4, "connect by TCP", &|| {
                TcpStream::connect(address).map(drop)
            }),
            (4, "bind a TCP port", &|| {
                TcpListener::bind(any_port(address)).map(drop)
            }),
            (6, "connect to an abstract socket", &|| {
                UnixStream::connect_addr(&self.abstract_address).map(drop)
            }),
            (6, "signal the parent", &signal_parent),
        ];
        let denied = actions
            .into_iter()
            .filter(|(since, ..)| abi.is_none_or(|abi| abi >= *since));
        let attempt = |(_, action, run): (u32, _, AttemptFn<'_>)| AttemptResult {
            action,
            error: run().err(),
        };
        Ok(denied.map(attempt).collect())
    }
}

impl AttemptResult {
    /// Whether the action failed for lack of permission. Other failures do not count.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        self.error
            .as_ref()
            .is_some_and(|e| e.kind() == io::ErrorKind::PermissionDenied)
    }
}

fn create_and_remove_file(file: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).open(file)?;
    remove_file(file)
}

fn execute_true() -> io::Result<()> {
    Command::new("/bin/true")
        .stdin(Stdio::null())
        .status()
        .map(drop)
}

fn any_port(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), 0)
}

/// Checks the permission to send a signal, without sending a signal.
fn signal_parent() -> io::Result<()> {
    let parent = rustix::process::getppid().ok_or(io::ErrorKind::NotFound)?;
    Ok(rustix::process::test_kill_process(parent)?)
}
