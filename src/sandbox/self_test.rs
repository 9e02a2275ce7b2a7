//! Tries what the walls are there to deny, for tests that ask a restricted process from inside. What
//! must be there before the walls is made first; each try says how it ended.

use std::fs::{File, OpenOptions, read_dir, remove_file};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What is tried: nothing that a daemon with walls may do, and all of it possible without.
#[derive(Debug)]
pub struct SelfTest {
    /// A file outside that everybody may read.
    outside_file: PathBuf,
    tcp_listener: TcpListener,
    abstract_address: UnixAddr,
    _abstract_listener: UnixListener,
}

type AttemptFn<'a> = &'a dyn Fn() -> io::Result<()>;

/// How one try ended.
#[derive(Debug)]
pub struct AttemptResult {
    /// What was tried.
    pub action: &'static str,
    /// Why it failed, if it did.
    pub error: Option<io::Error>,
}

impl SelfTest {
    /// Makes what is to be out of reach behind the walls.
    pub fn prepare(outside: PathBuf) -> io::Result<Self> {
        let tcp = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0))?;
        let name = format!("caproot-self-test-{}", std::process::id());
        let address = UnixAddr::from_abstract_name(name)?;
        let listener = UnixListener::bind_addr(&address)?;
        Ok(Self {
            outside_file: outside,
            tcp_listener: tcp,
            abstract_address: address,
            _abstract_listener: listener,
        })
    }

    /// Tries everything; `below` is a directory that the daemon reads, `abi` the kernel's Landlock
    /// ABI where there are walls: what it cannot deny is not tried.
    pub fn run(&self, below: &Path, abi: Option<u32>) -> io::Result<Vec<AttemptResult>> {
        let file = below.join(format!(".caproot-self-test-{}", std::process::id()));
        let to = self.tcp_listener.local_addr()?;
        let dir = self.outside_file.parent().unwrap_or(Path::new("/"));
        let tries: [(u32, &'static str, AttemptFn<'_>); 9] = [
            (1, "read /etc/shadow", &|| File::open("/etc/shadow").map(drop)),
            (1, "read a file outside", &|| File::open(&self.outside_file).map(drop)),
            (1, "list a directory outside", &|| read_dir(dir).map(drop)),
            (1, "write below a root", &|| create_and_remove_file(&file)),
            (1, "execute /bin/true", &execute_true),
            (4, "connect by TCP", &|| TcpStream::connect(to).map(drop)),
            (4, "bind a TCP port", &|| TcpListener::bind(any_port(to)).map(drop)),
            (6, "connect to an abstract socket", &|| {
                UnixStream::connect_addr(&self.abstract_address).map(drop)
            }),
            (6, "signal the parent", &signal_parent),
        ];
        let promised = tries.into_iter().filter(|(since, ..)| abi.is_none_or(|abi| abi >= *since));
        Ok(promised
            .map(|(_, what, r#try)| AttemptResult { action: what, error: r#try().err() })
            .collect())
    }
}

impl AttemptResult {
    /// Whether it was forbidden; what failed for another reason proves nothing.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        self.error.as_ref().is_some_and(|e| e.kind() == io::ErrorKind::PermissionDenied)
    }
}

fn create_and_remove_file(file: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).open(file)?;
    remove_file(file)
}

fn execute_true() -> io::Result<()> {
    Command::new("/bin/true").stdin(Stdio::null()).status().map(drop)
}

fn any_port(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), 0)
}

/// Sends none, and learns whether it could.
fn signal_parent() -> io::Result<()> {
    let parent = rustix::process::getppid().ok_or(io::ErrorKind::NotFound)?;
    Ok(rustix::process::test_kill_process(parent)?)
}
