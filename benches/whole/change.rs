//! From a rename(2) to the client's event, beside a bare reader of inotify and the configured quiet;
//! and what one change costs the daemon's processors, with many skills and with few.

use crate::client::{Events, owed, published};
use crate::context::{Context, Outcome, Tree};
use crate::report::{Found, Line, Plot, Row, Target};
use crate::server::{Server, Spent};
use crate::stats::{float, ms, quantile};
use caproot::catalog::WatchTiming;
use inotify::{Inotify, WatchMask};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::time::sleep;

const FEW: usize = 100;
const MANY: usize = 10_000;
/// Between two changes, so that each settles alone.
pub(crate) const PAUSE: Duration = Duration::from_millis(30);

/// What a round of changes took: of each, and in all.
struct Round {
    events: Vec<f64>,
    raws: Vec<f64>,
    micros: f64,
}

/// One daemon, one reader of its changes, and a bare reader of inotify.
struct Watched<'a> {
    tree: Tree<'a>,
    server: Server,
    spent: Spent,
    events: Events,
    raw: mpsc::Receiver<Instant>,
    changes: usize,
}

pub(crate) async fn measure(context: &Context<'_>) -> Outcome<Found> {
    let mut many = Watched::start(context.tree(MANY, 1)?).await?;
    let mut few = Watched::start(context.tree(FEW, 1)?).await?;
    let changes = context.count(200, 60);
    // Lets both come to rest.
    sleep(Duration::from_secs(1)).await;
    many.round(changes / 4).await?;
    few.round(changes / 4).await?;
    let mut rounds = Vec::new();
    for _ in 0..context.rounds {
        rounds.push((many.round(changes).await?, few.round(changes).await?));
    }
    let part = |part: f64| {
        let pair = |(round, _): &(Round, Round)| {
            let mut both = (round.events.clone(), round.raws.clone());
            (quantile(&mut both.0, part), quantile(&mut both.1, part))
        };
        rounds.iter().map(pair).collect::<Vec<_>>()
    };
    let row = |name: &str, pairs: &[(f64, f64)], target| {
        let what = format!("one change to the client's event, {name}, {MANY} skills");
        let quiet = WatchTiming::default().debounce.as_millis();
        let beside = format!("raw inotify to a bare reader, plus the {quiet} ms of quiet");
        Row::above(what, beside, ("ms", "ms above"), pairs, 1.0, target)
    };
    let costs: Vec<_> = rounds.iter().map(|(many, few)| (many.micros, few.micros)).collect();
    let rows = vec![
        row("p50", &part(0.5), Target::None),
        row("p99", &part(0.99), Target::AtMost(3.0)),
        Row::ratio(
            format!("processor time of one change, {MANY} skills"),
            format!("the same with {FEW} skills"),
            "µs",
            &costs,
            Target::AtMost(1.3),
        ),
    ];
    let line = |label: &str, of: fn(&Round) -> &Vec<f64>| {
        let mut all: Vec<_> = rounds.iter().flat_map(|(many, _)| of(many)).copied().collect();
        let points =
            (0..=100).map(|n| float(n) / 100.0).map(|p| (quantile(&mut all, p), p * 100.0));
        Line { plot: Plot::Changes, label: label.to_owned(), unit: "ms", points: points.collect() }
    };
    let lines = vec![
        line("raw inotify plus quiet", |round| &round.raws),
        line("the client's event", |round| &round.events),
    ];
    Ok(Found { rows, lines })
}

impl<'a> Watched<'a> {
    async fn start(tree: Tree<'a>) -> Outcome<Self> {
        let server = Server::caproot(&tree.roots)?;
        let roots = published(&mut server.client().await?).await?;
        let mut events = Events::open(&mut server.caller().await?, &roots).await?;
        events.synced().await?;
        let raw = bare_reader(&tree.skill(0))?;
        Ok(Self { tree, server, spent: Spent::default(), events, raw, changes: 0 })
    }

    /// So many changes, one after the other.
    async fn round(&mut self, changes: usize) -> Outcome<Round> {
        self.spent.look(&self.server)?;
        let before = self.spent.micros();
        let (mut events, mut raws) = (Vec::new(), Vec::new());
        for _ in 0..changes {
            self.changes += 1;
            let at = self.tree.change(0)?;
            let (heard, _) = self.events.delta().await?;
            let raw = async { Ok(self.raw.recv().await.ok_or("the bare reader lives")?) };
            let raw = owed("what inotify tells", raw).await?;
            raws.push(ms(raw.duration_since(at) + WatchTiming::default().debounce));
            events.push(ms(heard.duration_since(at)));
            sleep(PAUSE).await;
            if self.changes.is_multiple_of(10) {
                self.spent.look(&self.server)?;
            }
        }
        self.spent.look(&self.server)?;
        let micros = (self.spent.micros() - before) / float(changes);
        Ok(Round { events, raws, micros })
    }
}

/// Tells when something was renamed into a directory.
fn bare_reader(dir: &Path) -> Outcome<mpsc::Receiver<Instant>> {
    let mut inotify = Inotify::init()?;
    inotify.watches().add(dir, WatchMask::MOVED_TO)?;
    let (tell, told) = mpsc::channel(1_024);
    // Ends when nobody listens any more, or with the process.
    thread::spawn(move || {
        let mut buffer = [0; 4_096];
        while inotify.read_events_blocking(&mut buffer).is_ok_and(|events| events.count() > 0) {
            if tell.blocking_send(Instant::now()).is_err() {
                return;
            }
        }
    });
    Ok(told)
}
