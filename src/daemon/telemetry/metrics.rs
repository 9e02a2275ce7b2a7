//! Metrics of the daemon.

use super::call_metrics::CallMetrics;
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

/// Metrics of one daemon.
#[derive(Debug)]
pub struct Metrics {
    /// Endpoint of all metrics.
    pub endpoint: ScrapeEndpoint,
    /// Metrics of the calls.
    pub calls: CallMetrics,
}

impl Metrics {
    /// Returns the metrics of a daemon, and of calls that [`Metrics::calls`] counts.
    #[must_use]
    pub fn new(collector: ScrapeCollector) -> Self {
        let mut registry = Registry::with_prefix("caproot");
        registry.register(
            "build",
            "Version of the daemon; the value is always 1",
            Info::new([("version", env!("CARGO_PKG_VERSION"))]),
        );
        let calls = CallMetrics::new(&mut registry);
        registry.register_collector(Box::new(collector));
        Self {
            endpoint: ScrapeEndpoint::new(registry),
            calls,
        }
    }
}

/// Collects the metrics that have no counter in the registry, at each scrape.
#[derive(Debug)]
pub struct ScrapeCollector {
    /// Catalogs of the daemon.
    pub store: CatalogStore,
    /// Start of the daemon.
    pub started_at: SystemTime,
    /// State of the config file.
    pub config: watch::Receiver<ConfigState>,
    /// Expiry of the daemon's certificate, if the daemon has TLS.
    pub certificate_expiry: Option<watch::Receiver<SystemTime>>,
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
        writer.write_family(
            "diagnostics",
            "Diagnostics in all catalogs, by code",
            ConstGauge::new,
            DiagnosticCode::ALL
                .into_iter()
                .filter(|code| !DiagnosticCode::CHECK_ONLY.contains(code))
                .map(|code| {
                    let count = diagnostics.get(&code).copied().unwrap_or(0);
                    ([("code", code.name())], count)
                }),
        )?;

        writer.write_family(
            "scans",
            "Completed scans: full scans of a root, and partial scans of changed directories",
            ConstCounter::new,
            [("full", full_scans), ("partial", partial_scans)]
                .map(|(kind, count)| ([("kind", kind)], count)),
        )?;
        writer.write_metric(
            "scan",
            "Total duration of all scans, including waits for the disk",
            Some(&Unit::Seconds),
            &ConstCounter::new(scan_time.as_secs_f64()),
        )?;

        writer.write_watch_metrics(&watch)?;
        writer.write_dropped_log_lines()
    }
}

impl ScrapeCollector {
    /// Writes the metrics of the process: its start, its configuration and its certificate.
    fn write_process_metrics(&self, writer: &mut MetricWriter<'_, '_>) -> Result<(), Error> {
        writer.write_time(
            "start_time",
            "Unix time of the daemon's start",
            unix_seconds(self.started_at),
        )?;

        writer.write_config_metrics(&self.config.borrow())?;

        let expiry = self.certificate_expiry.as_ref();
        writer.write_time(
            "tls_certificate_expiry_timestamp",
            "Unix time at which the daemon's certificate expires; 0 without TLS",
            expiry.map_or(0, |time| unix_seconds(*time.borrow())),
        )
    }

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
                ("approved", counts.approved),
                ("changed", counts.changed),
                ("unknown", counts.unknown),
            ]
            .map(|(state, count)| ([("state", state)], count as u64));
            writer.write_family(name, help, ConstGauge::new, states)?;
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
        writer.write_gauge(
            "lock_plugins",
            "Plugins of the lock in force",
            plugins as u64,
        )?;

        writer.write_gauge(
            "lock_reload_failed",
            "Whether the last new lock was rejected: 1 or 0",
            self.config.borrow().lock_rejection.is_some().into(),
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
        self.write_family(
            "reloads",
            "Reloads of the configuration, by outcome",
            ConstCounter::new,
            [
                ([("outcome", "applied")], config.applied_reloads),
                ([("outcome", "rejected")], config.rejected_reloads),
            ],
        )?;

        self.write_time(
            "config_time",
            "Unix time at which the applied configuration was read",
            config.read_at.as_secs(),
        )?;

        self.write_gauge(
            "config_reload_failed",
            "Whether the last reload was rejected: 1 or 0",
            config.last_rejection.is_some().into(),
        )?;
        self.write_gauge(
            "config_keys_pending_restart",
            "Keys of the config file whose new values require a restart",
            config.restart_required.len() as u64,
        )
    }

    /// Writes the numbers of roots by kind and state, and of unavailable roots by kind and reason.
    fn write_root_metrics(&mut self, kinds: &[(&str, RootStateCounts)]) -> Result<(), Error> {
        let states = kinds.iter().flat_map(|(kind, counts)| {
            [
                ("ready", counts.ready),
                ("pending", counts.pending),
                ("unavailable", counts.unavailable_count()),
            ]
            .map(|(state, count)| ([("kind", *kind), ("state", state)], count))
        });
        let help = "Roots in use, by kind and state";
        self.write_family("roots", help, ConstGauge::new, states)?;

        let reasons = kinds.iter().flat_map(|(kind, counts)| {
            RootReason::ALL.map(|reason| {
                // Reasons with the same name on the wire share a series.
                let of_reason = counts.unavailable.iter();
                let count: u64 = of_reason
                    .filter(|(other, _)| other.name() == reason.name())
                    .map(|(_, count)| count)
                    .sum();
                ([("kind", *kind), ("reason", reason.name())], count)
            })
        });
        let help = "Roots in state unavailable, by kind and reason";
        self.write_family("roots_unavailable", help, ConstGauge::new, reasons)
    }

    /// Writes the metrics of the watcher.
    fn write_watch_metrics(&mut self, watch: &WatchStats) -> Result<(), Error> {
        self.write_gauge(
            "roots_polling",
            "Roots that are polled, because inotify does not report all their changes",
            watch.polling_roots as u64,
        )?;
        self.write_gauge(
            "watcher_running",
            "Whether the daemon has an inotify instance: 1 or 0",
            watch.has_inotify.into(),
        )?;
        self.write_gauge(
            "watches",
            "Watched directories, and watched files with hard links",
            watch.watches_used as u64,
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

    /// Writes a metric without labels. The unit is a suffix of the name.
    fn write_metric(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        metric: &impl EncodeMetric,
    ) -> Result<(), Error> {
        metric.encode(self.begin(name, help, unit, metric.metric_type())?)
    }

    fn write_time(&mut self, name: &str, help: &str, seconds: u64) -> Result<(), Error> {
        self.write_metric(name, help, Some(&Unit::Seconds), &ConstGauge::new(seconds))
    }

    pub(crate) fn write_gauge(&mut self, name: &str, help: &str, value: u64) -> Result<(), Error> {
        self.write_metric(name, help, None, &ConstGauge::new(value))
    }

    pub(crate) fn write_counter(
        &mut self,
        name: &str,
        help: &str,
        value: u64,
    ) -> Result<(), Error> {
        self.write_metric(name, help, None, &ConstCounter::new(value))
    }

    /// Writes the values of a metric with labels.
    fn write_family<'l, M: EncodeMetric, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        metric: fn(u64) -> M,
        values: impl IntoIterator<Item = ([(&'l str, &'l str); N], u64)>,
    ) -> Result<(), Error> {
        let mut family = self.begin(name, help, None, metric(0).metric_type())?;
        for (labels, value) in values {
            metric(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
