//! Measures a fleet of many executors with one plugin set: bytes on the wire, memory, and the time
//! until all mirrors are live. `docs/design/fleet.md` explains the rows.
//!
//! One daemon has the environments of all executors, and each executor has a connection of its own
//! through a proxy that counts bytes. Each phase is a process of its own, so that its memory is
//! compared with that of the other phases.

use crate::options::Options;
use crate::storm::{ChildGuard, select_root};
use crate::trees::{Plan, create_tree};
use crate::{Outcome, print_progress};
use caproot_client::{
    Client, ClientCredentials, DaemonEndpoint, DialLimits, ExecutorConfig, Fleet, Mirror,
    WatchMessage,
};
use caproot_core::proto::caproot::v1::watch_skills_response::Event;
use caproot_core::proto::caproot::v1::{ListSkillsRequest, WatchSkillsRequest};
use caproot_session::{Session, SessionOptions};
use clap::ValueEnum;
use futures_util::future::{join_all, try_join_all};
use std::fmt::Write as _;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs};
use tokio::io::copy;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::io::InspectReader;

const TIMEOUT: Duration = Duration::from_mins(2);
/// Skills of the plugin set.
const SKILLS: usize = 200;
/// Maximum bytes on the wire an executor, in addition to one catalog.
const MAX_WIRE_BYTES: f64 = 1_024.0;
/// Maximum memory an executor in KiB, in addition to one catalog and the connections.
const MAX_MIRROR_KIB: f64 = 16.0;

/// Process of the orchestrator.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Phase {
    /// One mirror without a fleet.
    One,
    /// Clients without mirrors, each with one call.
    Connections,
    /// Clients without mirrors, each with the calls and the stream of a mirror, but without roots.
    Streams,
    /// A mirror of each executor.
    Mirrors,
    /// A session on each executor, which is saved.
    Save,
    /// Each saved session is restored.
    Restore,
}

/// Figures of one phase.
#[derive(Debug, Clone, Copy)]
struct PhaseFigures {
    seconds: f64,
    /// Allocated memory before and after.
    before_kib: f64,
    after_kib: f64,
    /// Bytes in both directions, without headers of TCP.
    wire_bytes: f64,
}

/// Measures all phases, and prints the table.
pub(crate) async fn measure(options: &Options) -> Outcome<()> {
    let scratch = tempfile::tempdir()?;
    let plan = Plan {
        skills: SKILLS,
        bytes: 6 << 10,
        roots: 1,
        seed: 1,
    };
    create_tree(scratch.path(), &plan)?;
    let (_daemon, address) = start_daemon(scratch.path(), &plan, options.executors)?;
    let wire_bytes = Arc::<AtomicU64>::default();
    let proxy = start_proxy(address, wire_bytes.clone()).await?;
    let mut figures = Vec::new();
    for phase in Phase::value_variants() {
        print_progress(format_args!("{phase:?}"));
        let before = wire_bytes.load(Ordering::Relaxed);
        let found = run_child(options, &proxy, *phase, scratch.path()).await?;
        let wire_bytes = as_float(wire_bytes.load(Ordering::Relaxed) - before);
        figures.push(PhaseFigures {
            wire_bytes,
            ..found
        });
    }
    print_table(options.executors, &figures)
}

/// Starts one daemon with the environments of all executors.
fn start_daemon(scratch: &Path, plan: &Plan, executors: usize) -> Outcome<(ChildGuard, String)> {
    let ids: Vec<_> = (0..executors).map(environment_id).collect();
    let root = &plan.root_dirs(scratch)[0];
    let limit = 2 * executors + 64;
    let mut config = "listen: ['tcp:127.0.0.1:0']\nlog: {filter: 'off'}\n".to_owned();
    writeln!(config, "roots: [{{id: r, path: '{}'}}]", root.display())?;
    writeln!(config, "environment_ids: {ids:?}\nlimits:")?;
    for name in [
        "connections",
        "connections_per_caller",
        "streams",
        "streams_per_caller",
    ] {
        writeln!(config, "  max_{name}: {limit}")?;
    }
    let path = scratch.join("caproot.yaml");
    fs::write(&path, config)?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_caproot"));
    let mut child = command
        .args(["serve", "--config"])
        .arg(path)
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().ok_or("stdout is piped")?;
    let daemon = ChildGuard(child);
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    let address = line
        .trim()
        .strip_prefix("listening tcp:")
        .ok_or("no TCP address")?;
    Ok((daemon, address.to_owned()))
}

