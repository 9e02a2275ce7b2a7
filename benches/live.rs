//! What a change costs while the daemon watches: the real binary over a real socket.
//!
//! `cargo bench --bench live` prints the time from rename(2) to the client's event beside raw inotify
//! plus the quiet that the daemon waits for; processor time of the daemon a change; one change to a
//! thousand streams; memory of the daemon a stream, read and unread.

use std::collections::HashMap;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use caproot::keeper::Timing;
use caproot::proto::caproot::v1 as pb;
use inotify::{Inotify, WatchMask};
use pb::capability_service_client::CapabilityServiceClient;
use pb::watch_skills_response::Event;
use tokio::sync::mpsc;
use tonic::Streaming;
use tonic::transport::Channel;

const CHANGES: usize = 200;
const SKILL_BYTES: usize = 6 << 10;
const STREAMS: usize = 1_000;
const STREAMS_A_CONNECTION: usize = 100;
const UNREAD: usize = 100;
/// Between two changes, so that each settles alone.
const PAUSE: Duration = Duration::from_millis(30);
/// Longer than a reader may stop in the middle of a state.
const STUCK: Duration = Duration::from_secs(12);

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
type Events = Streaming<pb::WatchSkillsResponse>;

#[tokio::main]
async fn main() -> Outcome<()> {
    let mut out = io::stdout();
    let quiet = ms(Timing::default().settle);
    writeln!(out, "time from rename(2), {CHANGES} changes, ms; raw is inotify plus {quiet} quiet")?;
    let head = ["skills", "raw p50", "raw p99", "event p50", "event p99", "cpu us", "idle us/s"];
    writeln!(out, "{}", row(head.map(str::to_owned)))?;
    let mut cpu = Vec::new();
    for skills in [100, 10_000] {
        let (line, spent) = one_reader(skills).await?;
        writeln!(out, "{line}")?;
        cpu.push(spent);
    }
    let ratio = cpu[1] / cpu[0];
    writeln!(out, "cpu a change at 10,000 skills is {ratio:.2} times that at 100\n")?;
    many_readers(&mut out).await?;
    unread(&mut out).await?;
    Ok(())
}

/// Latency and processor time with one stream, as a row, and the microseconds a change.
async fn one_reader(skills: usize) -> Outcome<(String, f64)> {
    let tree = Tree::new(skills)?;
    let daemon = Daemon::start(&tree.root())?;
    let mut events = open(&mut daemon.client().await?).await?;
    synced(&mut events).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;

    let began = Instant::now();
    let mut spent = daemon.cpu(HashMap::new())?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = total(&spent);
    spent = daemon.cpu(spent)?;
    let idle = f64_of(total(&spent) - before) / began.elapsed().as_secs_f64() / 1e3;

    let mut raw = Inotify::init()?;
    let dir = tree.skill(0);
    raw.watches().add(dir, WatchMask::MOVED_TO)?;
    let (tell, mut told) = mpsc::channel(CHANGES);
    std::thread::spawn(move || {
        let mut buffer = [0; 4_096];
        while raw.read_events_blocking(&mut buffer).is_ok_and(|events| events.count() > 0) {
            if tell.blocking_send(Instant::now()).is_err() {
                return;
            }
        }
    });
    let (mut raws, mut events_took) = (Vec::new(), Vec::new());
    let before = total(&spent);
    for n in 0..CHANGES {
        let at = tree.change(0, n)?;
        let heard = delta(&mut events).await?;
        let raw = told.recv().await.ok_or("the bare reader lives")?;
        raws.push(raw.duration_since(at) + Timing::default().settle);
        events_took.push(heard.duration_since(at));
        tokio::time::sleep(PAUSE).await;
        if n % 10 == 0 {
            spent = daemon.cpu(spent)?;
        }
    }
    spent = daemon.cpu(spent)?;
    let each = f64_of(total(&spent) - before) / f64_of(CHANGES as u64) / 1e3;
    let line = row([
        skills.to_string(),
        part(&mut raws, 50),
        part(&mut raws, 99),
        part(&mut events_took, 50),
        part(&mut events_took, 99),
        format!("{each:.0}"),
        format!("{idle:.0}"),
    ]);
    Ok((line, each))
}

