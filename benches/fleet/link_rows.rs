//! Compares an executor behind a NATS server with a direct connection over TLS: the real daemon, the
//! real link and one server on this machine. Both sides alternate, A B A B.

use crate::nats_cluster::{NatsCluster, find_nats_server};
use crate::process_memory::resident_kib;
use crate::storm::executors::{ExecutorPki, ROOT, environment_id, spiffe_id};
use crate::storm::{ChildGuard, select_root, start_brokers};
use crate::trees::{Plan, create_tree};
use crate::{Outcome, print_progress};
use caproot_client::{
    Client, ClientCredentials, DialLimits, ExecutorConfig, Fleet, Mirror, NatsDialer,
};
use caproot_core::proto::caproot::v1::{ListSkillsRequest, ReadResourceRequest};
use caproot_link::BrokerConfig;
use futures_util::future::join_all;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_mins(2);
/// Plugin set of the executor.
const PLAN: Plan = Plan {
    skills: 200,
    bytes: 6 << 10,
    roots: 1,
    seed: 1,
};
/// Alternations of the calls and lists, and how many are in each.
const ROUNDS: usize = 10;
const CALLS: usize = 200;
const LISTS: usize = 30;
/// Mirrors, each of an orchestrator of its own.
const MIRRORS: usize = 300;
/// Alternations of the changes, and how many are in each.
const CHANGE_ROUNDS: usize = 2;
const CHANGES: usize = 15;
/// File that is read for the throughput.
const FILE_BYTES: usize = 64 << 20;
const READS: usize = 5;

/// Executor that is reached in two ways.
struct ComparedExecutor {
    dir: PathBuf,
    daemon_address: String,
    cluster: NatsCluster,
    link: ChildGuard,
    _daemon: ChildGuard,
    changes: usize,
}

/// Way to the executor.
#[derive(Debug, Clone, Copy)]
enum RouteKind {
    Direct,
    Tunnel,
}

/// Times or rates of both ways.
#[derive(Default)]
struct RouteSamples {
    direct: Vec<f64>,
    tunnel: Vec<f64>,
}

/// Runs the comparison, and prints its table.
pub(crate) async fn run() -> Outcome<()> {
    let Some(program) = find_nats_server() else {
        writeln!(
            io::stdout(),
            "SKIPPED: nats-server is not installed, so nothing was compared"
        )?;
        return Ok(());
    };
    let scratch = tempfile::tempdir()?;
    let mut executor = ComparedExecutor::start(program, scratch.path()).await?;
    let fleets = [
        executor.fleet(RouteKind::Direct)?,
        executor.fleet(RouteKind::Tunnel)?,
    ];
    let id = environment_id(0);
    let clients = [fleets[0].client(&id).await?, fleets[1].client(&id).await?];
    let mut out = io::stdout();
    writeln!(
        out,
        "| measured | direct TLS p50, p99 | tunnel p50, p99 | ratio of p50, p99 |\n| --- | --- | --- | --- |"
    )?;
    print_progress(format_args!("calls"));
    let calls = alternate(&clients, ROUNDS, CALLS, |mut client| async move {
        client.get_executor().await?;
        Ok(())
    });
    calls.await?.print("a call", "ms")?;
    print_progress(format_args!("lists"));
    let lists = alternate(&clients, ROUNDS, LISTS, |mut client| async move {
        let selected_capability_roots = select_root(&environment_id(0)).roots;
        let request = ListSkillsRequest {
            selected_capability_roots,
            ..ListSkillsRequest::default()
        };
        client.list_skills(&request).await?;
        Ok(())
    });
    lists.await?.print("a list of 200 skills", "ms")?;
    print_progress(format_args!("reads"));
    let request = executor.file_request(clients[0].clone()).await?;
    let reads = alternate(&clients, READS, 1, |mut client| {
        let request = request.clone();
        async move {
            let mut bytes = 0;
            let mut count = |part: &[u8]| {
                bytes += part.len();
                Ok(())
            };
            client.read_resource(&request, 0, &mut count).await?;
            if bytes == FILE_BYTES {
                Ok(())
            } else {
                Err("a short file".into())
            }
        }
    });
    reads.await?.print(
        "a file of 64 MiB in pages of 1 MiB, one after another",
        "ms",
    )?;
    drop((clients, fleets));
    executor.compare_memory(&mut out).await?;
    executor
        .compare_changes()
        .await?
        .print("a change to the last of 300 mirrors", "ms")
}

