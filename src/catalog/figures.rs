//! What all roots come to, in numbers.

use super::{Figures, Holdings, Keeper};
use crate::domain::{Reach, Severity};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How much was searched since the start.
#[derive(Debug, Default)]
pub(super) struct Searches {
    full: AtomicU64,
    partial: AtomicU64,
    micros: AtomicU64,
}

impl Searches {
    /// Counts one that ended.
    pub(super) fn count(&self, is_full: bool, took: Duration) {
        let kind = if is_full { &self.full } else { &self.partial };
        kind.fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }
}

impl Keeper {
    /// Ends when the watcher has told what it was told before this call. Where there is no watcher,
    /// roots are polled, and it ends at once.
    pub async fn is_watching(&self) {
        self.0.watcher.barrier().await;
    }

    /// What is held of the roots that this is bound to, in numbers. Costs as much as all figures.
    #[must_use]
    pub fn holdings(&self) -> Holdings {
        let bound = (*self.1 != Reach::All).then(|| self.bound().number);
        let held: Vec<_> = {
            let ledger = self.ledger();
            let own = ledger.all().filter(|(key, _)| bound.is_none_or(|own| own == key.bound));
            own.map(|(_, held)| held.map(|held| held.content.clone())).collect()
        };
        let mut holdings = Holdings::default();
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
    pub fn figures(&self) -> Figures {
        let watching = self.watching();
        let (revision, held) = {
            let ledger = self.ledger();
            let held: Vec<_> = ledger.all().map(|(_, held)| held.cloned()).collect();
            (ledger.revision(), held)
        };
        let searches = &self.0.searches;
        let micros = searches.micros.load(Ordering::Relaxed);
        let mut figures = Figures {
            watching,
            revision,
            full_searches: searches.full.load(Ordering::Relaxed),
            partial_searches: searches.partial.load(Ordering::Relaxed),
            search_time: Duration::from_micros(micros),
            ready: 0,
            pending: 0,
            unavailable: HashMap::new(),
            skills: 0,
            diagnostics: HashMap::new(),
        };
        for held in held {
            match held.map(|held| held.content) {
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
