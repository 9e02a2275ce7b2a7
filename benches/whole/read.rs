//! Reads of small files, 64 in flight on one connection, beside the same bytes from memory.

use crate::bare;
use crate::client::{Caller, LIST, READ, list};
use crate::cold;
use crate::context::{Context, Outcome};
use crate::report::{Found, Row, Target};
use crate::server::Server;
use crate::stats::float;
use crate::trees::Plan;
use bytes::Bytes;
use caproot::proto::caproot::v1 as pb;
use prost::Message as _;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const SKILLS: usize = 2_000;
const FILE_BYTES: usize = 8 << 10;
const IN_FLIGHT: usize = 64;

/// A request, and where it goes.
type Call = (String, Bytes);

pub(crate) async fn measure(context: &Context<'_>) -> Outcome<Found> {
    let plan = Plan { skills: SKILLS, bytes: FILE_BYTES, roots: 1, seed: 1 };
    let tree = context.tree_of(plan)?;
    let daemon = cold::start(&tree.roots).await?;
    let mut caller = daemon.server.caller().await?;
    let answers = context.dir("read")?;
    let (mut own, mut others) = (Vec::new(), Vec::new());
    for page in list(&mut caller, &daemon.roots).await?.0 {
        // Decoded again: what was read is a package for each skill.
        let page = pb::ListSkillsResponse::decode(caller.ask(LIST, page.request).await?)?;
        for skill in page.skills {
            let request = pb::ReadResourceRequest {
                root: daemon.roots.first().cloned(),
                package: skill.package,
                ..pb::ReadResourceRequest::default()
            };
            let request = Bytes::from(request.encode_to_vec());
            let answer = caller.ask(READ, request.clone()).await?;
            fs::write(answers.join(own.len().to_string()), answer)?;
            others.push((bare::path(own.len()), request.clone()));
            own.push((READ.to_owned(), request));
        }
    }
    let bare = Server::bare(&answers)?;
    let other = bare.caller().await?;
    let span = Duration::from_millis(if context.options.quick { 500 } else { 3_000 });
    let (own, others) = (Arc::new(own), Arc::new(others));
    // Warms both.
    rate(&caller, &own, span / 2).await?;
    rate(&other, &others, span / 2).await?;
    let mut pairs = Vec::new();
    for _ in 0..context.rounds {
        let ours = rate(&caller, &own, span).await?;
        pairs.push((ours, rate(&other, &others, span).await?));
    }
    let row = Row::ratio(
        format!("reads of 8 KiB files, {IN_FLIGHT} in flight"),
        "unary answers of the same bytes by a bare tonic server, from memory",
        "a second",
        &pairs,
        Target::AtLeast(0.7),
    );
    Ok(vec![row].into())
}

/// Answers a second, for so long.
async fn rate(caller: &Caller, calls: &Arc<Vec<Call>>, span: Duration) -> Outcome<f64> {
    let next = Arc::new(AtomicUsize::new(0));
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..IN_FLIGHT {
        let (mut caller, calls, next) = (caller.clone(), calls.clone(), next.clone());
        tasks.spawn(async move {
            while began.elapsed() < span {
                let (path, request) = &calls[next.fetch_add(1, Ordering::Relaxed) % calls.len()];
                let answer = caller.ask(path, request.clone()).await?;
                if answer.len() < FILE_BYTES {
                    return Err("an answer has its file".into());
                }
            }
            Outcome::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(float(next.load(Ordering::Relaxed)) / began.elapsed().as_secs_f64())
}
