//! Metrics of `caproot link`.

use crate::daemon::telemetry::{MetricWriter, ScrapeEndpoint};
use caproot_link::{BrokerState, LinkStats};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;
use std::fmt::Error;
use std::sync::Arc;
use tokio::sync::watch;

/// Collects the numbers of a link at each scrape.
#[derive(Debug)]
struct LinkCollector {
    stats: Arc<LinkStats>,
    broker: watch::Receiver<BrokerState>,
}

/// Returns the metrics of a link.
pub fn link_metrics(stats: Arc<LinkStats>, broker: watch::Receiver<BrokerState>) -> ScrapeEndpoint {
    let mut registry = Registry::with_prefix("caproot_link");
    registry.register_collector(Box::new(LinkCollector { stats, broker }));
    ScrapeEndpoint::new(registry)
}

impl Collector for LinkCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut writer = MetricWriter(&mut encoder);

        let LinkStats {
            served_environments,
            superseded,
            open_tunnels,
            dials,
            refused_dials,
        } = &*self.stats;

        let BrokerState {
            is_connected,
            losses,
            ..
        } = *self.broker.borrow();

        let help = "Whether the broker is connected: 1 or 0";
        writer.write_gauge("broker_connected", help, u64::from(is_connected))?;
        writer.write_counter("broker_losses", "Lost connections to the broker", losses)?;

        let help = "Environments that this link serves";
        writer.write_gauge("served_environments", help, served_environments.get())?;
        let help = "How often another link took an environment of this link";
        writer.write_counter("superseded", help, superseded.get())?;

        writer.write_gauge("open_tunnels", "Open tunnels", open_tunnels.get())?;
        writer.write_counter("dials", "Requests for tunnels", dials.get())?;
        let help = "Requests for tunnels that the link refused";
        writer.write_counter("refused_dials", help, refused_dials.get())?;
        writer.write_dropped_log_lines()
    }
}
