//! Sends one change to a thousand streams, compared with one stream, and with a bare tonic server
//! that pushes the same bytes to a thousand streams. Also measures the memory per stream.

use crate::bare::{PUSH, SUBSCRIBE};
use crate::change::PAUSE;
use crate::client::{ChangeStream, RawClient, published_roots, with_timeout};
use crate::context::{Context, Outcome, Tree};
use crate::report::{MeasurementResult, Row, Target};
use crate::server::Server;
use crate::stats::{float, ms, quantile};
use bytes::Bytes;
use caproot::daemon::catalog::WatchTiming;
use caproot_core::proto::caproot::v1 as pb;
use std::fs;
use std::time::Instant;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;

const SKILLS: usize = 100;
const STREAMS: usize = 1_000;
const STREAMS_PER_CONNECTION: usize = 100;
const CHANGES: usize = 20;

/// Time and bytes of an event that a reader received.
type TimedEvent = (Instant, Bytes);

/// Server and the readers of its streams. The readers end with the server.
struct StreamReaders {
    server: Server,
    tasks: JoinSet<()>,
    sender: mpsc::Sender<TimedEvent>,
    receiver: mpsc::Receiver<TimedEvent>,
}

pub(crate) async fn measure(context: &Context<'_>) -> Outcome<MeasurementResult> {
    let tree = context.tree(SKILLS, 1)?;
    let quiet = ms(WatchTiming::default().debounce);
    let (mut to_one, mut to_bare, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..context.count(5, 2) {
        let mut daemon = StreamReaders::start(Server::start_caproot(&tree.roots)?);
        let roots = published_roots(&mut daemon.server.client().await?).await?;
        daemon.add_streams(1, &roots).await?;
        let (one, event) = daemon.measure_changes(&tree).await?;
        let before = daemon.server.resident()?;
        daemon.add_streams(STREAMS - 1, &roots).await?;
        let (all, same) = daemon.measure_changes(&tree).await?;
        if same.len() != event.len() {
            return Err("the size of an event depends on the number of streams".into());
        }
        memory.push((daemon.server.resident()?, before));
        drop(daemon);
        to_one.push((all, one));
        to_bare.push((all, pushes(context, &event).await? + quiet));
    }
    let what = format!("one change to the last of {STREAMS} streams");
    let rows = vec![
        Row::ratio(
            &what,
            "the same to one stream, bytes equal",
            "ms",
            &to_one,
            Target::None,
        ),
        Row::ratio(
            &what,
            format!(
                "a push of the same bytes to {STREAMS} by a bare tonic server, plus the debounce time"
            ),
            "ms",
            &to_bare,
            Target::None,
        ),
        Row::difference(
            format!("memory with {STREAMS} read streams, after {CHANGES} changes"),
            "the same daemon with one stream",
            ("KiB", "KiB a stream"),
            &memory,
            float(STREAMS - 1),
            Target::AtMost(16.0),
        ),
    ];
    Ok(rows.into())
}

/// Milliseconds until the last reader has a push of the bare server.
async fn pushes(context: &Context<'_>, event: &Bytes) -> Outcome<f64> {
    let answers = context.dir("push")?;
    fs::write(answers.join("0"), event)?;
    let mut bare = StreamReaders::start(Server::start_bare(&answers)?);
    let mut left = STREAMS;
    while left > 0 {
        let mut caller = bare.server.raw_client().await?;
        for _ in 0..left.min(STREAMS_PER_CONNECTION) {
            let mut stream = caller.stream(SUBSCRIBE, Bytes::new()).await?;
            let sender = bare.sender.clone();
            bare.tasks.spawn(async move {
                while let Ok(Some(bytes)) = stream.message().await {
                    if sender.send((Instant::now(), bytes)).await.is_err() {
                        return;
                    }
                }
            });
            left -= 1;
        }
    }
    let mut caller = bare.server.raw_client().await?;
    let mut took = Vec::new();
    for _ in 0..CHANGES {
        let began = Instant::now();
        push(&mut caller).await?;
        took.push(bare.wait_for_all(began).await?.0);
        sleep(PAUSE).await;
    }
    Ok(quantile(&mut took, 0.5))
}

async fn push(caller: &mut RawClient) -> Outcome<()> {
    caller.call(PUSH, Bytes::new()).await.map(drop)
}

impl StreamReaders {
    fn start(server: Server) -> Self {
        let (sender, receiver) = mpsc::channel(STREAMS);
        Self {
            server,
            tasks: JoinSet::new(),
            sender,
            receiver,
        }
    }

    /// Opens more streams and starts to read them.
    async fn add_streams(
        &mut self,
        streams: usize,
        roots: &[pb::SelectedCapabilityRoot],
    ) -> Outcome<()> {
        let mut left = streams;
        while left > 0 {
            let mut caller = self.server.raw_client().await?;
            for _ in 0..left.min(STREAMS_PER_CONNECTION) {
                let mut events = ChangeStream::open(&mut caller, roots).await?;
                events.synced().await?;
                let sender = self.sender.clone();
                self.tasks.spawn(async move {
                    while let Ok(received) = events.delta().await {
                        if sender.send(received).await.is_err() {
                            return;
                        }
                    }
                });
                left -= 1;
            }
        }
        Ok(())
    }

    /// Median time in milliseconds from a change until the last reader has its event, and the last
    /// event.
    async fn measure_changes(&mut self, tree: &Tree<'_>) -> Outcome<(f64, Bytes)> {
        let (mut took, mut event) = (Vec::new(), Bytes::new());
        for _ in 0..CHANGES {
            let began = tree.change_skill(0)?;
            let (last, bytes) = self.wait_for_all(began).await?;
            took.push(last);
            event = bytes;
            sleep(PAUSE).await;
        }
        Ok((quantile(&mut took, 0.5), event))
    }

    /// Milliseconds until every reader has an event, and the event. All readers get the same number
    /// of bytes, but unordered fields may differ in order.
    async fn wait_for_all(&mut self, began: Instant) -> Outcome<(f64, Bytes)> {
        let (mut last, mut first) = (began, None);
        for _ in 0..self.tasks.len() {
            let received =
                async { Ok(self.receiver.recv().await.ok_or("all readers have ended")?) };
            let (at, bytes) = with_timeout("the event of each reader", received).await?;
            last = last.max(at);
            if first.get_or_insert_with(|| bytes.clone()).len() != bytes.len() {
                return Err("the size of an event differs between readers".into());
            }
        }
        Ok((ms(last.duration_since(began)), first.unwrap_or_default()))
    }
}
