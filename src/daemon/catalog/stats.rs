//! Counters of roots, scans and inotify watches.

use super::view::RootSnapshot;
use crate::daemon::model::catalog::Catalog;
use crate::daemon::model::{DiagnosticCode, RootReason, Severity, TrustCounts};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counters of the whole daemon.
#[derive(Debug, Clone, Default)]
pub struct CatalogStats {
    /// Counters of inotify and polling.
    pub watch: WatchStats,
    /// Current revision.
    pub revision: u64,
    /// Full scans since the start.
    pub full_scans: u64,
    /// Scans of dirty directories since the start.
    pub partial_scans: u64,
    /// Total duration of all scans.
    pub scan_time: Duration,
    /// Roots that the operator published.
    pub published: RootStateCounts,
    /// Roots that only callers selected.
    pub selected: RootStateCounts,
    /// Skills in all catalogs.
    pub skills: u64,
    /// Skills of all roots to which a lock applies, by their approval.
    pub trust: TrustCounts,
    /// Reads that found bytes that are not approved, since the start.
    pub refused_reads: u64,
    /// Diagnostics in all catalogs, by code.
    pub diagnostics: HashMap<DiagnosticCode, u64>,
}

/// Counters of the roots in one access scope.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[allow(missing_docs)] // documented in the protobuf message `CatalogStats`
pub struct ScopeStats {
    pub published: RootStateCounts,
    pub selected: RootStateCounts,
    pub skills: usize,
    pub errors: usize,
    pub warnings: usize,
    pub unrequested: usize,
    pub trust: TrustCounts,
}

/// Numbers of roots by state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RootStateCounts {
    /// Roots with a catalog.
    pub ready: u64,
    /// Roots whose first scan has not ended.
    pub pending: u64,
    /// Roots that cannot be used, by reason.
    pub unavailable: HashMap<RootReason, u64>,
}

/// Root in use, as counted: once for each path.
#[derive(Debug, Clone)]
pub(super) struct CountedRoot {
    /// Whether the operator published the root. Otherwise only callers selected the root.
    pub is_published: bool,
    /// Latest snapshot; `None` if the first scan has not ended.
    pub snapshot: Option<RootSnapshot>,
}

/// Counters of inotify and polling.
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs)] // documented in the protobuf message `WatchStatus`
pub struct WatchStats {
    pub has_inotify: bool,
    pub watches_used: usize,
    pub watches_limit: u64,
    pub overflows: u64,
    pub missed_changes: u64,
    pub roots: usize,
    pub polling_roots: usize,
}

/// Scans since the start of the daemon.
#[derive(Debug, Default)]
pub struct ScanCounters {
    full_scans: AtomicU64,
    partial_scans: AtomicU64,
    total_micros: AtomicU64,
}

impl ScanCounters {
    pub fn record_scan(&self, is_full: bool, duration: Duration) {
        let counter = if is_full {
            &self.full_scans
        } else {
            &self.partial_scans
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.total_micros.fetch_add(micros, Ordering::Relaxed);
    }
}

impl CatalogStats {
    pub(super) fn of_roots(
        watch: WatchStats,
        revision: u64,
        scans: &ScanCounters,
        roots: &[CountedRoot],
    ) -> Self {
        let micros = scans.total_micros.load(Ordering::Relaxed);

        let mut stats = Self {
            watch,
            revision,
            full_scans: scans.full_scans.load(Ordering::Relaxed),
            partial_scans: scans.partial_scans.load(Ordering::Relaxed),
            scan_time: Duration::from_micros(micros),
            ..Self::default()
        };

        for root in roots {
            root.count_in(&mut stats.published, &mut stats.selected);

            let Some(catalog) = root.catalog() else {
                continue;
            };
            stats.skills += catalog.len() as u64;
            stats.trust.add(catalog.trust_counts());
            for diagnostic in catalog.diagnostics.kept() {
                let count = stats.diagnostics.entry(diagnostic.problem.code);
                *count.or_default() += 1;
            }
        }

        stats
    }
}

impl ScopeStats {
    pub(super) fn of_roots(roots: &[CountedRoot]) -> Self {
        let mut stats = Self::default();

        for root in roots {
            root.count_in(&mut stats.published, &mut stats.selected);

            let Some(catalog) = root.catalog() else {
                continue;
            };
            stats.skills += catalog.len();
            stats.trust.add(catalog.trust_counts());
            for diagnostic in catalog.diagnostics.kept() {
                match diagnostic.problem.severity {
                    Severity::Error => stats.errors += 1,
                    Severity::Warning => stats.warnings += 1,
                    Severity::Note => {}
                }
            }
        }

        stats
    }
}

impl CountedRoot {
    /// Counts the root in the counts of its kind.
    fn count_in(&self, published: &mut RootStateCounts, selected: &mut RootStateCounts) {
        let counts = if self.is_published {
            published
        } else {
            selected
        };
        match self.snapshot.as_ref().map(|snapshot| &snapshot.catalog) {
            None => counts.pending += 1,
            Some(Err(reason)) => *counts.unavailable.entry(*reason).or_default() += 1,
            Some(Ok(_)) => counts.ready += 1,
        }
    }

    fn catalog(&self) -> Option<&Catalog> {
        self.snapshot.as_ref()?.catalog.as_deref().ok()
    }
}

impl RootStateCounts {
    /// Returns the number of roots that cannot be used.
    #[must_use]
    pub fn unavailable_count(&self) -> u64 {
        self.unavailable.values().sum()
    }

    /// Returns the number of roots in all states.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.ready + self.pending + self.unavailable_count()
    }
}

impl WatchStats {
    /// Whether more than 80 % of the allowed watches are used.
    #[must_use]
    pub fn is_near_limit(&self) -> bool {
        let used = u64::try_from(self.watches_used).unwrap_or(u64::MAX);
        self.watches_limit > 0 && used > self.watches_limit / 5 * 4
    }
}
