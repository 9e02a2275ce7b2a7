//! Counters by name.

use std::collections::BTreeMap;
use std::sync::Mutex;

/// Counters by name.
#[derive(Default)]
pub(super) struct Counters(Mutex<BTreeMap<String, u64>>);

impl Counters {
    /// Adds to a counter.
    pub(super) fn add(&self, name: &str, count: usize) {
        let mut counts = self.0.lock().expect("no panic under the lock");
        *counts.entry(name.to_owned()).or_default() += count as u64;
    }

    /// Returns a counter.
    pub(super) fn get(&self, name: &str) -> u64 {
        self.0
            .lock()
            .expect("no panic under the lock")
            .get(name)
            .copied()
            .unwrap_or_default()
    }

    /// Formats all counters with this prefix.
    pub(super) fn format_prefix(&self, prefix: &str) -> String {
        let counts = self.0.lock().expect("no panic under the lock");
        let counts = counts
            .iter()
            .filter_map(|(name, n)| Some((name.strip_prefix(prefix)?, n)));
        counts
            .map(|(name, n)| format!("{name} {n}"))
            .collect::<Vec<_>>()
            .join(", ")
    }
}
