//! A process that serves over a socket of the loopback: caproot, or the bare server beside it.

use crate::client::{Caller, LOST};
use crate::context::{Outcome, this_program};
use caproot::proto::caproot::v1::capability_service_client::CapabilityServiceClient;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use tonic::transport::{Channel, Endpoint};

/// Ended with its process.
pub(crate) struct Server {
    child: Child,
    address: String,
}

impl Server {
    /// The binary, serving these roots.
    pub(crate) fn caproot(roots: &[PathBuf]) -> Outcome<Self> {
        Self::caproot_with(roots, &[])
    }

    pub(crate) fn caproot_with(roots: &[PathBuf], arguments: &[&str]) -> Outcome<Self> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_caproot"));
        command.args(["serve", "--log", "off", "--listen", "tcp:127.0.0.1:0"]).args(arguments);
        for (at, root) in roots.iter().enumerate() {
            let mut published = OsString::from(format!("root-{at}="));
            published.push(root);
            command.arg("--root").arg(published);
        }
        Self::start(&mut command)
    }

    /// The bare server, with the answers in a directory.
    pub(crate) fn bare(answers: &Path) -> Outcome<Self> {
        Self::start(Command::new(this_program()?).arg("--bare").arg(answers))
    }

    fn start(command: &mut Command) -> Outcome<Self> {
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take();
        let mut server = Self { child, address: String::new() };
        let mut stdout = BufReader::new(stdout.ok_or("stdout is piped")?);
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let mut line = String::new();
            // Nobody listens any more where it came too late.
            let _ = tell.send(stdout.read_line(&mut line).map(|_| line));
        });
        let line = told.recv_timeout(LOST).map_err(|_| "a server says where it listens")??;
        let address = line.trim().strip_prefix("listening tcp:").ok_or("it listens")?;
        server.address = format!("http://{address}");
        Ok(server)
    }

    /// A connection of its own.
    pub(crate) async fn connect(&self) -> Outcome<Channel> {
        Ok(Endpoint::from_shared(self.address.clone())?.connect_timeout(LOST).connect().await?)
    }

    /// A client of caproot on a connection of its own.
    pub(crate) async fn client(&self) -> Outcome<CapabilityServiceClient<Channel>> {
        Ok(CapabilityServiceClient::new(self.connect().await?))
    }

    /// One who takes answers as bytes, on a connection of its own.
    pub(crate) async fn caller(&self) -> Outcome<Caller> {
        Ok(Caller::new(self.connect().await?))
    }

    /// KiB in memory.
    pub(crate) fn resident(&self) -> Outcome<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident = resident.and_then(|rest| rest.split_whitespace().next());
        Ok(resident.ok_or("VmRSS")?.parse()?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Time that a server's threads spent on processors; that of threads which have ended is kept, if they
/// were seen shortly before.
#[derive(Default)]
pub(crate) struct Spent(HashMap<OsString, f64>);

impl Spent {
    /// Looks at all threads now.
    pub(crate) fn look(&mut self, server: &Server) -> Outcome<()> {
        for task in fs::read_dir(format!("/proc/{}/task", server.child.id()))? {
            let task = task?;
            // A thread may end in between.
            let Ok(stat) = fs::read_to_string(task.path().join("schedstat")) else { continue };
            let spent = stat.split(' ').next().ok_or("schedstat has fields")?.parse()?;
            self.0.insert(task.file_name(), spent);
        }
        Ok(())
    }

    /// Microseconds in all.
    pub(crate) fn micros(&self) -> f64 {
        self.0.values().sum::<f64>() / 1e3
    }
}