/// One change to many streams, and what each of them takes.
async fn many_readers(out: &mut impl io::Write) -> Outcome<()> {
    let tree = Tree::new(100)?;
    let daemon = Daemon::start(&tree.root())?;
    let (tell, mut told) = mpsc::channel(STREAMS);
    let reader = |mut events: Events| {
        let tell = tell.clone();
        tokio::spawn(async move {
            while let Ok(at) = delta(&mut events).await {
                if tell.send(at).await.is_err() {
                    return;
                }
            }
        })
    };
    let mut first = open(&mut daemon.client().await?).await?;
    synced(&mut first).await?;
    let mut readers = vec![reader(first)];
    let mut one = latest(&tree, &mut told, 1).await?;
    let before = daemon.resident()?;
    while readers.len() < STREAMS {
        let mut client = daemon.client().await?;
        for _ in 0..STREAMS_A_CONNECTION.min(STREAMS - readers.len()) {
            let mut events = open(&mut client).await?;
            synced(&mut events).await?;
            readers.push(reader(events));
        }
    }
    let opened = daemon.resident()?;
    let mut all = latest(&tree, &mut told, STREAMS).await?;
    let after = daemon.resident()?;
    writeln!(out, "one change to its last reader, 20 changes, ms")?;
    writeln!(out, "{}", row(["streams", "p50", "p99", "KiB each", "after"].map(str::to_owned)))?;
    let each = |now: u64| f64_of(now.saturating_sub(before)) / f64_of(STREAMS as u64 - 1);
    let lines = [
        ("1".to_owned(), &mut one, String::new(), String::new()),
        (
            STREAMS.to_string(),
            &mut all,
            format!("{:.1}", each(opened)),
            format!("{:.1}", each(after)),
        ),
    ];
    for (streams, took, opened, after) in lines {
        writeln!(out, "{}", row([streams, part(took, 50), part(took, 99), opened, after]))?;
    }
    readers.iter().for_each(tokio::task::JoinHandle::abort);
    writeln!(out)?;
    Ok(())
}

/// From a change to the last of so many readers, 20 times.
async fn latest(
    tree: &Tree,
    told: &mut mpsc::Receiver<Instant>,
    readers: usize,
) -> Outcome<Vec<Duration>> {
    let mut took = Vec::new();
    for n in 0..20 {
        let began = tree.change(0, n + 1_000 * readers)?;
        let mut last = began;
        for _ in 0..readers {
            last = last.max(told.recv().await.ok_or("readers live")?);
        }
        took.push(last.duration_since(began));
        tokio::time::sleep(PAUSE).await;
    }
    Ok(took)
}

/// What streams that nobody reads make the daemon hold while skills change.
async fn unread(out: &mut impl io::Write) -> Outcome<()> {
    let tree = Tree::new(10_000)?;
    let daemon = Daemon::start(&tree.root())?;
    let mut read = open(&mut daemon.client().await?).await?;
    synced(&mut read).await?;
    let churn = async |from: usize, read: &mut Events| -> Outcome<()> {
        for n in from..from + CHANGES {
            tree.change(n % 1_000, n)?;
            delta(read).await?;
        }
        Ok(())
    };
    // What churn alone takes.
    churn(0, &mut read).await?;
    churn(1_000, &mut read).await?;
    let none = daemon.resident()?;
    let mut held = Vec::new();
    for _ in 0..UNREAD {
        let mut client = daemon.client().await?;
        held.push((open(&mut client).await?, client));
    }
    tokio::time::sleep(STUCK).await;
    let opened = daemon.resident()?;
    writeln!(out, "memory of {UNREAD} unread streams of 10,000 skills under churn, KiB each")?;
    let mut heads = vec!["opened".to_owned()];
    let mut cells = vec![opened];
    for round in 1..=3 {
        churn(round * 10_000, &mut read).await?;
        heads.push(format!("+{} changes", round * CHANGES));
        cells.push(daemon.resident()?);
    }
    let each = |now: u64| f64_of(now.saturating_sub(none)) / f64_of(UNREAD as u64);
    writeln!(out, "{}", row(heads))?;
    writeln!(out, "{}", row(cells.into_iter().map(|now| format!("{:.1}", each(now)))))?;
    writeln!(out, "without them, after as much churn: {none} KiB in all")?;
    Ok(())
}

async fn open(client: &mut CapabilityServiceClient<Channel>) -> Outcome<Events> {
    let roots = client.list_roots(pb::ListRootsRequest {}).await?.into_inner().roots;
    let request = pb::WatchSkillsRequest {
        selected_capability_roots: roots
            .into_iter()
            .filter_map(|root| root.selected_capability_root)
            .collect(),
        ..pb::WatchSkillsRequest::default()
    };
    Ok(client.watch_skills(request).await?.into_inner())
}

