//! Reads of small files, 64 in flight on one connection, compared with the same bytes from memory,
//! with the same bytes read by the same system calls, and with their digest, too.

use crate::bare;
use crate::client::{READ, RawClient, read_list};
use crate::cold_start;
use crate::context::{Context, Outcome};
use crate::report::{MeasurementResult, Row, Target};
use crate::server::Server;
use crate::stats::{float, ms, quantile_pairs};
use crate::trees::Plan;
use bytes::Bytes;
use caproot_core::proto::caproot::v1 as pb;
use prost::Message as _;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const SKILLS: usize = 2_000;
const FILE_BYTES: usize = 8 << 10;
const IN_FLIGHT: usize = 64;

/// A way in which the bare server answers.
#[derive(Clone, Copy)]
struct Side {
    path: fn(usize) -> String,
    beside: &'static str,
    target: Target,
}

const SIDES: [Side; 3] = [
    Side {
        path: bare::response_path,
        beside: "unary answers of the same bytes by a bare tonic server, from memory",
        target: Target::None,
    },
    Side {
        path: bare::file_path,
        beside: "the same bytes read by a bare tonic server, with the same system calls",
        target: Target::AtLeast(0.8),
    },
    Side {
        path: bare::digest_path,
        beside: "the same, with the SHA-256 of the bytes",
        target: Target::AtLeast(0.88),
    },
];

/// Path and request of a call.
type Call = (String, Bytes);

pub(crate) async fn measure(context: &Context<'_>) -> Outcome<MeasurementResult> {
    let plan = Plan {
        skills: SKILLS,
        bytes: FILE_BYTES,
        roots: 1,
        seed: 1,
    };
    let tree = context.tree_of(plan)?;
    let daemon = cold_start::start(&tree.roots).await?;
    let mut caller = daemon.server.raw_client().await?;
    let answers = context.dir("read")?;
    let mut own = Vec::new();
    let mut others = SIDES.map(|_| Vec::new());
    for page in read_list(&mut caller, &daemon.roots).await?.0 {
        let page = pb::ListSkillsResponse::decode(page.answer)?;
        for skill in page.skills {
            let request = pb::ReadResourceRequest {
                root: daemon.roots.first().cloned(),
                package: skill.package,
                ..pb::ReadResourceRequest::default()
            };
            let request = Bytes::from(request.encode_to_vec());
            let answer = caller.call(READ, request.clone()).await?;
            fs::write(answers.join(own.len().to_string()), answer)?;
            for (calls, side) in others.iter_mut().zip(SIDES) {
                calls.push(((side.path)(own.len()), request.clone()));
            }
            own.push((READ.to_owned(), request));
        }
    }
    let bare = Server::start_bare(&answers)?;
    let other = bare.raw_client().await?;
    let span = Duration::from_millis(if context.options.quick { 500 } else { 3_000 });
    let (own, others) = (Arc::new(own), others.map(Arc::new));
    // Warms both servers.
    time_reads(&caller, &own, span / 2).await?;
    for calls in &others {
        time_reads(&other, calls, span / 2).await?;
    }
    let mut rates = SIDES.map(|_| Vec::new());
    let mut rounds = Vec::new();
    for _ in 0..context.rounds {
        let (rate, times) = time_reads(&caller, &own, span).await?;
        let mut side_times = Vec::new();
        for (calls, rates) in others.iter().zip(&mut rates) {
            let (side_rate, times) = time_reads(&other, calls, span).await?;
            rates.push((rate, side_rate));
            side_times.push(times);
        }
        rounds.push((times, side_times.swap_remove(0)));
    }

    let what = format!("reads of 8 KiB files, {IN_FLIGHT} in flight");
    let mut rows: Vec<_> = rates
        .iter()
        .zip(SIDES)
        .map(|(rates, side)| Row::ratio(&what, side.beside, "a second", rates, side.target))
        .collect();
    for (name, part) in [("p50", 0.5), ("p99", 0.99)] {
        let pairs = quantile_pairs(&rounds, part);
        let what = format!("{what}, {name} of one");
        let row = Row::ratio(what, SIDES[0].beside, "ms", &pairs, Target::None);
        rows.push(row);
    }
    Ok(rows.into())
}

/// Returns how many responses came per second during a time span, and the milliseconds of each.
async fn time_reads(
    caller: &RawClient,
    calls: &Arc<Vec<Call>>,
    span: Duration,
) -> Outcome<(f64, Vec<f64>)> {
    let next = Arc::new(AtomicUsize::new(0));
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..IN_FLIGHT {
        let (mut caller, calls, next) = (caller.clone(), calls.clone(), next.clone());
        tasks.spawn(async move {
            let mut times = Vec::new();
            while began.elapsed() < span {
                let sent = Instant::now();
                let (path, request) = &calls[next.fetch_add(1, Ordering::Relaxed) % calls.len()];
                let answer = caller.call(path, request.clone()).await?;
                if answer.len() < FILE_BYTES {
                    return Err("a response is shorter than its file".into());
                }
                times.push(ms(sent.elapsed()));
            }
            Outcome::Ok(times)
        });
    }
    let mut times = Vec::new();
    while let Some(done) = tasks.join_next().await {
        times.append(&mut done??);
    }
    Ok((float(times.len()) / began.elapsed().as_secs_f64(), times))
}
