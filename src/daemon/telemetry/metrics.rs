//! Metrics of the daemon.

use super::call_metrics::{CallMetrics, CallMetricsLayer};
use super::logs::dropped_log_lines;
use super::scrape_endpoint::ScrapeEndpoint;
use crate::daemon::catalog::{CatalogStats, CatalogStore, RootStateCounts, WatchStats};
use crate::daemon::model::{ConfigState, DiagnosticCode, RootReason, TrustCounts};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use std::fmt::Error;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// Metrics of one daemon. Cheap to clone; all clones share the counters.
#[derive(Debug, Clone)]
pub struct Metrics {
    endpoint: ScrapeEndpoint,
    calls: CallMetrics,
}

impl Metrics {
    /// Returns the metrics of a catalog store, and of calls through [`Metrics::layer`].
    /// `certificate_expiry` is the expiry of the daemon's certificate, if the daemon has TLS.
    #[must_use]
    pub fn new(
        store: CatalogStore,
        started_at: SystemTime,
        config: watch::Receiver<ConfigState>,
        certificate_expiry: Option<watch::Receiver<SystemTime>>,
    ) -> Self {
        let mut registry = Registry::with_prefix("caproot");
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register(
            "build",
            "Version of the daemon; the value is always 1",
            version,
        );
        let calls = CallMetrics::new(&mut registry);
        registry.register_collector(Box::new(ScrapeCollector {
            store,
            started_at,
            config,
            certificate_expiry,
        }));
        Self {
            endpoint: ScrapeEndpoint::new(registry),
            calls,
        }
    }

    /// Returns a layer that records the calls of the wrapped service.
    #[must_use]
    pub fn layer(&self) -> CallMetricsLayer {
        CallMetricsLayer::new(self.calls.clone())
    }

    /// Returns the endpoint of these metrics.
    #[must_use]
    pub fn endpoint(&self) -> ScrapeEndpoint {
        self.endpoint.clone()
    }
}

/// Collects the metrics that have no counter in the registry, at each scrape.
#[derive(Debug)]
struct ScrapeCollector {
    store: CatalogStore,
    started_at: SystemTime,
    config: watch::Receiver<ConfigState>,
    certificate_expiry: Option<watch::Receiver<SystemTime>>,
}

impl Collector for ScrapeCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let CatalogStats {
            watch,
            revision,
            full_scans,
            partial_scans,
            scan_time,
            published,
            selected,
            skills,
            trust,
            refused_reads,
            diagnostics,
        } = self.store.stats();
        let mut writer = MetricWriter(&mut encoder);
        self.write_process_metrics(&mut writer)?;

        writer.write_counter("revisions", "Published revisions of all catalogs", revision)?;
        writer.write_root_metrics(&[("published", published), ("selected", selected)])?;

        writer.write_gauge("skills", "Skills in all catalogs", skills)?;
        self.write_trust_metrics(&mut writer, trust, refused_reads)?;
        let codes: Vec<_> = DiagnosticCode::ALL
            .into_iter()
            .filter(|code| !DiagnosticCode::CHECK_ONLY.contains(code))
            .map(|code| (code.name(), diagnostics.get(&code).copied().unwrap_or(0)))
            .collect();
        writer.write_gauge_family(
            "diagnostics",
            "Diagnostics in all catalogs, by code",
            "code",
            &codes,
        )?;

        writer.write_counter_family(
            "scans",
            "Completed scans: full scans of a root, and partial scans of changed directories",
            "kind",
            &[("full", full_scans), ("partial", partial_scans)],
        )?;
        let scan_seconds = ConstCounter::new(scan_time.as_secs_f64());
        let help = "Total duration of all scans, including waits for the disk";
        let unit = Some(&Unit::Seconds);
        scan_seconds.encode(writer.begin("scan", help, unit, MetricType::Counter)?)?;

        writer.write_watch_metrics(&watch)?;
        writer.write_dropped_log_lines()
    }
}

