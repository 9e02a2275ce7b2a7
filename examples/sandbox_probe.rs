//! Attempts the actions that the daemon's sandbox denies, from inside a process with this sandbox.
//!
//! ```sh
//! cargo run --example sandbox_probe -- required /srv/skills /etc/hostname
//! ```
//!
//! The arguments are the mode of the sandbox, a root to publish, and a readable file outside the root.
//! The program prints one JSON object for each attempt. The exit code is 0 only if all attempts were
//! denied. The daemon's integration tests run the same attempts.

// The example prints its results.
#![allow(clippy::print_stdout)]

use caproot::cli::sandbox_policy;
use caproot::daemon::config::{Config, RootFlag, ServeFlags};
use caproot::daemon::model::{LandlockMode, LandlockState, SandboxStatus};
use caproot::daemon::sandbox::restrict_process;
use caproot::daemon::server::{BoundListeners, bind_listeners};
use caproot_core::net::endpoint::ProcessEnv;
use serde_json::json;
use std::error::Error;
use std::fs::{File, OpenOptions, read_dir, remove_file};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mode, root, outside_file] = &arguments[..] else {
        return Err("usage: sandbox_probe MODE ROOT FILE".into());
    };
    if probe_sandbox(mode, Path::new(root), Path::new(outside_file))? {
        Ok(ExitCode::SUCCESS)
    } else {
        Ok(ExitCode::FAILURE)
    }
}

/// Applies the sandbox of a daemon to this thread, and attempts all actions that it denies. Prints each
/// attempt. Returns whether all were denied.
pub(crate) fn probe_sandbox(
    mode: &str,
    root: &Path,
    outside_file: &Path,
) -> Result<bool, Box<dyn Error>> {
    let env = ProcessEnv::from_process();
    let flags = ServeFlags {
        roots: vec![RootFlag {
            id: None,
            dir: root.to_owned(),
        }],
        listen: vec!["tcp:127.0.0.1:0".to_owned()],
        ..ServeFlags::default()
    };
    let mut config = Config::from_flags(flags, &env).map_err(|errors| format!("{errors:?}"))?;
    config.landlock = LandlockMode::parse(mode)?;

    // As in the daemon, the listeners are bound before the sandbox denies binding.
    let _listeners = bind_listeners(&config, BoundListeners::default())?;
    let targets = ProbeTargets::create(root, outside_file)?;
    let sandbox = restrict_process(&sandbox_policy(&config, None, &env))?;

    let mut all_denied = true;
    for (action, result) in targets.attempt_actions(&sandbox.status)? {
        let error = result.err();
        // Other failures do not count.
        let refused = error
            .as_ref()
            .is_some_and(|error| error.kind() == ErrorKind::PermissionDenied);
        let errno = error.as_ref().and_then(io::Error::raw_os_error);
        println!(
            "{}",
            json!({ "attempt": action, "refused": refused, "errno": errno })
        );
        all_denied &= refused;
    }
    Ok(all_denied)
}

/// Files and listeners that the restricted process must not reach.
struct ProbeTargets {
    /// File that would be created below a root.
    new_file: PathBuf,
    outside_file: PathBuf,
    tcp_listener: TcpListener,
    abstract_address: UnixAddress,
    _abstract_listener: UnixListener,
}

type Attempt = (&'static str, io::Result<()>);

impl ProbeTargets {
    /// Creates the listeners. Call before the process is restricted.
    fn create(root: &Path, outside_file: &Path) -> io::Result<Self> {
        let name = format!("caproot-sandbox-probe-{}", std::process::id());
        let abstract_address = UnixAddress::from_abstract_name(&name)?;
        let abstract_listener = UnixListener::bind_addr(&abstract_address)?;
        Ok(Self {
            new_file: root.join(format!(".{name}")),
            outside_file: outside_file.to_owned(),
            tcp_listener: TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?,
            abstract_address,
            _abstract_listener: abstract_listener,
        })
    }

    /// Attempts all actions that the Landlock of this kernel denies. Without a sandbox, attempts all.
    fn attempt_actions(&self, sandbox: &SandboxStatus) -> io::Result<Vec<Attempt>> {
        let abi = match sandbox.landlock {
            LandlockState::Enforced | LandlockState::Partial => sandbox.landlock_abi,
            LandlockState::Off | LandlockState::Unavailable => u32::MAX,
        };
        let address = self.tcp_listener.local_addr()?;
        let outside_dir = self.outside_file.parent().unwrap_or(Path::new("/"));

        let mut attempts = vec![
            ("read /etc/shadow", File::open("/etc/shadow").map(drop)),
            (
                "read a file outside",
                File::open(&self.outside_file).map(drop),
            ),
            ("list a directory outside", read_dir(outside_dir).map(drop)),
            ("write below a root", create_and_remove_file(&self.new_file)),
            ("execute /bin/true", execute_true()),
        ];
        if abi >= 4 {
            let any_port = SocketAddr::new(address.ip(), 0);
            attempts.extend([
                ("connect by TCP", TcpStream::connect(address).map(drop)),
                ("bind a TCP port", TcpListener::bind(any_port).map(drop)),
            ]);
        }
        if abi >= 6 {
            let connected = UnixStream::connect_addr(&self.abstract_address).map(drop);
            attempts.extend([
                ("connect to an abstract socket", connected),
                ("signal the parent", signal_parent()),
            ]);
        }
        Ok(attempts)
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

/// Checks the permission to send a signal, without sending a signal.
fn signal_parent() -> io::Result<()> {
    let parent = rustix::process::getppid().ok_or(ErrorKind::NotFound)?;
    Ok(rustix::process::test_kill_process(parent)?)
}
