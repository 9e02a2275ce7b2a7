//! What streams that nobody reads make the daemon hold while skills change.

use crate::client::{Events, published};
use crate::context::{Context, Outcome, Tree};
use crate::report::{Found, Row, Target};
use crate::server::Server;
use crate::stats::float;
use caproot::catalog::WatchTiming;
use std::time::Duration;
use tokio::time::sleep;

const SKILLS: usize = 10_000;
const STREAMS: usize = 100;

pub(crate) async fn measure(context: &Context<'_>) -> Outcome<Found> {
    let tree = context.tree(SKILLS, 1)?;
    let changes = context.count(300, 60);
    let mut pairs = Vec::new();
    for _ in 0..context.count(3, 1) {
        pairs.push(round(&tree, changes).await?);
    }
    let row = Row::above(
        format!(
            "memory with {STREAMS} streams of {SKILLS} skills that nobody reads, {changes} changes"
        ),
        "the same daemon with one that is read, after as much churn",
        ("KiB", "KiB a stream"),
        &pairs,
        float(STREAMS),
        Target::AtMost(128.0),
    );
    Ok(vec![row].into())
}

/// KiB with such streams, and before.
async fn round(tree: &Tree<'_>, changes: usize) -> Outcome<(f64, f64)> {
    let server = Server::caproot(&tree.roots)?;
    let roots = published(&mut server.client().await?).await?;
    let mut read = Events::open(&mut server.caller().await?, &roots).await?;
    read.synced().await?;
    churn(tree, &mut read, changes).await?;
    let before = server.resident()?;
    let mut held = Vec::new();
    for _ in 0..STREAMS {
        let mut caller = server.caller().await?;
        held.push((Events::open(&mut caller, &roots).await?, caller));
    }
    // Longer than a reader may stop in the middle of a state.
    sleep(WatchTiming::default().stalled_reader_timeout + Duration::from_secs(2)).await;
    churn(tree, &mut read, changes).await?;
    Ok((server.resident()?, before))
}

/// So many changes, each of another skill.
async fn churn(tree: &Tree<'_>, read: &mut Events, changes: usize) -> Outcome<()> {
    for n in 0..changes {
        tree.change(n)?;
        read.delta().await?;
    }
    Ok(())
}
