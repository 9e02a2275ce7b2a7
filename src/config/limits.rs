//! Reads `limits` of a config file.

#[cfg(test)]
use super::section;
use super::section::{ConfigReader, ConfigSection};
use crate::model::Limits;
use crate::model::limits::MAX_DIAGNOSTICS;

/// Key and bounds of a limit. The protocol uses the same key.
pub struct LimitBounds {
    pub key: &'static str,
    min: u64,
    max: u64,
    /// Whether the limit is a size in bytes.
    is_size: bool,
}

impl LimitBounds {
    /// Returns the bounds as text, such as `1 to 4096`.
    #[cfg(test)]
    pub fn describe(&self) -> String {
        let show = |n| if self.is_size { section::size(n) } else { n.to_string() };
        format!("{} to {}", show(self.min), show(self.max))
    }
}

/// Bounds of all limits. With a value outside of the bounds, the daemon would be useless or could
/// use up the memory.
pub const ALL: [LimitBounds; KEYS.len()] = [
    count("max_roots", 1, 4_096),
    count("max_depth", 1, 1_000),
    count("max_directories", 1, 10_000_000),
    count("max_entries", 1, 100_000_000),
    count("max_skills", 1, 1_000_000),
    LimitBounds { key: "max_file_bytes", min: 1 << 10, max: 16 << 30, is_size: true },
    count("max_cached_roots", 1, 65_536),
    count("max_reads_per_root", 1, 1_024),
    count("max_streams", 1, 65_536),
    count("max_history", 1, 1_024),
    count("max_diagnostics", 1, MAX_DIAGNOSTICS as u64),
    count("max_connections", 1, 65_536),
    count("max_connections_per_caller", 1, 65_536),
    count("max_streams_per_caller", 1, 65_536),
    count("max_calls", 1, 65_536),
    count("max_calls_per_caller", 1, 65_536),
];

/// Keys of the section.
pub const KEYS: [&str; 16] = [
    "max_roots",
    "max_depth",
    "max_directories",
    "max_entries",
    "max_skills",
    "max_file_bytes",
    "max_cached_roots",
    "max_reads_per_root",
    "max_streams",
    "max_history",
    "max_diagnostics",
    "max_connections",
    "max_connections_per_caller",
    "max_streams_per_caller",
    "max_calls",
    "max_calls_per_caller",
];

const fn count(key: &'static str, min: u64, max: u64) -> LimitBounds {
    LimitBounds { key, min, max, is_size: false }
}

/// Reads the limits. Absent keys have their defaults.
pub fn read(section: &ConfigSection<'_>, reader: &mut ConfigReader<'_>) -> Limits {
    let mut given = |key: &str| {
        let limit = ALL.iter().find(|limit| limit.key == key)?;
        let item = section.get(key)?;
        let bounds = limit.min..=limit.max;
        if limit.is_size { reader.bytes(&item, &bounds) } else { reader.count(&item, &bounds) }
    };
    let mut count = |key: &str, default: usize| {
        given(key).map_or(default, |n| usize::try_from(n).unwrap_or(usize::MAX))
    };
    let default = Limits::default();
    // Without `..`, so that a new limit does not compile until it is a key.
    let limits = Limits {
        max_roots: count("max_roots", default.max_roots),
        max_depth: count("max_depth", default.max_depth),
        max_directories: count("max_directories", default.max_directories),
        max_entries: count("max_entries", default.max_entries),
        max_skills: count("max_skills", default.max_skills),
        max_cached_roots: count("max_cached_roots", default.max_cached_roots),
        max_reads_per_root: count("max_reads_per_root", default.max_reads_per_root),
        max_streams: count("max_streams", default.max_streams),
        max_history: count("max_history", default.max_history),
        max_diagnostics: count("max_diagnostics", default.max_diagnostics),
        max_connections: count("max_connections", default.max_connections),
        max_connections_per_caller: count(
            "max_connections_per_caller",
            default.max_connections_per_caller,
        ),
        max_streams_per_caller: count("max_streams_per_caller", default.max_streams_per_caller),
        max_calls: count("max_calls", default.max_calls),
        max_calls_per_caller: count("max_calls_per_caller", default.max_calls_per_caller),
        max_file_bytes: given("max_file_bytes").unwrap_or(default.max_file_bytes),
    };
    if limits.max_cached_roots < limits.max_roots {
        let roots = limits.max_roots;
        let key = ["max_cached_roots", "max_roots"].into_iter().find_map(|key| section.get(key));
        if let Some(item) = key {
            let reason = format!(
                "max_cached_roots, {}, must not be less than max_roots, {roots}: a request for {roots} roots \
                 could never complete",
                limits.max_cached_roots
            );
            reader.report_error(&item, reason);
        }
    }
    limits
}
