//! Time from a rename(2) to the client's event, compared with a plain inotify reader plus the
//! debounce time, and the processor time of one change, with many skills and with few.

use crate::client::{ChangeStream, published_roots, with_timeout};
use crate::context::{Context, Outcome, Tree};
use crate::report::{Line, MeasurementResult, Plot, Row, Target};
use crate::server::{ProcessorTime, Server};
use crate::stats::{float, ms, quantile, quantile_pairs};
use caproot::daemon::catalog::WatchTiming;
use inotify::{Inotify, WatchMask};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::time::sleep;

const FEW: usize = 100;
const MANY: usize = 10_000;
/// Pause between two changes, so that each change is debounced alone.
pub(crate) const PAUSE: Duration = Duration::from_millis(30);

/// Results of a round of changes: the times of each change, and the processor time per change.
struct RoundTimes {
    events: Vec<f64>,
    raws: Vec<f64>,
    micros: f64,
}

/// Daemon with one stream of changes, and a plain inotify reader.
struct ChangeBench<'a> {
    tree: Tree<'a>,
    server: Server,
    spent: ProcessorTime,
    events: ChangeStream,
    raw: mpsc::Receiver<Instant>,
    changes: usize,
}

pub(crate) async fn measure(context: &Context<'_>) -> Outcome<MeasurementResult> {
    let mut many = ChangeBench::start(context.tree(MANY, 1)?).await?;
    let mut few = ChangeBench::start(context.tree(FEW, 1)?).await?;
    let changes = context.count(200, 60);
    // Lets both daemons become idle.
    sleep(Duration::from_secs(1)).await;
    many.measure_round(changes / 4).await?;
    few.measure_round(changes / 4).await?;
    let mut rounds = Vec::new();
    for _ in 0..context.rounds {
        rounds.push((
            many.measure_round(changes).await?,
            few.measure_round(changes).await?,
        ));
    }
    let times: Vec<_> = rounds
        .iter()
        .map(|(round, _)| (round.events.clone(), round.raws.clone()))
        .collect();
    let row = |name: &str, pairs: &[(f64, f64)], target| {
        let what = format!("one change to the client's event, {name}, {MANY} skills");
        let debounce = WatchTiming::default().debounce.as_millis();
        let beside = format!("a plain inotify reader, plus {debounce} ms of debounce");
        Row::difference(what, beside, ("ms", "ms above"), pairs, 1.0, target)
    };
    let costs: Vec<_> = rounds
        .iter()
        .map(|(many, few)| (many.micros, few.micros))
        .collect();
    let rows = vec![
        row("p50", &quantile_pairs(&times, 0.5), Target::None),
        row("p99", &quantile_pairs(&times, 0.99), Target::AtMost(1.2)),
        Row::ratio(
            format!("processor time of one change, {MANY} skills"),
            format!("the same with {FEW} skills"),
            "µs",
            &costs,
            Target::AtMost(1.3),
        ),
    ];
    let line = |label: &str, values: fn(&RoundTimes) -> &Vec<f64>| {
        let mut all: Vec<_> = rounds
            .iter()
            .flat_map(|(many, _)| values(many))
            .copied()
            .collect();
        let points = (0..=100)
            .map(|n| float(n) / 100.0)
            .map(|p| (quantile(&mut all, p), p * 100.0));
        Line {
            plot: Plot::Changes,
            label: label.to_owned(),
            unit: "ms",
            points: points.collect(),
        }
    };
    let lines = vec![
        line("inotify plus debounce", |round| &round.raws),
        line("the client's event", |round| &round.events),
    ];
    Ok(MeasurementResult { rows, lines })
}

impl<'a> ChangeBench<'a> {
    async fn start(tree: Tree<'a>) -> Outcome<Self> {
        let server = Server::start_caproot(&tree.roots)?;
        let roots = published_roots(&mut server.client().await?).await?;
        let mut events = ChangeStream::open(&mut server.raw_client().await?, &roots).await?;
        events.synced().await?;
        let raw = spawn_inotify_reader(&tree.skill_dir(0))?;
        Ok(Self {
            tree,
            server,
            spent: ProcessorTime::default(),
            events,
            raw,
            changes: 0,
        })
    }

    /// Makes a number of changes, one after another.
    async fn measure_round(&mut self, changes: usize) -> Outcome<RoundTimes> {
        self.spent.update(&self.server)?;
        let before = self.spent.micros();
        let (mut events, mut raws) = (Vec::new(), Vec::new());
        for _ in 0..changes {
            self.changes += 1;
            let at = self.tree.change_skill(0)?;
            let (received, _) = self.events.delta().await?;
            let raw = async {
                Ok(self
                    .raw
                    .recv()
                    .await
                    .ok_or("the inotify reader has ended")?)
            };
            let raw = with_timeout("the inotify event", raw).await?;
            raws.push(ms(raw.duration_since(at) + WatchTiming::default().debounce));
            events.push(ms(received.duration_since(at)));
            sleep(PAUSE).await;
            if self.changes.is_multiple_of(10) {
                self.spent.update(&self.server)?;
            }
        }
        self.spent.update(&self.server)?;
        let micros = (self.spent.micros() - before) / float(changes);
        Ok(RoundTimes {
            events,
            raws,
            micros,
        })
    }
}

/// Sends the time of each rename into a directory.
fn spawn_inotify_reader(dir: &Path) -> Outcome<mpsc::Receiver<Instant>> {
    let mut inotify = Inotify::init()?;
    inotify.watches().add(dir, WatchMask::MOVED_TO)?;
    let (send, receive) = mpsc::channel(1_024);
    // The thread ends with its receiver or with the process.
    thread::spawn(move || {
        let mut buffer = [0; 4_096];
        while inotify
            .read_events_blocking(&mut buffer)
            .is_ok_and(|events| events.count() > 0)
        {
            if send.blocking_send(Instant::now()).is_err() {
                return;
            }
        }
    });
    Ok(receive)
}