/// Reads on to the end of a state.
async fn synced(events: &mut Events) -> Outcome<()> {
    loop {
        let event = events.message().await?.ok_or("the stream goes on")?;
        if matches!(event.event, Some(Event::Synced(_))) {
            return Ok(());
        }
    }
}

/// When a change came; reads on to the end of its state.
async fn delta(events: &mut Events) -> Outcome<Instant> {
    loop {
        let event = events.message().await?.ok_or("the stream goes on")?;
        if matches!(event.event, Some(Event::Delta(_))) {
            let at = Instant::now();
            synced(events).await?;
            return Ok(at);
        }
    }
}

/// A root, and beside it a place to make what is renamed into it.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new(skills: usize) -> io::Result<Self> {
        let tree = Self(tempfile::tempdir()?);
        for n in 0..skills {
            fs::create_dir_all(tree.skill(n))?;
            fs::write(tree.skill(n).join("SKILL.md"), text(n, "as generated"))?;
        }
        Ok(tree)
    }

    fn root(&self) -> PathBuf {
        self.0.path().join("root")
    }

    fn skill(&self, n: usize) -> PathBuf {
        self.root().join(format!("group-{:03}/skill-{n:05}", n / 100))
    }

    /// Renames a changed SKILL.md over a skill's; gives the time just before.
    fn change(&self, skill: usize, n: usize) -> io::Result<Instant> {
        let next = self.0.path().join("next");
        fs::write(&next, text(skill, &format!("changed {n} times")))?;
        let now = Instant::now();
        fs::rename(next, self.skill(skill).join("SKILL.md"))?;
        Ok(now)
    }
}

fn text(n: usize, says: &str) -> String {
    let mut text = format!(
        "---\nname: skill-{n:05}\ndescription: Generated skill number {n}, {says}, which explains \
         how to do one thing well and when to reach for it.\nlicense: Apache-2.0\n---\n\n"
    );
    while text.len() < SKILL_BYTES {
        text.push_str("Read the file first, change one thing, and run the checks again.\n");
    }
    text.truncate(SKILL_BYTES);
    text
}

/// The binary, serving one root.
struct Daemon {
    child: Child,
    address: String,
}

impl Daemon {
    fn start(tree: &Path) -> Outcome<Self> {
        let mut root = std::ffi::OsString::from("tree=");
        root.push(tree);
        let mut child = Command::new(env!("CARGO_BIN_EXE_caproot"))
            .args(["serve", "--log", "off", "--listen", "tcp:127.0.0.1:0", "--root"])
            .arg(root)
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let stdout = child.stdout.take();
        let mut daemon = Self { child, address: String::new() };
        BufReader::new(stdout.ok_or("stdout is piped")?).read_line(&mut line)?;
        let address = line.trim().strip_prefix("listening tcp:").ok_or("the daemon listens")?;
        daemon.address = format!("http://{address}");
        Ok(daemon)
    }

    /// A client on a connection of its own.
    async fn client(&self) -> Outcome<CapabilityServiceClient<Channel>> {
        Ok(CapabilityServiceClient::connect(self.address.clone()).await?)
    }

    /// Nanoseconds on a processor, by thread; those of threads that have ended are kept.
    fn cpu(&self, mut seen: HashMap<String, u64>) -> Outcome<HashMap<String, u64>> {
        for task in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let task = task?.path();
            // A thread may end in between.
            let Ok(stat) = fs::read_to_string(task.join("schedstat")) else { continue };
            let spent = stat.split(' ').next().ok_or("schedstat has fields")?.parse()?;
            seen.insert(task.to_string_lossy().into_owned(), spent);
        }
        Ok(seen)
    }

    /// KiB in memory.
    fn resident(&self) -> Outcome<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident = resident.and_then(|rest| rest.split_whitespace().next());
        Ok(resident.ok_or("VmRSS")?.parse()?)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn total(spent: &HashMap<String, u64>) -> u64 {
    spent.values().sum()
}

fn f64_of(number: u64) -> f64 {
    u32::try_from(number)
        .map_or_else(|_| Duration::from_nanos(number).as_secs_f64() * 1e9, f64::from)
}

fn ms(span: Duration) -> String {
    format!("{:.2}", span.as_secs_f64() * 1e3)
}

/// So many in a hundred took at most this, in milliseconds.
fn part(all: &mut [Duration], percent: usize) -> String {
    all.sort();
    ms(all[(all.len() * percent / 100).min(all.len() - 1)])
}

fn row(cells: impl IntoIterator<Item = String>) -> String {
    cells.into_iter().fold(String::new(), |row, cell| row + &format!("{cell:>14}"))
}
