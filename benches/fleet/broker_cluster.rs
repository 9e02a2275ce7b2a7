//! Cluster of `nats-server` processes, which a fault kills, freezes or separates from the others.

use crate::Outcome;
use crate::cuttable_route::CuttableRoute;
use crate::process_memory::resident_kib;
use rustix::process::{Pid, Signal, kill_process};
use std::fmt::Write as _;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

/// Places of the program.
const PROGRAMS: [&str; 3] =
    ["/usr/sbin/nats-server", "/usr/bin/nats-server", "/usr/local/bin/nats-server"];
/// How long a server may take to start.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// Servers, each with a route to each other.
pub(crate) struct BrokerCluster {
    program: PathBuf,
    servers: Vec<BrokerServer>,
    routes: Vec<CuttableRoute>,
}

struct BrokerServer {
    /// Address for clients.
    address: String,
    config: PathBuf,
    /// The process, unless it was killed.
    process: Option<Child>,
    is_frozen: bool,
    is_cut: bool,
}

/// Returns the program, if it is installed.
pub(crate) fn find_nats_server() -> Option<PathBuf> {
    PROGRAMS.into_iter().map(PathBuf::from).find(|path| path.exists())
}

impl BrokerCluster {
    /// Starts the servers, with their config files in a directory.
    pub(crate) async fn start(program: PathBuf, servers: usize, dir: &Path) -> Outcome<Self> {
        let mut cluster = Self { program, servers: Vec::new(), routes: Vec::new() };
        let mut route_addresses: Vec<String> = Vec::new();
        for at in 0..servers {
            let host = loopback_host(79, at);
            let (address, own_routes) = (free_address(host).await?, free_address(host).await?);
            let mut urls = String::new();
            for (other, target) in route_addresses.iter().enumerate() {
                let listener = TcpListener::bind("127.0.0.1:0").await?;
                write!(urls, "\"nats://{}\",", listener.local_addr()?)?;
                let target = Arc::new(Mutex::new(target.clone()));
                cluster.routes.push(CuttableRoute::start(listener, (other, at), target));
            }
            // Servers tell each other the advertised address. Nothing is there, so that all routes
            // are those of the proxies.
            let unused = free_address(host).await?;
            let config = format!(
                "listen: \"{address}\"\nmax_payload: 65536\nping_interval: \"10s\"\ncluster {{\n  \
                 name: fleet\n  listen: \"{own_routes}\"\n  no_advertise: true\n  advertise: \
                 \"{unused}\"\n  routes: [{urls}]\n}}\n"
            );
            let file = dir.join(format!("nats-{at}.conf"));
            fs::write(&file, config)?;
            route_addresses.push(own_routes);
            cluster.servers.push(BrokerServer {
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

    pub(crate) fn urls(&self) -> Vec<String> {
        self.servers.iter().map(|server| format!("nats://{}", server.address)).collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.servers.len()
    }

    /// Resident memory of all servers.
    pub(crate) fn resident_kib(&self) -> Outcome<f64> {
        let processes = self.servers.iter().filter_map(|server| server.process.as_ref());
        processes.map(|process| resident_kib(&process.id().to_string())).sum()
    }

    pub(crate) fn is_running(&self, at: usize) -> bool {
        self.servers[at].process.is_some()
    }

    pub(crate) fn is_frozen(&self, at: usize) -> bool {
        self.servers[at].is_frozen
    }

    pub(crate) fn is_cut(&self, at: usize) -> bool {
        self.servers[at].is_cut
    }

    /// Starts a killed server again.
    pub(crate) async fn revive(&mut self, at: usize) -> Outcome<()> {
        let server = &mut self.servers[at];
        if server.process.is_none() {
            let mut command = Command::new(&self.program);
            command.arg("-c").arg(&server.config).stdout(Stdio::null()).stderr(Stdio::null());
            server.process = Some(command.spawn()?);
            server.is_frozen = false;
            let began = Instant::now();
            while TcpStream::connect(&server.address).await.is_err() {
                if began.elapsed() > START_TIMEOUT {
                    return Err("nats-server does not start".into());
                }
                sleep(Duration::from_millis(20)).await;
            }
        }
        Ok(())
    }

    /// Kills a server without a chance to say so.
    pub(crate) fn kill(&mut self, at: usize) -> Outcome<()> {
        if let Some(mut process) = self.servers[at].process.take() {
            process.kill()?;
            process.wait()?;
        }
        self.servers[at].is_frozen = false;
        Ok(())
    }

    /// Freezes a server, or lets it continue.
    pub(crate) fn set_frozen(&mut self, at: usize, is_frozen: bool) -> Outcome<()> {
        let server = &mut self.servers[at];
        if let Some(process) = server.process.as_ref().filter(|_| server.is_frozen != is_frozen) {
            let signal = if is_frozen { Signal::STOP } else { Signal::CONT };
            kill_process(Pid::from_child(process), signal)?;
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

    /// Ends all faults.
    pub(crate) async fn repair(&mut self) -> Outcome<()> {
        for at in 0..self.servers.len() {
            self.set_frozen(at, false)?;
            self.revive(at).await?;
            self.set_cut(at, false);
        }
        Ok(())
    }
}

impl Drop for BrokerCluster {
    fn drop(&mut self) {
        for at in 0..self.servers.len() {
            // A server that cannot be killed has exited.
            let _ = self.kill(at);
        }
    }
}

/// Returns an address of this machine that no client connects from, so that the port of a server that
/// has ended stays free for its next start.
pub(crate) fn loopback_host(group: u8, number: usize) -> IpAddr {
    let [.., high, low] = number.to_be_bytes();
    IpAddr::from([127, group, high, low])
}

/// Returns an address whose port was free a moment ago.
async fn free_address(host: IpAddr) -> Outcome<String> {
    Ok(TcpListener::bind((host, 0)).await?.local_addr()?.to_string())
}