impl ScrapeCollector {
    /// Writes the metrics of the process: its start, its configuration and its certificate.
    fn write_process_metrics(&self, writer: &mut MetricWriter<'_, '_>) -> Result<(), Error> {
        let help = "Unix time of the daemon's start";
        writer.write_time("start_time", help, unix_seconds(self.started_at))?;

        writer.write_config_metrics(&self.config.borrow())?;

        let expiry = self
            .certificate_expiry
            .as_ref()
            .map_or(0, |time| unix_seconds(*time.borrow()));
        writer.write_time(
            "tls_certificate_expiry_timestamp",
            "Unix time at which the daemon's certificate expires; 0 without TLS",
            expiry,
        )
    }
}

impl ScrapeCollector {
    /// Writes the metrics of the lock. Without a lock, all are 0.
    fn write_trust_metrics(
        &self,
        writer: &mut MetricWriter<'_, '_>,
        trust: TrustCounts,
        refused_reads: u64,
    ) -> Result<(), Error> {
        let families = [
            (
                "skills_by_trust",
                "Skills of the roots to which a lock applies, by their approval",
                trust.skills,
            ),
            (
                "plugins_by_trust",
                "Plugins of the roots to which a lock applies, by their approval",
                trust.plugins,
            ),
        ];
        for (name, help, counts) in families {
            let states = [
                ("approved", counts.approved as u64),
                ("changed", counts.changed as u64),
                ("unknown", counts.unknown as u64),
            ];
            writer.write_gauge_family(name, help, "state", &states)?;
        }
        writer.write_counter(
            "trust_refused_reads",
            "Reads that found bytes that are not approved",
            refused_reads,
        )?;

        let policy = self.store.trust();
        let lock = policy.as_ref().map(|policy| &policy.lock.lock);
        let skills = lock.map_or(0, |lock| lock.skills().len());
        writer.write_gauge("lock_skills", "Skills of the lock in force", skills as u64)?;
        let plugins = lock.map_or(0, |lock| lock.plugins().len());
        let help = "Plugins of the lock in force";
        writer.write_gauge("lock_plugins", help, plugins as u64)?;

        let is_rejected = u64::from(self.config.borrow().lock_rejection.is_some());
        writer.write_gauge(
            "lock_reload_failed",
            "Whether the last new lock was rejected: 1 or 0",
            is_rejected,
        )
    }
}

fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

/// Writes metrics to an encoder.
#[derive(Debug)]
pub(crate) struct MetricWriter<'a, 'b>(pub(crate) &'a mut DescriptorEncoder<'b>);

impl MetricWriter<'_, '_> {
    fn write_config_metrics(&mut self, config: &ConfigState) -> Result<(), Error> {
        self.write_counter_family(
            "reloads",
            "Reloads of the configuration, by outcome",
            "outcome",
            &[
                ("applied", config.applied_reloads),
                ("rejected", config.rejected_reloads),
            ],
        )?;
        let loaded_at = config.read_at.as_secs();
        let help = "Unix time at which the applied configuration was read";
        self.write_time("config_time", help, loaded_at)?;
        let is_rejected = u64::from(config.last_rejection.is_some());
        let help = "Whether the last reload was rejected: 1 or 0";
        self.write_gauge("config_reload_failed", help, is_rejected)?;
        let pending = config.restart_required.len() as u64;
        let help = "Keys of the config file whose new values require a restart";
        self.write_gauge("config_keys_pending_restart", help, pending)
    }

