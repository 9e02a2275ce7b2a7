//! Server process on a loopback socket: caproot, or the bare server.

use crate::client::{RawClient, TIMEOUT};
use crate::context::{Outcome, this_program};
use crate::process_memory::{resident_kib, resident_parts_kib};
use caproot_core::proto::caproot::v1::capability_service_client::CapabilityServiceClient;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use tonic::transport::{Channel, Endpoint};

/// Server process. Drop kills the process.
pub(crate) struct Server {
    child: Child,
    address: String,
}

impl Server {
    /// Starts the caproot binary with these roots.
    pub(crate) fn start_caproot(roots: &[PathBuf]) -> Outcome<Self> {
        Self::start_caproot_with(roots, &[])
    }

    pub(crate) fn start_caproot_with(roots: &[PathBuf], arguments: &[&str]) -> Outcome<Self> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_caproot"));
        command
            .args(["serve", "--log", "off", "--listen", "tcp:127.0.0.1:0"])
            .args(arguments);
        for (at, root) in roots.iter().enumerate() {
            let mut published = OsString::from(format!("root-{at}="));
            published.push(root);
            command.arg("--root").arg(published);
        }
        Self::spawn(&mut command)
    }

    /// Starts the bare server with the responses in a directory.
    pub(crate) fn start_bare(answers: &Path) -> Outcome<Self> {
        Self::spawn(Command::new(this_program()?).arg("--bare").arg(answers))
    }

    fn spawn(command: &mut Command) -> Outcome<Self> {
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take();
        let mut server = Self {
            child,
            address: String::new(),
        };
        let mut stdout = BufReader::new(stdout.ok_or("stdout is piped")?);
        let (send, receive) = mpsc::channel();
        thread::spawn(move || {
            let mut line = String::new();
            // The receiver may have timed out.
            let _ = send.send(stdout.read_line(&mut line).map(|_| line));
        });
        let line = receive
            .recv_timeout(TIMEOUT)
            .map_err(|_| "the server printed no address")??;
        let address = line
            .trim()
            .strip_prefix("listening tcp:")
            .ok_or("no TCP address")?;
        address.clone_into(&mut server.address);
        Ok(server)
    }

    /// IP address and port.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Opens a new connection.
    pub(crate) async fn connect(&self) -> Outcome<Channel> {
        connect_to(&self.address).await
    }

    /// Client of caproot on a new connection.
    pub(crate) async fn client(&self) -> Outcome<CapabilityServiceClient<Channel>> {
        Ok(CapabilityServiceClient::new(self.connect().await?))
    }

    /// Raw client on a new connection.
    pub(crate) async fn raw_client(&self) -> Outcome<RawClient> {
        Ok(RawClient::new(self.connect().await?))
    }

    /// Resident memory in KiB.
    pub(crate) fn resident(&self) -> Outcome<f64> {
        resident_kib(&self.child.id().to_string())
    }

    /// Anonymous memory, and resident pages of files, in KiB.
    pub(crate) fn resident_parts(&self) -> Outcome<[f64; 2]> {
        resident_parts_kib(&self.child.id().to_string())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Opens a connection to an IP address and port.
pub(crate) async fn connect_to(address: &str) -> Outcome<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?;
    Ok(endpoint.connect_timeout(TIMEOUT).connect().await?)
}

/// Processor time of a server's threads. The time of an ended thread is kept if the thread was seen
/// shortly before its end.
#[derive(Default)]
pub(crate) struct ProcessorTime(HashMap<OsString, f64>);

impl ProcessorTime {
    /// Reads the times of all current threads.
    pub(crate) fn update(&mut self, server: &Server) -> Outcome<()> {
        for task in fs::read_dir(format!("/proc/{}/task", server.child.id()))? {
            let task = task?;
            // A thread may end meanwhile.
            let Ok(stat) = fs::read_to_string(task.path().join("schedstat")) else {
                continue;
            };
            let spent = stat
                .split(' ')
                .next()
                .ok_or("schedstat is empty")?
                .parse()?;
            self.0.insert(task.file_name(), spent);
        }
        Ok(())
    }

    /// Total time in microseconds.
    pub(crate) fn micros(&self) -> f64 {
        self.0.values().sum::<f64>() / 1e3
    }
}
