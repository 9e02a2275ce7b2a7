//! All metrics, and those of them that are read off the keeper at each scrape. README's table says
//! what each means.

use super::call_metrics::{CallMetrics, CallMetricsLayer};
use crate::catalog::{CatalogStats, CatalogStore};
use crate::domain::{ConfigState, DiagnosticCode, RootReason};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use std::fmt::Error;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// The metrics of one daemon. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    calls: CallMetrics,
}

impl Metrics {
    /// The metrics of a keeper, and of calls that go through the layer.
    #[must_use]
    pub fn new(
        keeper: CatalogStore,
        started: SystemTime,
        config: watch::Receiver<ConfigState>,
    ) -> Self {
        let mut registry = Registry::with_prefix("caproot");
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The daemon's version", version);
        let calls = CallMetrics::new(&mut registry);
        registry.register_collector(Box::new(ScrapeCollector {
            store: keeper,
            started_at: started,
            config,
        }));
        Self { registry: Arc::new(registry), calls }
    }

    /// Counts the calls of the service that it wraps.
    #[must_use]
    pub fn layer(&self) -> CallMetricsLayer {
        CallMetricsLayer(self.calls.clone())
    }

    /// All of them as `OpenMetrics` text.
    pub fn render(&self) -> Result<String, Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// What is read off at each scrape.
#[derive(Debug)]
struct ScrapeCollector {
    store: CatalogStore,
    started_at: SystemTime,
    config: watch::Receiver<ConfigState>,
}

impl Collector for ScrapeCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let CatalogStats {
            watch: watching,
            revision,
            full_scans: full_searches,
            partial_scans: partial_searches,
            scan_time: search_time,
            ready,
            pending,
            unavailable,
            skills,
            diagnostics,
        } = self.store.stats();
        let started = self.started_at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut out = MetricWriter(&mut encoder);
        out.write_gauge("start_time_seconds", "When the daemon started, in Unix time", started)?;
        out.write_config_metrics(&self.config.borrow())?;
        out.write_counter("revisions", "Changes of any catalog that were published", revision)?;
        out.write_gauge_family(
            "roots",
            "Roots that are looked after, by state",
            "state",
            &[("ready", ready), ("pending", pending), ("unavailable", unavailable.values().sum())],
        )?;
        let reasons = RootReason::ALL.map(|reason| {
            let named = unavailable.iter().filter(|(other, _)| other.name() == reason.name());
            (reason.name(), named.map(|(_, count)| count).sum())
        });
        out.write_gauge_family(
            "roots_unavailable",
            "Roots that cannot be used, by reason",
            "reason",
            &reasons,
        )?;
        out.write_gauge("roots_polling", "Roots without events", watching.polling_roots as u64)?;
        out.write_gauge("skills", "Skills in the catalogs", skills)?;
        let codes = DiagnosticCode::ALL
            .map(|code| (code.name(), diagnostics.get(&code).copied().unwrap_or(0)));
        out.write_gauge_family(
            "diagnostics",
            "Diagnostics that the catalogs hold, by code",
            "code",
            &codes,
        )?;
        out.write_counter_family(
            "scans",
            "Searches of a root, whole or of what changed",
            "kind",
            &[("full", full_searches), ("partial", partial_searches)],
        )?;
        let seconds = search_time.as_secs_f64();
        let metric = ConstCounter::new(seconds);
        let help = "Time that searches took";
        let metric_encoder =
            out.0.encode_descriptor("scan", help, Some(&Unit::Seconds), MetricType::Counter)?;
        metric.encode(metric_encoder)?;
        let running = u64::from(watching.has_inotify);
        out.write_gauge("watcher_running", "Whether there is an inotify instance", running)?;
        out.write_gauge(
            "watches",
            "Directories and files that are watched",
            watching.watches_used as u64,
        )?;
        out.write_gauge(
            "watches_limit",
            "Directories and files that the daemon's user may watch; 0 if not known",
            watching.watches_limit,
        )?;
        let overflows = watching.overflows;
        out.write_counter(
            "watch_overflows",
            "Overflows of the kernel's queue of events",
            overflows,
        )?;
        let repairs = watching.missed_changes;
        out.write_counter("missed_changes", "Changes that only an audit found", repairs)
    }
}

/// Writes one metric after the other.
struct MetricWriter<'a, 'b>(&'a mut DescriptorEncoder<'b>);

impl MetricWriter<'_, '_> {
    fn write_config_metrics(&mut self, config: &ConfigState) -> Result<(), Error> {
        self.write_counter_family(
            "reloads",
            "Reloads of the configuration, by outcome",
            "outcome",
            &[("applied", config.applied_reloads), ("rejected", config.rejected_reloads)],
        )?;
        let read_at = config.read_at.as_secs();
        let help = "When the configuration in force was read, in Unix time";
        self.write_gauge("config_time_seconds", help, read_at)?;
        let is_refused = u64::from(config.last_rejection.is_some());
        self.write_gauge(
            "config_reload_failed",
            "Whether the last reload was rejected",
            is_refused,
        )?;
        let waiting = config.restart_required.len() as u64;
        self.write_gauge(
            "config_keys_pending_restart",
            "Keys whose new values wait for a restart",
            waiting,
        )
    }

    fn write_gauge(&mut self, name: &str, help: &str, value: u64) -> Result<(), Error> {
        let metric = ConstGauge::new(value);
        metric.encode(self.0.encode_descriptor(name, help, None, MetricType::Gauge)?)
    }

    fn write_counter(&mut self, name: &str, help: &str, value: u64) -> Result<(), Error> {
        let metric = ConstCounter::new(value);
        metric.encode(self.0.encode_descriptor(name, help, None, MetricType::Counter)?)
    }

    fn write_gauge_family(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: &[(&str, u64)],
    ) -> Result<(), Error> {
        self.write_family((name, help, MetricType::Gauge), label, values, ConstGauge::new)
    }

    fn write_counter_family(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: &[(&str, u64)],
    ) -> Result<(), Error> {
        self.write_family((name, help, MetricType::Counter), label, values, ConstCounter::new)
    }

    fn write_family<M: EncodeMetric>(
        &mut self,
        (name, help, kind): (&str, &str, MetricType),
        label: &str,
        values: &[(&str, u64)],
        metric: impl Fn(u64) -> M,
    ) -> Result<(), Error> {
        let mut family = self.0.encode_descriptor(name, help, None, kind)?;
        for (of, value) in values {
            let labels = [(label, *of)];
            metric(*value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
