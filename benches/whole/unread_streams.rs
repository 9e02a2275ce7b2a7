//! Memory of the daemon while skills change and streams are not read.

use crate::client::{ChangeStream, published_roots};
use crate::context::{Context, Outcome, Tree};
use crate::report::{MeasurementResult, Row, Target};
use crate::server::Server;
use crate::stats::float;
use caproot::daemon::catalog::WatchTiming;
use std::time::Duration;
use tokio::time::sleep;

const SKILLS: usize = 10_000;
const STREAMS: usize = 100;

pub(crate) async fn measure(context: &Context<'_>) -> Outcome<MeasurementResult> {
    let tree = context.tree(SKILLS, 1)?;
    let changes = context.count(300, 60);
    let mut pairs = Vec::new();
    for _ in 0..context.count(3, 1) {
        pairs.push(measure_round(&tree, changes).await?);
    }
    let row = Row::difference(
        format!("memory with {STREAMS} unread streams of {SKILLS} skills, {changes} changes"),
        "the same daemon with one read stream, after as many changes",
        ("KiB", "KiB a stream"),
        &pairs,
        float(STREAMS),
        Target::AtMost(128.0),
    );
    Ok(vec![row].into())
}

/// KiB with unread streams, and before them.
async fn measure_round(tree: &Tree<'_>, changes: usize) -> Outcome<(f64, f64)> {
    let server = Server::start_caproot(&tree.roots)?;
    let roots = published_roots(&mut server.client().await?).await?;
    let mut read = ChangeStream::open(&mut server.raw_client().await?, &roots).await?;
    read.synced().await?;
    change_skills(tree, &mut read, changes).await?;
    let before = server.resident()?;
    let mut unread = Vec::new();
    for _ in 0..STREAMS {
        let mut caller = server.raw_client().await?;
        unread.push((ChangeStream::open(&mut caller, &roots).await?, caller));
    }
    // Longer than the time limit of stalled readers.
    sleep(WatchTiming::default().stalled_reader_timeout + Duration::from_secs(2)).await;
    change_skills(tree, &mut read, changes).await?;
    Ok((server.resident()?, before))
}

/// Makes a number of changes, each of another skill.
async fn change_skills(tree: &Tree<'_>, read: &mut ChangeStream, changes: usize) -> Outcome<()> {
    for n in 0..changes {
        tree.change_skill(n)?;
        read.delta().await?;
    }
    Ok(())
}
