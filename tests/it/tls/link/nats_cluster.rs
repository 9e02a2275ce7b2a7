//! Cluster of `nats-server` processes, which a test or a bench kills, freezes or separates from the
//! others.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

use super::cuttable_route::CuttableRoute;

/// Places of the program.
const PROGRAMS: [&str; 3] = [
    "/usr/sbin/nats-server",
    "/usr/bin/nats-server",
    "/usr/local/bin/nats-server",
];
/// How long a server may take to start.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// Servers, each with a route to each other. The servers end with it.
pub(crate) struct NatsCluster {
    program: PathBuf,
    pub(crate) servers: Vec<ClusterServer>,
    routes: Vec<CuttableRoute>,
}

/// One server of a cluster.
pub(crate) struct ClusterServer {
    /// Address for clients.
    address: String,
    config: PathBuf,
    /// The process, unless it was killed.
    pub(crate) process: Option<Child>,
    pub(crate) is_frozen: bool,
    pub(crate) is_cut: bool,
}

/// Returns the program, if it is installed.
pub(crate) fn find_nats_server() -> Option<PathBuf> {
    PROGRAMS
        .into_iter()
        .map(PathBuf::from)
        .find(|path| path.exists())
}

impl NatsCluster {
    /// Starts a server at each of the hosts, with their config files in a directory. No other program
    /// may bind a port of the hosts, so that the ports of a killed server stay free. The servers ping
    /// their routes and clients after `ping_interval`, such as `10s`.
    pub(crate) async fn start(
        program: PathBuf,
        hosts: &[String],
        ping_interval: &str,
        dir: &Path,
    ) -> io::Result<Self> {
        let mut cluster = Self {
            program,
            servers: Vec::new(),
            routes: Vec::new(),
        };
        let mut route_addresses: Vec<String> = Vec::new();
        for (at, host) in hosts.iter().enumerate() {
            let (address, own_routes) = (free_address(host).await?, free_address(host).await?);
            let mut urls = String::new();
            for (other, target) in route_addresses.iter().enumerate() {
                let listener = TcpListener::bind("127.0.0.1:0").await?;
                write!(urls, "\"nats://{}\",", listener.local_addr()?).map_err(io::Error::other)?;
                let target = Arc::new(Mutex::new(target.clone()));
                cluster
                    .routes
                    .push(CuttableRoute::start(listener, (other, at), target));
            }
            // Servers tell each other the advertised address. Nothing is there, so that all routes
            // are those of the proxies.
            let unused = free_address(host).await?;
            let config = format!(
                "listen: \"{address}\"\nmax_payload: 65536\nping_interval: \"{ping_interval}\"\n\
                 ping_max: 2\ncluster {{\n  name: fleet\n  listen: \"{own_routes}\"\n  \
                 no_advertise: true\n  advertise: \"{unused}\"\n  routes: [{urls}]\n}}\n"
            );
            let file = dir.join(format!("nats-{at}.conf"));
            fs::write(&file, config)?;
            route_addresses.push(own_routes);
            cluster.servers.push(ClusterServer {
                address,
                config: file,
                process: None,
                is_frozen: false,
                is_cut: false,
            });
            cluster.revive(at).await?;
        }
        Ok(cluster)
    }

    /// URL of each server.
    pub(crate) fn urls(&self) -> Vec<String> {
        self.servers
            .iter()
            .map(|server| format!("nats://{}", server.address))
            .collect()
    }

    /// Starts a killed server again, and waits until it accepts connections.
    pub(crate) async fn revive(&mut self, at: usize) -> io::Result<()> {
        let server = &mut self.servers[at];
        if server.process.is_some() {
            return Ok(());
        }
        let mut command = Command::new(&self.program);
        command
            .arg("-c")
            .arg(&server.config)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut process = command.kill_on_drop(true).spawn()?;
        let stderr = process
            .stderr
            .take()
            .ok_or_else(|| io::Error::other("stderr is piped"))?;
        let mut log = BufReader::new(stderr).lines();
        let ready = async {
            while let Some(line) = log.next_line().await? {
                if line.contains("Server is ready") {
                    return Ok(());
                }
            }
            Err(io::Error::other("nats-server does not start"))
        };
        tokio::time::timeout(START_TIMEOUT, ready).await??;
        // A server that cannot write its log would stop.
        tokio::spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
        server.process = Some(process);
        server.is_frozen = false;
        Ok(())
    }

    /// Kills a server without a chance to say so.
    pub(crate) async fn kill(&mut self, at: usize) -> io::Result<()> {
        if let Some(mut process) = self.servers[at].process.take() {
            process.kill().await?;
        }
        self.servers[at].is_frozen = false;
        Ok(())
    }

    /// Freezes a server, or lets it continue.
    pub(crate) fn set_frozen(&mut self, at: usize, is_frozen: bool) -> io::Result<()> {
        let server = &mut self.servers[at];
        let process = server
            .process
            .as_ref()
            .filter(|_| server.is_frozen != is_frozen);
        let id = process
            .and_then(Child::id)
            .and_then(|id| Pid::from_raw(id.cast_signed()));
        if let Some(id) = id {
            let signal = if is_frozen {
                Signal::STOP
            } else {
                Signal::CONT
            };
            kill_process(id, signal)?;
            server.is_frozen = is_frozen;
        }
        Ok(())
    }

    /// Separates a server from the others, or connects it again.
    pub(crate) fn set_cut(&mut self, at: usize, is_cut: bool) {
        self.servers[at].is_cut = is_cut;
        // A route of two separated servers stays cut.
        for other in (0..self.servers.len()).filter(|other| *other != at) {
            let is_cut = is_cut || self.servers[other].is_cut;
            for route in self.routes.iter().filter(|route| route.ends_at(at)) {
                if route.ends_at(other) {
                    route.set_cut(is_cut);
                }
            }
        }
    }
}

/// Returns an address whose port was free a moment ago.
async fn free_address(host: &str) -> io::Result<String> {
    Ok(TcpListener::bind((host, 0))
        .await?
        .local_addr()?
        .to_string())
}
