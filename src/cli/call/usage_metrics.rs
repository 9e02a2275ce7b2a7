//! Metrics of `caproot call`: the uses of skills by kind, without skill and session.

use crate::cli::exit;
use crate::cli::failure::CommandFailure;
use crate::cli::output::print_stderr;
use crate::server::serve_metrics_at;
use crate::telemetry::{MetricWriter, ScrapeEndpoint};
use caproot_client::session::UsageTotals;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;
use std::fmt::Error;
use std::net::SocketAddr;
use tokio_util::task::AbortOnDropHandle;

/// Collects the totals of the process at each scrape.
#[derive(Debug)]
struct UsageCollector;

impl Collector for UsageCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let UsageTotals {
            listed,
            read,
            injected,
            searched,
        } = UsageTotals::of_process();

        let mut writer = MetricWriter(&mut encoder);
        writer.write_counter_family(
            "skill_uses",
            "Uses of skills in all sessions, by kind",
            "kind",
            &[
                ("listed", listed),
                ("read", read),
                ("injected", injected),
                ("searched", searched),
            ],
        )?;
        writer.write_dropped_log_lines()
    }
}

/// Parses the address of `--metrics`.
pub fn parse_metrics_address(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse::<SocketAddr>().ok();
    address
        .filter(|address| address.ip().is_loopback())
        .ok_or_else(|| {
            "expected ADDRESS:PORT with an IP address of this machine, such as 127.0.0.1:9465"
                .to_owned()
        })
}

/// Serves the metrics until the handle is dropped, and says where.
pub async fn serve_usage_metrics(
    address: SocketAddr,
) -> Result<AbortOnDropHandle<()>, CommandFailure> {
    let mut registry = Registry::with_prefix("caproot_call");
    registry.register_collector(Box::new(UsageCollector));

    let served = serve_metrics_at(address, ScrapeEndpoint::new(registry)).await;
    let (bound, task) = served.map_err(|error| {
        let sentence = format!("cannot listen on {address} for metrics: {error}");
        CommandFailure::new(exit::CANNOT_LISTEN, sentence)
    })?;
    print_stderr(&[format!("caproot: metrics at http://{bound}/metrics")]);
    Ok(task)
}
