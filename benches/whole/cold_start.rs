//! Time from the start of the daemon to its first complete list, compared with a walk that only
//! reads the files.

use crate::client::{published_roots, read_list};
use crate::context::{Context, Outcome};
use crate::parallel_walk::walk;
use crate::report::{MeasurementResult, Row, Target};
use crate::server::Server;
use crate::stats::ms;
use caproot_core::proto::caproot::v1 as pb;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Daemon that has listed everything that it publishes.
pub(crate) struct StartedDaemon {
    pub(crate) server: Server,
    pub(crate) roots: Vec<pb::SelectedCapabilityRoot>,
    pub(crate) took: Duration,
    pub(crate) skills: usize,
}

pub(crate) async fn measure(context: &Context<'_>) -> Outcome<MeasurementResult> {
    let mut rows = Vec::new();
    for (skills, most) in [(2_000, 3.5), (10_000, 3.3)] {
        let tree = context.tree(skills, 1)?;
        rows.push(row(context, &tree.roots, "generated", Target::AtMost(most)).await?);
    }
    for dir in &context.options.trees {
        let name = dir.file_name().unwrap_or(dir.as_os_str()).to_string_lossy();
        // Manifests, sidecars, commands and agents are read too.
        let target = Target::AtMost(4.5);
        rows.push(row(context, std::slice::from_ref(dir), &name, target).await?);
    }
    Ok(rows.into())
}

async fn row(context: &Context<'_>, roots: &[PathBuf], name: &str, target: Target) -> Outcome<Row> {
    // Warms the page cache.
    walk(roots);
    let skills = start(roots).await?.skills;
    let mut pairs = Vec::new();
    for _ in 0..context.rounds {
        let cold = start(roots).await?;
        pairs.push((ms(cold.took), ms(walk(roots))));
    }
    Ok(Row::ratio(
        format!("cold: start to first whole list, {skills} skills ({name})"),
        "a parallel walk that only opens and reads the same files",
        "ms",
        &pairs,
        target,
    ))
}

/// Starts a daemon and reads its complete list.
pub(crate) async fn start(roots: &[PathBuf]) -> Outcome<StartedDaemon> {
    start_with(roots, &[]).await
}

/// Starts a daemon with more arguments, and reads its complete list.
pub(crate) async fn start_with(roots: &[PathBuf], arguments: &[&str]) -> Outcome<StartedDaemon> {
    let began = Instant::now();
    let server = Server::start_caproot_with(roots, arguments)?;
    let channel = server.connect().await?;
    let mut client = pb::capability_service_client::CapabilityServiceClient::new(channel.clone());
    let roots = published_roots(&mut client).await?;
    let (_, skills) = read_list(&mut crate::client::RawClient::new(channel), &roots).await?;
    Ok(StartedDaemon {
        server,
        roots,
        took: began.elapsed(),
        skills,
    })
}
