//! From the start of the daemon to its first complete list, as a ratio to the floor: a parallel walk
//! that only opens and reads the same files. Prints the daemon's resident memory too.
//!
//! `cargo bench --bench cold [-- DIR…]`: generated trees of 2,000 and 10,000 skills of 6 KiB, and
//! each DIR. The two are run in turn, after one run of each that warms the page cache.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use caproot::proto::caproot::v1 as pb;
use pb::capability_service_client::CapabilityServiceClient;

const ROUNDS: usize = 7;
const SKILL_BYTES: usize = 6 << 10;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Outcome<()> {
    let mut out = io::stdout();
    writeln!(
        out,
        "{:<24}{:>8}{:>11}{:>11}{:>8}{:>12}",
        "tree", "skills", "floor ms", "cold ms", "ratio", "KiB a skill"
    )?;
    let empty = tempfile::tempdir()?;
    let base = run(empty.path()).await?.resident;
    for skills in [2_000, 10_000] {
        let tree = tempfile::tempdir()?;
        generate(tree.path(), skills)?;
        let row = measure(&format!("generated {skills}"), tree.path(), base).await?;
        writeln!(out, "{row}")?;
    }
    for dir in std::env::args_os().skip(1).filter(|a| a != "--bench").map(PathBuf::from) {
        let name = dir.file_name().unwrap_or(OsStr::new("/")).to_string_lossy().into_owned();
        let row = measure(&name, &dir, base).await?;
        writeln!(out, "{row}")?;
    }
    writeln!(out, "resident memory of an empty daemon: {} KiB", base / 1_024)?;
    Ok(())
}

async fn measure(name: &str, tree: &Path, base: u64) -> Outcome<String> {
    floor(tree);
    run(tree).await?;
    let (mut floors, mut colds, mut last) = (Vec::new(), Vec::new(), None);
    for _ in 0..ROUNDS {
        floors.push(floor(tree));
        let cold = run(tree).await?;
        colds.push(cold.took);
        last = Some(cold);
    }
    let last = last.ok_or("at least one round")?;
    let (floor, cold) = (median(&mut floors), median(&mut colds));
    let skills = u32::try_from(last.skills.max(1))?;
    let memory = u32::try_from(last.resident.saturating_sub(base) / 1_024)?;
    let memory = f64::from(memory) / f64::from(skills);
    let (floor_ms, cold_ms) = (floor.as_secs_f64() * 1e3, cold.as_secs_f64() * 1e3);
    let mut row = format!("{name:<24}{:>8}{floor_ms:>11.1}{cold_ms:>11.1}", last.skills);
    write!(row, "{:>8.2}{memory:>12.2}", cold_ms / floor_ms)?;
    Ok(row)
}

fn median(all: &mut [Duration]) -> Duration {
    all.sort();
    all[all.len() / 2]
}

/// What one daemon took and held.
struct Cold {
    took: Duration,
    skills: usize,
    resident: u64,
}

/// Starts the daemon on a tree and lists all of it.
async fn run(tree: &Path) -> Outcome<Cold> {
    let began = Instant::now();
    let mut root = std::ffi::OsString::from("tree=");
    root.push(tree);
    let mut daemon = Daemon(
        Command::new(env!("CARGO_BIN_EXE_caproot"))
            .args(["serve", "--log", "off", "--listen", "tcp:127.0.0.1:0", "--root"])
            .arg(root)
            .stdout(Stdio::piped())
            .spawn()?,
    );
    let mut line = String::new();
    let stdout = daemon.0.stdout.take().ok_or("stdout is piped")?;
    BufReader::new(stdout).read_line(&mut line)?;
    let address = line.trim().strip_prefix("listening tcp:").ok_or("the daemon listens")?;
    let mut client = CapabilityServiceClient::connect(format!("http://{address}")).await?;
    let roots = client.list_roots(pb::ListRootsRequest {}).await?.into_inner().roots;
    let mut request = pb::ListSkillsRequest {
        selected_capability_roots: roots
            .into_iter()
            .filter_map(|r| r.selected_capability_root)
            .collect(),
        ..pb::ListSkillsRequest::default()
    };
    let mut skills = 0;
    loop {
        let page = client.list_skills(request.clone()).await?.into_inner();
        skills += page.skills.len();
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    let took = began.elapsed();
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.0.id()))?;
    let resident = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let resident = resident.and_then(|l| l.split_whitespace().next()).ok_or("VmRSS")?;
    Ok(Cold { took, skills, resident: resident.parse::<u64>()? * 1_024 })
}

struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Opens and reads every SKILL.md, on as many threads as there are processors.
fn floor(tree: &Path) -> Duration {
    let began = Instant::now();
    let pending = Mutex::new((vec![tree.to_owned()], 0_usize));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                let mut buffer = Vec::new();
                loop {
                    let next = {
                        let mut pending = pending.lock().expect("no panic");
                        match pending.0.pop() {
                            Some(dir) => {
                                pending.1 += 1;
                                Some(dir)
                            }
                            None if pending.1 == 0 => return,
                            None => None,
                        }
                    };
                    let Some(dir) = next else {
                        std::thread::yield_now();
                        continue;
                    };
                    let mut below = Vec::new();
                    for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
                        if entry.file_type().is_ok_and(|t| t.is_dir()) {
                            below.push(entry.path());
                        } else if entry.file_name() == "SKILL.md" {
                            buffer.clear();
                            let file = fs::File::open(entry.path());
                            let _ = file.and_then(|mut f| f.read_to_end(&mut buffer));
                        }
                    }
                    let mut pending = pending.lock().expect("no panic");
                    pending.0.append(&mut below);
                    pending.1 -= 1;
                }
            });
        }
    });
    began.elapsed()
}

/// Skills of one size, a hundred a directory.
fn generate(tree: &Path, skills: usize) -> io::Result<()> {
    for n in 0..skills {
        let dir = tree.join(format!("group-{:03}/skill-{n:05}", n / 100));
        fs::create_dir_all(&dir)?;
        let mut text = format!(
            "---\nname: skill-{n:05}\ndescription: Generated skill number {n}, which explains how \
             to do one thing well and when to reach for it.\nlicense: Apache-2.0\nmetadata:\n  \
             short-description: Generated skill {n}\n  version: \"1.{n}\"\n---\n\n# Skill {n}\n\n"
        );
        while text.len() < SKILL_BYTES {
            text.push_str("Read the file first, change one thing, and run the checks again.\n");
        }
        text.truncate(SKILL_BYTES);
        fs::write(dir.join("SKILL.md"), text)?;
    }
    Ok(())
}
