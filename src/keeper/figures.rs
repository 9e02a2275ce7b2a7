//! What all roots come to, in numbers.

use super::{Figures, Keeper};
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