    /// Writes the numbers of roots by kind and state, and of unavailable roots by kind and reason.
    fn write_root_metrics(&mut self, kinds: &[(&str, RootStateCounts)]) -> Result<(), Error> {
        let help = "Roots in use, by kind and state";
        let mut roots = self.begin("roots", help, None, MetricType::Gauge)?;
        for (kind, counts) in kinds {
            let states = [
                ("ready", counts.ready),
                ("pending", counts.pending),
                ("unavailable", counts.unavailable_count()),
            ];
            for (state, count) in states {
                let labels = [("kind", *kind), ("state", state)];
                ConstGauge::new(count).encode(roots.encode_family(&labels)?)?;
            }
        }

        let help = "Roots in state unavailable, by kind and reason";
        let mut unavailable = self.begin("roots_unavailable", help, None, MetricType::Gauge)?;
        for (kind, counts) in kinds {
            for reason in RootReason::ALL {
                // Reasons with the same name on the wire share a series.
                let of_reason = counts.unavailable.iter();
                let count: u64 = of_reason
                    .filter(|(other, _)| other.name() == reason.name())
                    .map(|(_, count)| count)
                    .sum();
                let labels = [("kind", *kind), ("reason", reason.name())];
                ConstGauge::new(count).encode(unavailable.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    /// Writes the metrics of the watcher.
    fn write_watch_metrics(&mut self, watch: &WatchStats) -> Result<(), Error> {
        self.write_gauge(
            "roots_polling",
            "Roots that are polled, because inotify does not report all their changes",
            watch.polling_roots as u64,
        )?;
        let is_running = u64::from(watch.has_inotify);
        self.write_gauge(
            "watcher_running",
            "Whether the daemon has an inotify instance: 1 or 0",
            is_running,
        )?;
        let watches = watch.watches_used as u64;
        self.write_gauge(
            "watches",
            "Watched directories, and watched files with hard links",
            watches,
        )?;
        self.write_gauge(
            "watches_limit",
            "inotify watches that the user of the daemon may have; 0 if unknown",
            watch.watches_limit,
        )?;
        self.write_counter(
            "watch_overflows",
            "Overflows of the kernel's event queue; a full scan follows each overflow",
            watch.overflows,
        )?;
        self.write_counter(
            "missed_changes",
            "Changes that only a periodic full scan found",
            watch.missed_changes,
        )
    }

    pub(crate) fn write_dropped_log_lines(&mut self) -> Result<(), Error> {
        self.write_counter(
            "dropped_log_lines",
            "Lines of the log that were dropped, because the reader of the log was too slow or away",
            dropped_log_lines(),
        )
    }

    /// Writes name, type, unit and HELP text of a metric. The text gets a full stop, as in the
    /// registry.
    fn begin<'s>(
        &'s mut self,
        name: &'s str,
        help: &str,
        unit: Option<&'s Unit>,
        kind: MetricType,
    ) -> Result<MetricEncoder<'s>, Error> {
        self.0
            .encode_descriptor(name, &format!("{help}."), unit, kind)
    }

    /// Writes a Unix time. The unit is a suffix of the name.
    fn write_time(&mut self, name: &str, help: &str, seconds: u64) -> Result<(), Error> {
        let metric = ConstGauge::new(seconds);
        metric.encode(self.begin(name, help, Some(&Unit::Seconds), MetricType::Gauge)?)
    }

    pub(crate) fn write_gauge(&mut self, name: &str, help: &str, value: u64) -> Result<(), Error> {
        let metric = ConstGauge::new(value);
        metric.encode(self.begin(name, help, None, MetricType::Gauge)?)
    }

    pub(crate) fn write_counter(
        &mut self,
        name: &str,
        help: &str,
        value: u64,
    ) -> Result<(), Error> {
        let metric = ConstCounter::new(value);
        metric.encode(self.begin(name, help, None, MetricType::Counter)?)
    }

    fn write_gauge_family(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: &[(&str, u64)],
    ) -> Result<(), Error> {
        self.write_family(
            (name, help, MetricType::Gauge),
            label,
            values,
            ConstGauge::new,
        )
    }

    pub(crate) fn write_counter_family(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: &[(&str, u64)],
    ) -> Result<(), Error> {
        self.write_family(
            (name, help, MetricType::Counter),
            label,
            values,
            ConstCounter::new,
        )
    }

    fn write_family<M: EncodeMetric>(
        &mut self,
        (name, help, kind): (&str, &str, MetricType),
        label: &str,
        values: &[(&str, u64)],
        metric: impl Fn(u64) -> M,
    ) -> Result<(), Error> {
        let mut family = self.begin(name, help, None, kind)?;
        for (label_value, value) in values {
            let labels = [(label, *label_value)];
            metric(*value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