/// Times an operation on both clients in turn, after one that is not timed.
async fn alternate<F: Future<Output = Outcome<()>>>(
    clients: &[Client; 2],
    rounds: usize,
    count: usize,
    run: impl Fn(Client) -> F,
) -> Outcome<RouteSamples> {
    let mut samples = RouteSamples::default();
    for client in clients {
        run(client.clone()).await?;
    }
    for _ in 0..rounds {
        let RouteSamples { direct, tunnel } = &mut samples;
        for (client, times) in clients.iter().zip([direct, tunnel]) {
            for _ in 0..count {
                let began = Instant::now();
                run(client.clone()).await?;
                times.push(began.elapsed().as_secs_f64() * 1e3);
            }
        }
    }
    Ok(samples)
}

impl RouteSamples {
    fn print(mut self, what: &str, unit: &str) -> Outcome<()> {
        let quantiles = |times: &mut Vec<f64>| {
            times.sort_by(f64::total_cmp);
            [50, 99].map(|share| times[(times.len() * share / 100).min(times.len() - 1)])
        };
        let (direct, tunnel) = (quantiles(&mut self.direct), quantiles(&mut self.tunnel));
        writeln!(
            io::stdout(),
            "| {what} | {:.2} {unit}, {:.2} {unit} | {:.2} {unit}, {:.2} {unit} | {:.2}, {:.2} |",
            direct[0],
            direct[1],
            tunnel[0],
            tunnel[1],
            tunnel[0] / direct[0],
            tunnel[1] / direct[1],
        )?;
        Ok(())
    }
}

impl ComparedExecutor {
    async fn start(program: PathBuf, dir: &Path) -> Outcome<Self> {
        let tree = dir.join("tree");
        create_tree(&tree, &PLAN)?;
        fs::write(
            PLAN.skill_dir(&tree, 0).join("data.bin"),
            vec![0xff; FILE_BYTES],
        )?;
        let cluster = start_brokers(program, 1, dir).await?;
        let (certificate, key) = ExecutorPki::new(dir)?.issue(0)?;
        fs::write(dir.join("one.pem"), certificate)?;
        fs::write(dir.join("one.key"), key)?;
        let id = environment_id(0);
        let limit = 2 * MIRRORS + 64;
        let config = format!(
            "listen: ['tcp:127.0.0.1:0']\nenvironment_ids: [{id}]\nlog: {{filter: 'off'}}\n\
             roots: [{{id: {ROOT}, path: '{}'}}]\ntls: {{certificate: one.pem, key: one.key}}\n\
             limits: {{max_connections: {limit}, max_connections_per_caller: {limit}, max_streams: \
             {limit}, max_streams_per_caller: {limit}}}\n",
            PLAN.root_dirs(&tree)[0].display(),
        );
        fs::write(dir.join("caproot.yaml"), config)?;
        let (daemon, listening) = start_program("serve", &dir.join("caproot.yaml"))?;
        let address = listening
            .strip_prefix("listening tcp:")
            .ok_or("no TCP address")?
            .to_owned();
        let config = format!(
            "environment_ids: [{id}]\ndaemon: tls:{address}\nnats: {{servers: ['{}']}}\n\
             max_dials_per_second: 1000\n",
            cluster.urls()[0]
        );
        fs::write(dir.join("link.yaml"), config)?;
        let (link, _) = start_program("link", &dir.join("link.yaml"))?;
        Ok(Self {
            dir: dir.to_owned(),
            daemon_address: address,
            cluster,
            link,
            _daemon: daemon,
            changes: 0,
        })
    }

    /// Returns a fleet with a connection of its own to the broker.
    fn fleet(&self, kind: RouteKind) -> Outcome<Fleet> {
        let credentials = ClientCredentials {
            ca: Some(self.dir.join("ca.pem")),
            spiffe_id: Some(spiffe_id(0).parse()?),
            ..ClientCredentials::default()
        };
        let endpoint = format!("tls:{}", self.daemon_address).parse()?;
        let executor = ExecutorConfig {
            credentials,
            timeout: TIMEOUT,
            ..ExecutorConfig::new(endpoint)
        };
        let limits = DialLimits {
            dials_at_once: 64,
            dials_per_second: 1_000_000,
        };
        let fleet = Fleet::from_executors([(environment_id(0), executor)]).with_dial_limits(limits);
        Ok(match kind {
            RouteKind::Direct => fleet,
            RouteKind::Tunnel => {
                fleet.with_dialer(NatsDialer::new(BrokerConfig::new(self.cluster.urls())))
            }
        })
    }

