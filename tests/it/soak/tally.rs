//! Counts what happened, by name.

use std::collections::BTreeMap;
use std::sync::Mutex;

/// The counts.
#[derive(Default)]
pub(super) struct Tally(Mutex<BTreeMap<String, u64>>);

impl Tally {
    /// Counts so many more.
    pub(super) fn add(&self, what: &str, count: usize) {
        let mut counts = self.0.lock().expect("no panic while it is held");
        *counts.entry(what.to_owned()).or_default() += count as u64;
    }

    /// How often that happened.
    pub(super) fn of(&self, what: &str) -> u64 {
        self.0.lock().expect("no panic while it is held").get(what).copied().unwrap_or_default()
    }

    /// All counts whose names begin so, one after the other.
    pub(super) fn line(&self, prefix: &str) -> String {
        let counts = self.0.lock().expect("no panic while it is held");
        let counts = counts.iter().filter_map(|(name, n)| Some((name.strip_prefix(prefix)?, n)));
        counts.map(|(name, n)| format!("{name} {n}")).collect::<Vec<_>>().join(", ")
    }
}
