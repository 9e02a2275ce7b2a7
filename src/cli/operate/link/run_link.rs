//! Runs a link, and checks its config file.

use super::link_file::LinkFile;
use super::link_metrics::link_metrics;
use crate::cli::ask::report::count_with_noun;
use crate::cli::exit;
use crate::cli::failure::{CommandFailure, CommandResult as _};
use crate::cli::file_check::{FileCheckArgs, FileFindings};
use crate::cli::log_args::start_log;
use crate::cli::operate::daemon_signals::DaemonSignals;
use crate::cli::output::print_ready_lines;
use crate::daemon::server::{notify_ready_with, serve_metrics_at};
use caproot_core::text::{SentenceResult as _, escape_text};
use caproot_link::LinkService;
use serde_json::{Map, json};
use std::net::SocketAddr;
use std::path::Path;
use tokio::sync::{Notify, oneshot};
use tokio_util::task::AbortOnDropHandle;

/// Prints the errors of a file, or the number of its environments.
pub fn check_link_file(check: &FileCheckArgs) -> Result<u8, CommandFailure> {
    let findings = match LinkFile::load(&check.file) {
        Ok(LinkFile { link, .. }) => {
            let environments = link.environment_ids.len();
            FileFindings {
                summary: count_with_noun(environments, "environment"),
                counts: Map::from_iter([("environments".to_owned(), json!(environments))]),
                ..FileFindings::default()
            }
        }
        Err(errors) => FileFindings::from_errors(errors.iter()),
    };
    check.print_findings(&findings)
}

/// Runs the link of a file until a signal stops it.
pub async fn run_link(config: &Path) -> Result<u8, CommandFailure> {
    let LinkFile {
        link,
        mut log,
        metrics,
    } = LinkFile::load(config)?;
    // The link logs the events of the broker itself. A directive of the file takes precedence.
    log.filter.insert_str(0, "async_nats=warn,");

    let signals = DaemonSignals::new(false)?;
    let _logs = start_log(&log, None)?;

    let environment_ids = link.environment_ids.clone();
    let service = LinkService::start(link).await.or_exit(exit::BAD_CONFIG)?;
    let _metrics = match metrics {
        None => None,
        Some(address) => Some(serve_link_metrics(&service, address).await?),
    };

    let ready = report_ready(&service, &environment_ids);
    let (stop, stopped) = oneshot::channel();
    let run = service.run(async { drop(stopped.await) });
    // The link has nothing to reload.
    let hangups = Notify::new();
    tokio::select! {
        // Without an outcome, a second signal ended the link.
        ended = signals.run_until_stopped(run, stop, &hangups) => {
            let ended = ended.unwrap_or(Ok(())).context("the link has ended");
            ended.or_exit(exit::INTERNAL)?;
            Ok(exit::OK)
        }
        failure = ready => Err(failure),
    }
}

/// Prints the environments once the link is ready. Returns only if stdout fails.
async fn report_ready(service: &LinkService, environment_ids: &[String]) -> CommandFailure {
    service.wait_until_ready().await;

    let lines: Vec<_> = environment_ids
        .iter()
        .map(|id| format!("linked {}", escape_text(id)))
        .collect();
    let summary = lines.join(", ");
    let printed = print_ready_lines(lines).await;
    notify_ready_with(&summary);

    match printed {
        Ok(()) => std::future::pending().await,
        Err(failure) => failure,
    }
}

/// Serves the metrics of the link until the handle is dropped.
async fn serve_link_metrics(
    service: &LinkService,
    address: SocketAddr,
) -> Result<AbortOnDropHandle<()>, CommandFailure> {
    let endpoint = link_metrics(service.stats(), service.broker().state());
    let served = serve_metrics_at(address, endpoint).await;
    let (bound, task) = served
        .context(format_args!("cannot listen on {address} for metrics"))
        .or_exit(exit::CANNOT_LISTEN)?;

    print_ready_lines(vec![format!("metrics tcp:{bound}")]).await?;
    Ok(task)
}