    /// Returns a request for all bytes of the large file.
    async fn file_request(&self, mut client: Client) -> Outcome<ReadResourceRequest> {
        let request = ListSkillsRequest {
            selected_capability_roots: select_root(&environment_id(0)).roots,
            ..ListSkillsRequest::default()
        };
        let list = client.list_skills(&request).await?;
        let skill = list.skills.iter().find(|skill| skill.name == "skill-00000");
        let package = skill.ok_or("no skill")?.package.clone();
        Ok(ReadResourceRequest {
            root: select_root(&environment_id(0)).roots.pop(),
            resource: format!("{package}/data.bin"),
            package,
            max_bytes: 1 << 20,
            ..ReadResourceRequest::default()
        })
    }

    async fn start_mirrors(&self, kind: RouteKind) -> Outcome<Vec<(Fleet, Mirror)>> {
        let mut mirrors = Vec::new();
        for _ in 0..MIRRORS {
            let fleet = self.fleet(kind)?;
            let mirror = fleet.mirror(&environment_id(0), select_root(&environment_id(0)));
            mirrors.push((fleet, mirror));
        }
        let live = join_all(
            mirrors
                .iter()
                .map(|(_, mirror)| mirror.wait_until_live(TIMEOUT)),
        );
        if live.await.contains(&false) {
            return Err("a mirror is not live".into());
        }
        Ok(mirrors)
    }

    /// Compares the memory of orchestrators with a mirror each, and of the link.
    async fn compare_memory(&self, out: &mut impl io::Write) -> Outcome<()> {
        print_progress(format_args!("memory"));
        let link = self.link.0.id().to_string();
        let count = 300.0;
        let (start, link_start) = (resident_kib("self")?, resident_kib(&link)?);
        let direct = self.start_mirrors(RouteKind::Direct).await?;
        let middle = resident_kib("self")?;
        let tunnels = self.start_mirrors(RouteKind::Tunnel).await?;
        let (end, link_end) = (resident_kib("self")?, resident_kib(&link)?);
        let (direct_kib, tunnel_kib) = ((middle - start) / count, (end - middle) / count);
        writeln!(
            out,
            "| memory of an orchestrator with a mirror | {direct_kib:.0} KiB | {tunnel_kib:.0} KiB | \
             {:.2} |\n| memory of the link a tunnel | | {:.0} KiB | |",
            tunnel_kib / direct_kib,
            (link_end - link_start) / count
        )?;
        drop((direct, tunnels));
        Ok(())
    }

    /// Times changes from the write of the file until the last mirror has them.
    async fn compare_changes(&mut self) -> Outcome<RouteSamples> {
        let mut samples = RouteSamples::default();
        for _ in 0..CHANGE_ROUNDS {
            for kind in [RouteKind::Direct, RouteKind::Tunnel] {
                print_progress(format_args!("changes, {kind:?}"));
                let mirrors = self.start_mirrors(kind).await?;
                // The first change is not timed.
                for number in 0..=CHANGES {
                    let time = self.time_change(&mirrors).await?;
                    let times = match kind {
                        RouteKind::Direct => &mut samples.direct,
                        RouteKind::Tunnel => &mut samples.tunnel,
                    };
                    times.extend((number > 0).then_some(time));
                }
            }
        }
        Ok(samples)
    }

    async fn time_change(&mut self, mirrors: &[(Fleet, Mirror)]) -> Outcome<f64> {
        self.changes += 1;
        let text = PLAN.skill_md(0, Some(self.changes));
        let expected = format!("changed {:08} times", self.changes);
        let file = PLAN.skill_dir(&self.dir.join("tree"), 0).join("SKILL.md");
        let began = Instant::now();
        fs::write(file, text)?;
        let waits = mirrors.iter().map(|(_, mirror)| {
            let (mut mirror, expected) = (mirror.clone(), &expected);
            async move {
                let has_change = |mirror: &Mirror| {
                    let snapshot = mirror.snapshot();
                    let mut skills = snapshot.catalog.skills();
                    skills.any(|skill| skill.description.contains(expected))
                };
                while !has_change(&mirror) {
                    mirror.changed().await;
                }
            }
        });
        tokio::time::timeout(TIMEOUT, join_all(waits)).await?;
        Ok(began.elapsed().as_secs_f64() * 1e3)
    }
}

/// Starts a command of the binary with a config file. Returns the process and its first line.
fn start_program(command: &str, config: &Path) -> Outcome<(ChildGuard, String)> {
    let mut program = Command::new(env!("CARGO_BIN_EXE_caproot"));
    program
        .args([command, "--config"])
        .arg(config)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut child = program.spawn()?;
    let stdout = child.stdout.take().ok_or("stdout is piped")?;
    let guard = ChildGuard(child);
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    Ok((guard, line.trim().to_owned()))
}
