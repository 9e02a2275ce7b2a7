//! One change to a thousand streams that are read, beside the same to one stream, and beside a bare
//! tonic server that pushes the same bytes to a thousand; and the daemon's memory a stream.

use crate::bare::{PUSH, SUBSCRIBE};
use crate::change::PAUSE;
use crate::client::{Caller, Events, owed, published};
use crate::context::{Context, Outcome, Tree};
use crate::report::{Found, Row, Target};
use crate::server::Server;
use crate::stats::{float, ms, quantile};
use bytes::Bytes;
use caproot::catalog::WatchTiming;
use caproot::proto::caproot::v1 as pb;
use std::fs;
use std::time::Instant;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;

const SKILLS: usize = 100;
const STREAMS: usize = 1_000;
const A_CONNECTION: usize = 100;
const CHANGES: usize = 20;

/// When a reader got an event, and what it was.
type Heard = (Instant, Bytes);

/// A server with readers of its streams, which end with it.
struct Readers {
    server: Server,
    tasks: JoinSet<()>,
    tell: mpsc::Sender<Heard>,
    told: mpsc::Receiver<Heard>,
}

pub(crate) async fn measure(context: &Context<'_>) -> Outcome<Found> {
    let tree = context.tree(SKILLS, 1)?;
    let quiet = ms(WatchTiming::default().debounce);
    let (mut to_one, mut to_bare, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..context.count(5, 2) {
        let mut daemon = Readers::of(Server::caproot(&tree.roots)?);
        let roots = published(&mut daemon.server.client().await?).await?;
        daemon.watch(1, &roots).await?;
        let (one, event) = daemon.changes(&tree).await?;
        let before = daemon.server.resident()?;
        daemon.watch(STREAMS - 1, &roots).await?;
        let (all, same) = daemon.changes(&tree).await?;
        if same.len() != event.len() {
            return Err("an event has the same bytes for one as for many".into());
        }
        memory.push((daemon.server.resident()?, before));
        drop(daemon);
        to_one.push((all, one));
        to_bare.push((all, pushes(context, &event).await? + quiet));
    }
    let what = format!("one change to the last of {STREAMS} streams");
    let rows = vec![
        Row::ratio(&what, "the same to one stream, bytes equal", "ms", &to_one, Target::None),
        Row::ratio(
            &what,
            format!("a push of the same bytes to {STREAMS} by a bare tonic server, plus the quiet"),
            "ms",
            &to_bare,
            Target::None,
        ),
        Row::above(
            format!("memory with {STREAMS} streams that are read, after {CHANGES} changes"),
            "the same daemon with one stream",
            ("KiB", "KiB a stream"),
            &memory,
            float(STREAMS - 1),
            Target::AtMost(16.0),
        ),
    ];
    Ok(rows.into())
}

/// Milliseconds until a bare server's push has come to its last reader.
async fn pushes(context: &Context<'_>, event: &Bytes) -> Outcome<f64> {
    let answers = context.dir("push")?;
    fs::write(answers.join("0"), event)?;
    let mut bare = Readers::of(Server::bare(&answers)?);
    let mut left = STREAMS;
    while left > 0 {
        let mut caller = bare.server.caller().await?;
        for _ in 0..left.min(A_CONNECTION) {
            let mut stream = caller.stream(SUBSCRIBE, Bytes::new()).await?;
            let tell = bare.tell.clone();
            bare.tasks.spawn(async move {
                while let Ok(Some(bytes)) = stream.message().await {
                    if tell.send((Instant::now(), bytes)).await.is_err() {
                        return;
                    }
                }
            });
            left -= 1;
        }
    }
    let mut caller = bare.server.caller().await?;
    let mut took = Vec::new();
    for _ in 0..CHANGES {
        let began = Instant::now();
        push(&mut caller).await?;
        took.push(bare.last(began).await?.0);
        sleep(PAUSE).await;
    }
    Ok(quantile(&mut took, 0.5))
}

async fn push(caller: &mut Caller) -> Outcome<()> {
    caller.ask(PUSH, Bytes::new()).await.map(drop)
}

impl Readers {
    fn of(server: Server) -> Self {
        let (tell, told) = mpsc::channel(STREAMS);
        Self { server, tasks: JoinSet::new(), tell, told }
    }

    /// Opens so many more streams, each of which is read from then on.
    async fn watch(&mut self, streams: usize, roots: &[pb::SelectedCapabilityRoot]) -> Outcome<()> {
        let mut left = streams;
        while left > 0 {
            let mut caller = self.server.caller().await?;
            for _ in 0..left.min(A_CONNECTION) {
                let mut events = Events::open(&mut caller, roots).await?;
                events.synced().await?;
                let tell = self.tell.clone();
                self.tasks.spawn(async move {
                    while let Ok(heard) = events.delta().await {
                        if tell.send(heard).await.is_err() {
                            return;
                        }
                    }
                });
                left -= 1;
            }
        }
        Ok(())
    }

    /// The median, in milliseconds, from a change until the last reader has it; and the last event.
    async fn changes(&mut self, tree: &Tree<'_>) -> Outcome<(f64, Bytes)> {
        let (mut took, mut event) = (Vec::new(), Bytes::new());
        for _ in 0..CHANGES {
            let began = tree.change(0)?;
            let (last, bytes) = self.last(began).await?;
            took.push(last);
            event = bytes;
            sleep(PAUSE).await;
        }
        Ok((quantile(&mut took, 0.5), event))
    }

    /// Milliseconds until every reader has an event, and the event: as long for each, for what has
    /// no order may be sent in any.
    async fn last(&mut self, began: Instant) -> Outcome<(f64, Bytes)> {
        let (mut last, mut first) = (began, None);
        for _ in 0..self.tasks.len() {
            let heard = async { Ok(self.told.recv().await.ok_or("readers live")?) };
            let (at, bytes) = owed("what each reader is to hear", heard).await?;
            last = last.max(at);
            if first.get_or_insert_with(|| bytes.clone()).len() != bytes.len() {
                return Err("every reader gets as many bytes".into());
            }
        }
        Ok((ms(last.duration_since(began)), first.unwrap_or_default()))
    }
}
