//! What all roots come to, in numbers.

use super::{CatalogStats, CatalogStore, ScopeStats};
use crate::domain::{AccessScope, Severity};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How much was searched since the start.
#[derive(Debug, Default)]
pub(super) struct ScanCounters {
    full_scans: AtomicU64,
    partial_scans: AtomicU64,
    total_micros: AtomicU64,
}

impl ScanCounters {
    /// Counts one that ended.
    pub(super) fn record_scan(&self, is_full: bool, took: Duration) {
        let kind = if is_full { &self.full_scans } else { &self.partial_scans };
        kind.fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.total_micros.fetch_add(micros, Ordering::Relaxed);
    }
}

impl CatalogStore {
    /// Ends when the watcher has told what it was told before this call. Where there is no watcher,
    /// roots are polled, and it ends at once.
    pub async fn wait_for_watcher(&self) {
        self.0.watcher.barrier().await;
    }

    /// What is held of the roots that this is bound to, in numbers. Costs as much as all figures.
    #[must_use]
    pub fn scope_stats(&self) -> ScopeStats {
        let bound = (*self.1 != AccessScope::All).then(|| self.scope().id);
        let held: Vec<_> = {
            let ledger = self.lock_state();
            let own =
                ledger.iter_roots().filter(|(key, _)| bound.is_none_or(|own| own == key.scope_id));
            own.map(|(_, held)| held.map(|held| held.catalog.clone())).collect()
        };
        let mut holdings = ScopeStats::default();
        for held in held {
            match held {
                None => holdings.pending += 1,
                Some(Err(_)) => holdings.unavailable += 1,
                Some(Ok(catalog)) => {
                    holdings.ready += 1;
                    holdings.skills += catalog.len();
                    for diagnostic in catalog.diagnostics.kept() {
                        match diagnostic.problem.severity {
                            Severity::Error => holdings.errors += 1,
                            Severity::Warning => holdings.warnings += 1,
                            Severity::Note => {}
                        }
                    }
                }
            }
        }
        holdings
    }

    /// All that is looked after, in numbers. Costs in proportion to what the catalogs hold of
    /// diagnostics.
    #[must_use]
    pub fn stats(&self) -> CatalogStats {
        let watching = self.watch_stats();
        let (revision, held) = {
            let ledger = self.lock_state();
            let held: Vec<_> = ledger.iter_roots().map(|(_, held)| held.cloned()).collect();
            (ledger.revision(), held)
        };
        let searches = &self.0.scan_counters;
        let micros = searches.total_micros.load(Ordering::Relaxed);
        let mut figures = CatalogStats {
            watch: watching,
            revision,
            full_scans: searches.full_scans.load(Ordering::Relaxed),
            partial_scans: searches.partial_scans.load(Ordering::Relaxed),
            scan_time: Duration::from_micros(micros),
            ready: 0,
            pending: 0,
            unavailable: HashMap::new(),
            skills: 0,
            diagnostics: HashMap::new(),
        };
        for held in held {
            match held.map(|held| held.catalog) {
                None => figures.pending += 1,
                Some(Err(reason)) => *figures.unavailable.entry(reason).or_default() += 1,
                Some(Ok(catalog)) => {
                    figures.ready += 1;
                    figures.skills += catalog.len() as u64;
                    for diagnostic in catalog.diagnostics.kept() {
                        *figures.diagnostics.entry(diagnostic.problem.code).or_default() += 1;
                    }
                }
            }
        }
        figures
    }
}
