//! Time from an edit of an approved file to the removal of its skill at the client, with a lock and the
//! mode `hide`, compared with the event of an edit without a lock.

use crate::change::PAUSE;
use crate::client::{ChangeStream, published_roots};
use crate::context::{Context, Outcome};
use crate::report::{MeasurementResult, Row, Target};
use crate::server::Server;
use crate::stats::{ms, quantile_pairs};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use tokio::time::sleep;

pub(crate) const SKILLS: usize = 1_000;
/// Files of the edited skill.
const MAIN_FILE: &str = "s0/SKILL.md";
const SUPPORTING_FILE: &str = "s0/references/steps.md";

/// Daemon with one stream of changes.
struct EditedDaemon {
    dir: PathBuf,
    _server: Server,
    events: ChangeStream,
}

/// Times of a round of edits in milliseconds.
struct RoundTimes {
    main_file: Vec<f64>,
    supporting_file: Vec<f64>,
    without_lock: Vec<f64>,
}

pub(crate) async fn measure(context: &Context<'_>) -> Outcome<MeasurementResult> {
    let locked_dir = write_skills(&context.dir("locked")?)?;
    let config = approve(context, &locked_dir)?;
    let config = config.to_str().ok_or("a directory whose name is UTF-8")?;
    let mut locked = EditedDaemon::start(locked_dir, &["--config", config]).await?;
    let mut plain = EditedDaemon::start(write_skills(&context.dir("plain")?)?, &[]).await?;

    let edits = context.count(100, 30);
    let mut rounds = Vec::new();
    for _ in 0..context.rounds {
        rounds.push(RoundTimes {
            main_file: locked.time_edits(MAIN_FILE, edits).await?,
            supporting_file: locked.time_edits(SUPPORTING_FILE, edits).await?,
            without_lock: plain.time_edits(MAIN_FILE, edits).await?,
        });
    }

    let row = |file: &str, share: f64, title: &str, times: fn(&RoundTimes) -> &Vec<f64>| {
        let pairs = rounds.iter();
        let pairs: Vec<_> = pairs
            .map(|round| (times(round).clone(), round.without_lock.clone()))
            .collect();
        Row::ratio(
            format!("hide: an edit of {file} to the removal at the client, {title}"),
            "an edit of SKILL.md to the client's event, without a lock",
            "ms",
            &quantile_pairs(&pairs, share),
            Target::None,
        )
    };
    Ok(vec![
        row("SKILL.md", 0.5, "p50", |round| &round.main_file),
        row("SKILL.md", 0.99, "p99", |round| &round.main_file),
        row("a supporting file", 0.99, "p99", |round| {
            &round.supporting_file
        }),
    ]
    .into())
}

/// Writes skills with a supporting file each. Returns the directory.
pub(crate) fn write_skills(dir: &Path) -> Outcome<PathBuf> {
    for n in 0..SKILLS {
        let skill = dir.join(format!("s{n}"));
        fs::create_dir_all(skill.join("references"))?;
        let text = format!("---\nname: s{n}\ndescription: Skill {n}.\n---\nSteps.\n");
        fs::write(skill.join("SKILL.md"), text)?;
        fs::write(skill.join("references/steps.md"), "One.\n")?;
    }
    Ok(dir.to_owned())
}

/// Approves all skills of a directory. Returns the config file of the daemon.
pub(crate) fn approve(context: &Context<'_>, dir: &Path) -> Outcome<PathBuf> {
    let config = context.dir("approval")?.join("caproot.yaml");
    let lock = config.with_file_name("caproot.lock");
    let locked = Command::new(env!("CARGO_BIN_EXE_caproot"))
        .arg("lock")
        .arg(dir)
        .arg("--out")
        .arg(&lock)
        .output()?;
    if !locked.status.success() {
        return Err(String::from_utf8_lossy(&locked.stderr).into());
    }

    fs::write(&config, "trust: {lock: caproot.lock, mode: hide}\n")?;
    Ok(config)
}

impl EditedDaemon {
    async fn start(dir: PathBuf, arguments: &[&str]) -> Outcome<Self> {
        let server = Server::start_caproot_with(std::slice::from_ref(&dir), arguments)?;
        let roots = published_roots(&mut server.client().await?).await?;
        let mut events = ChangeStream::open(&mut server.raw_client().await?, &roots).await?;
        events.synced().await?;
        Ok(Self {
            dir,
            _server: server,
            events,
        })
    }

    /// Edits a file and undoes it, again and again. Returns the milliseconds from each edit to its
    /// event.
    async fn time_edits(&mut self, file: &str, edits: usize) -> Outcome<Vec<f64>> {
        let path = self.dir.join(file);
        let approved = fs::read(&path)?;
        let mut times = Vec::new();
        for n in 0..edits {
            let edited = [&approved, format!("Edit {n}.\n").as_bytes()].concat();
            let at = self.replace(&path, &edited)?;
            let (received, _) = self.events.delta().await?;
            times.push(ms(received.duration_since(at)));
            sleep(PAUSE).await;

            self.replace(&path, &approved)?;
            self.events.delta().await?;
            sleep(PAUSE).await;
        }
        Ok(times)
    }

    /// Renames a new version over a file. Returns the time directly before the rename.
    fn replace(&self, path: &Path, content: &[u8]) -> Outcome<Instant> {
        let next = self.dir.with_extension("next");
        fs::write(&next, content)?;
        let now = Instant::now();
        fs::rename(next, path)?;
        Ok(now)
    }
}
