//! Reads of small files, 64 in flight on one connection, compared with the same bytes from memory,
//! and with the same bytes read by the same system calls.

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
    let (mut own, mut others, mut files) = (Vec::new(), Vec::new(), Vec::new());
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
            others.push((bare::response_path(own.len()), request.clone()));
            files.push((bare::file_path(own.len()), request.clone()));
            own.push((READ.to_owned(), request));
        }
    }
    let bare = Server::start_bare(&answers)?;
    let other = bare.raw_client().await?;
    let span = Duration::from_millis(if context.options.quick { 500 } else { 3_000 });
    let (own, others, files) = (Arc::new(own), Arc::new(others), Arc::new(files));
    // Warms both servers.
    time_reads(&caller, &own, span / 2).await?;
    time_reads(&other, &others, span / 2).await?;
    time_reads(&other, &files, span / 2).await?;
    let (mut rates, mut file_rates, mut rounds) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..context.rounds {
        let (rate, times) = time_reads(&caller, &own, span).await?;
        let (other_rate, other_times) = time_reads(&other, &others, span).await?;
        let (file_rate, _) = time_reads(&other, &files, span).await?;
        rates.push((rate, other_rate));
        file_rates.push((rate, file_rate));
        rounds.push((times, other_times));
    }
    let what = format!("reads of 8 KiB files, {IN_FLIGHT} in flight");
    let beside = "unary answers of the same bytes by a bare tonic server, from memory";
    let row = |name: &str, part| {
        let pairs = quantile_pairs(&rounds, part);
        Row::ratio(
            format!("{what}, {name} of one"),
            beside,
            "ms",
            &pairs,
            Target::None,
        )
    };
    let rate = Row::ratio(&what, beside, "a second", &rates, Target::AtLeast(0.8));
    let beside_files = "the same bytes read by a bare tonic server, with the same system calls";
    let file_rate = Row::ratio(&what, beside_files, "a second", &file_rates, Target::None);
    Ok(vec![rate, file_rate, row("p50", 0.5), row("p99", 0.99)].into())
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
