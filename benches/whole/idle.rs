//! Processor time of an idle daemon with approved skills whose files have hard links, compared with an empty
//! daemon. Events of a file with a second name are not reported to each directory, so such files are
//! watched themselves, and are not read again.

use crate::client::{ChangeStream, published_roots};
use crate::context::{Context, Outcome};
use crate::removal::{SKILLS, approve, write_skills};
use crate::report::{MeasurementResult, Row, Target};
use crate::server::{ProcessorTime, Server};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::sleep;

/// Time of a round: three rechecks.
const WINDOW: Duration = Duration::from_secs(6);

/// Daemon with one stream of changes.
struct IdleDaemon {
    server: Server,
    spent: ProcessorTime,
    _events: ChangeStream,
}

pub(crate) async fn measure(context: &Context<'_>) -> Outcome<MeasurementResult> {
    let dir = write_skills(&context.dir("linked")?)?;
    let names = context.dir("names")?;
    for n in 0..SKILLS {
        for (file, name) in [("SKILL.md", "main"), ("references/steps.md", "steps")] {
            let file = dir.join(format!("s{n}")).join(file);
            fs::hard_link(file, names.join(format!("{n}-{name}")))?;
        }
    }
    let config = approve(context, &dir)?;
    let config = config.to_str().ok_or("a directory whose name is UTF-8")?;
    let mut approved = IdleDaemon::start(dir, &["--config", config]).await?;
    let mut empty = IdleDaemon::start(context.dir("empty")?, &[]).await?;

    let mut pairs = Vec::new();
    for _ in 0..context.rounds {
        pairs.push((
            approved.measure_round().await?,
            empty.measure_round().await?,
        ));
    }
    let row = Row::difference(
        format!("processor time when idle, {SKILLS} approved skills of files with hard links"),
        "an empty daemon",
        ("ms a second", "% of a core"),
        &pairs,
        10.0,
        Target::AtMost(0.5),
    );
    Ok(vec![row].into())
}

impl IdleDaemon {
    async fn start(dir: PathBuf, arguments: &[&str]) -> Outcome<Self> {
        let server = Server::start_caproot_with(&[dir], arguments)?;
        let roots = published_roots(&mut server.client().await?).await?;
        let mut events = ChangeStream::open(&mut server.raw_client().await?, &roots).await?;
        events.synced().await?;
        let mut daemon = Self {
            server,
            spent: ProcessorTime::default(),
            _events: events,
        };
        // The first round ends the work of the start.
        daemon.measure_round().await?;
        Ok(daemon)
    }

    /// Returns the milliseconds of processor time in a second.
    async fn measure_round(&mut self) -> Outcome<f64> {
        self.spent.update(&self.server)?;
        let before = self.spent.micros();
        sleep(WINDOW).await;
        self.spent.update(&self.server)?;
        Ok((self.spent.micros() - before) / 1e3 / WINDOW.as_secs_f64())
    }
}
