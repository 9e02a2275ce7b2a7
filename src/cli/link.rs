//! `caproot link`: connects the daemon of this machine to a NATS broker.

mod link_file;
mod link_metrics;

pub(super) use link_file::LINK_EXAMPLE;

use super::exit;
use super::failure::CommandFailure;
use super::output::{print_ready_lines, write_stdout};
use super::signals::DaemonSignals;
use crate::server::{notify_ready_with, serve_metrics_at};
use crate::telemetry::logs;
use caproot_client::link::LinkService;
use caproot_core::text::{EscapedText, escape_text};
use clap::Args;
use link_file::LinkFile;
use link_metrics::link_metrics;
use std::path::PathBuf;
use tokio::sync::{Notify, oneshot};

/// Connect the daemon of this machine to a NATS broker
///
/// Orchestrators then reach the daemon through the broker, so the machine needs no address and no open
/// port. The link opens no file of a skill, and cannot read the bytes of a tunnel: TLS between
/// orchestrator and daemon runs inside.
///
/// Prints `linked ID` for each environment once the broker passes its dials on and the daemon took a
/// connection. Logs go to stderr. SIGTERM and SIGINT release the environments and stop the link. If
/// another link with the same environment id starts later, this link serves the environment no longer,
/// and claims the environment again once the other link has ended.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot link --config /etc/caproot-link/link.yaml
  caproot link --config link.yaml --check    # errors of the file")]
pub struct LinkArgs {
    /// Config file of the link
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Check the file, without connecting
    #[arg(long)]
    check: bool,
}

/// Runs the link until a signal stops it.
pub async fn run(args: LinkArgs) -> Result<u8, CommandFailure> {
    let loaded = LinkFile::load(&args.config).map_err(|errors| {
        let sentences: Vec<_> = errors.iter().map(ToString::to_string).collect();
        CommandFailure::from_messages(exit::BAD_CONFIG, &sentences)
    })?;
    let LinkFile {
        link,
        mut log,
        metrics,
    } = loaded;
    // The link logs the events of the broker itself. A directive of the file takes precedence.
    log.filter.insert_str(0, "async_nats=warn,");
    if args.check {
        let file = args.config.to_string_lossy();
        write_stdout(|stdout| writeln!(stdout, "ok: {}", EscapedText(&file)))?;
        return Ok(exit::OK);
    }
    let internal = |error: &dyn std::fmt::Display| {
        CommandFailure::new(exit::INTERNAL, format!("the link has ended: {error}"))
    };
    let signals = DaemonSignals::new()?;
    let _logs = logs::init_logging(&log, None)
        .map_err(|sentence| CommandFailure::new(exit::BAD_CONFIG, sentence))?;
    let environment_ids = link.environment_ids.clone();
    let service = LinkService::start(link).await;
    let service = service.map_err(|error| CommandFailure::new(exit::BAD_CONFIG, error))?;
    let _metrics = match metrics {
        None => None,
        Some(address) => {
            let endpoint = link_metrics(service.stats(), service.broker().state());
            let served = serve_metrics_at(address, endpoint).await;
            let (address, task) = served.map_err(|error| {
                let sentence = format!("cannot listen on {address} for metrics: {error}");
                CommandFailure::new(exit::CANNOT_LISTEN, sentence)
            })?;
            print_ready_lines(vec![format!("metrics tcp:{address}")]).await?;
            Some(task)
        }
    };
    let report_ready = async {
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
    };
    let (stop, stopped) = oneshot::channel();
    let run = service.run(async { drop(stopped.await) });
    // The link has nothing to reload.
    let hangups = Notify::new();
    tokio::select! {
        // Without an outcome, a second signal ended the link.
        ended = signals.run_until_stopped(run, stop, &hangups) => {
            ended.unwrap_or(Ok(())).map_err(|error| internal(&error))?;
        }
        failure = report_ready => return Err(failure),
    }
    Ok(exit::OK)
}