/// Starts a proxy that counts the bytes of both directions. Returns its address.
async fn start_proxy(server: String, count: Arc<AtomicU64>) -> Outcome<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let (server, count) = (server.clone(), count.clone());
            tokio::spawn(async move {
                let mut server = TcpStream::connect(server).await?;
                let (from_client, mut to_client) = client.split();
                let (from_server, mut to_server) = server.split();
                let counted = |bytes: &[u8]| {
                    count.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                };
                let mut from_client = InspectReader::new(from_client, counted);
                let mut from_server = InspectReader::new(from_server, counted);
                tokio::select! {
                    copied = copy(&mut from_client, &mut to_server) => copied,
                    copied = copy(&mut from_server, &mut to_client) => copied,
                }
            });
        }
    });
    Ok(address)
}

/// Runs a phase in another process.
async fn run_child(
    options: &Options,
    address: &str,
    phase: Phase,
    saved: &Path,
) -> Outcome<PhaseFigures> {
    let name = phase.to_possible_value().ok_or("a phase without a name")?;
    let mut command = tokio::process::Command::new(env::current_exe()?);
    command.args([
        "--executors",
        &options.executors.to_string(),
        "--address",
        address,
    ]);
    command
        .args(["--phase", name.get_name(), "--saved"])
        .arg(saved)
        .stderr(Stdio::inherit());
    let output = command.output().await?;
    let text = String::from_utf8(output.stdout)?;
    let numbers: Vec<f64> = text
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    let [seconds, before_kib, after_kib] = numbers[..] else {
        return Err(format!("the phase {phase:?} failed: {}", output.status).into());
    };
    Ok(PhaseFigures {
        seconds,
        before_kib,
        after_kib,
        wire_bytes: 0.0,
    })
}

/// Runs one phase in this process.
pub(crate) async fn run_phase(options: &Options, address: &str, phase: Phase) -> Outcome<()> {
    let ids: Vec<_> = (0..options.executors).map(environment_id).collect();
    let endpoint: DaemonEndpoint = format!("tcp:{address}").parse()?;
    let executor = ExecutorConfig {
        timeout: TIMEOUT,
        ..ExecutorConfig::new(endpoint.clone())
    };
    let executors = ids.iter().map(|id| (id.clone(), executor.clone()));
    // The limits of dials would be the only figure.
    let limits = DialLimits {
        dials_at_once: 64,
        dials_per_second: 1_000_000,
    };
    let fleet = Fleet::from_executors(executors).with_dial_limits(limits);
    let sessions = SessionOptions {
        start_timeout: TIMEOUT,
        ..SessionOptions::default()
    };
    let saved = |id: &str| options.saved.join(format!("{id}.json"));
    let (before_kib, began) = (allocated_kib(), Instant::now());
    let end = |ended: Instant| -> Outcome<()> {
        let seconds = ended.duration_since(began).as_secs_f64();
        writeln!(io::stdout(), "{seconds} {before_kib} {}", allocated_kib())?;
        Ok(())
    };
    match phase {
        Phase::One => {
            let credentials = ClientCredentials::default();
            let client = Client::connect(&endpoint, &credentials, TIMEOUT).await?;
            let mirror = Mirror::start(&client, select_root(&ids[0]));
            wait_until_live(std::slice::from_ref(&mirror)).await?;
            end(Instant::now())
        }
        Phase::Connections => {
            let connect = ids.iter().map(|id| async {
                let mut client = fleet.client(id).await?;
                client.get_executor().await?;
                Outcome::Ok(client)
            });
            let clients = try_join_all(connect).await?;
            end(Instant::now())?;
            drop(clients);
            Ok(())
        }
        Phase::Streams => {
            let open = ids.iter().map(|id| async {
                let mut client = fleet.client(id).await?;
                client
                    .list_root_states(&ListSkillsRequest::default())
                    .await?;
                let mut watch = client.watch_skills(WatchSkillsRequest::default());
                loop {
                    if let WatchMessage::Event(event) = watch.next().await?
                        && matches!(event.event, Some(Event::Synced(_)))
                    {
                        return Outcome::Ok(watch);
                    }
                }
            });
            let streams = try_join_all(open).await?;
            end(Instant::now())?;
            drop(streams);
            Ok(())
        }
        Phase::Mirrors => {
            let mirrors: Vec<_> = ids
                .iter()
                .map(|id| fleet.mirror(id, select_root(id)))
                .collect();
            wait_until_live(&mirrors).await?;
            end(Instant::now())
        }
        Phase::Save => {
            let start = ids.iter().map(|id| async {
                let session = Session::start(&fleet, select_root(id).roots, &sessions).await?;
                fs::write(saved(id), session.save()?)?;
                Outcome::Ok(session)
            });
            let started = try_join_all(start).await?;
            end(Instant::now())?;
            drop(started);
            Ok(())
        }
        Phase::Restore => {
            let restore = ids.iter().map(|id| async {
                let text = fs::read_to_string(saved(id))?;
                Outcome::Ok(Session::restore(&fleet, &text, &sessions).await?)
            });
            let restored = try_join_all(restore).await?;
            if restored
                .iter()
                .any(|restored| !restored.warnings.is_empty())
            {
                return Err("a session was not restored".into());
            }
            end(Instant::now())
        }
    }
}

async fn wait_until_live(mirrors: &[Mirror]) -> Outcome<()> {
    let live = join_all(mirrors.iter().map(|mirror| mirror.wait_until_live(TIMEOUT))).await;
    if live.contains(&false) {
        Err("a mirror is not live".into())
    } else {
        Ok(())
    }
}

fn environment_id(n: usize) -> String {
    format!("executor-{n:05}")
}

/// Allocated memory of this process. The resident memory also has the peaks of the start, which the
/// allocator keeps.
fn allocated_kib() -> f64 {
    #[expect(
        unsafe_code,
        reason = "the function of the C library only reads counters"
    )]
    // SAFETY: mallinfo2(3) has no arguments, and the result is a plain value.
    let counters = unsafe { libc::mallinfo2() };
    as_float((counters.uordblks + counters.hblkhd) as u64) / 1_024.0
}

#[expect(clippy::cast_precision_loss, reason = "figures are small")]
pub(crate) fn as_float(count: u64) -> f64 {
    count as f64
}

fn print_table(executors: usize, figures: &[PhaseFigures]) -> Outcome<()> {
    let [one, connections, streams, mirrors, _, restored] = figures else {
        return Err("a phase is missing".into());
    };
    let count = as_float(executors as u64);
    let memory = |phase: &PhaseFigures| phase.after_kib - phase.before_kib;
    let each_byte = |phase: &PhaseFigures| (phase.wire_bytes - 1.05 * one.wire_bytes) / count;
    let mirror_kib = (memory(mirrors) - memory(one) - memory(streams)) / count;
    let kib = one.wire_bytes / 1_024.0;
    let is_met = |value: f64, most: f64| if value <= most { "met" } else { "not met" };
    let rows = [
        (
            "one catalog on the wire".to_owned(),
            format!("{kib:.0} KiB"),
            String::new(),
        ),
        (
            format!("{executors} mirrors on the wire, without 1.05 catalogs"),
            format!("{:.0} bytes an executor", each_byte(mirrors)),
            format!(
                "at most {MAX_WIRE_BYTES}: {}",
                is_met(each_byte(mirrors), MAX_WIRE_BYTES)
            ),
        ),
        (
            "memory of a connection after one call".to_owned(),
            format!("{:.1} KiB an executor", memory(connections) / count),
            String::new(),
        ),
        (
            "memory of a connection with a stream that has no roots".to_owned(),
            format!("{:.1} KiB an executor", memory(streams) / count),
            String::new(),
        ),
        (
            "memory of a mirror, in addition to such a connection and one catalog".to_owned(),
            format!("{mirror_kib:.1} KiB an executor"),
            format!(
                "at most {MAX_MIRROR_KIB}: {}",
                is_met(mirror_kib, MAX_MIRROR_KIB)
            ),
        ),
        (
            format!("time until {executors} mirrors are live"),
            format!("{:.2} s", mirrors.seconds),
            String::new(),
        ),
        (
            format!("restart of the orchestrator: time until {executors} sessions are restored"),
            format!("{:.2} s", restored.seconds),
            String::new(),
        ),
        (
            "restored sessions on the wire, without 1.05 catalogs".to_owned(),
            format!("{:.0} bytes an executor", each_byte(restored)),
            format!(
                "at most {MAX_WIRE_BYTES}: {}",
                is_met(each_byte(restored), MAX_WIRE_BYTES)
            ),
        ),
    ];
    let mut out = io::stdout();
    writeln!(out, "| measured | value | target |\n| --- | --- | --- |")?;
    for (what, value, target) in rows {
        writeln!(out, "| {what} | {value} | {target} |")?;
    }
    Ok(())
}
