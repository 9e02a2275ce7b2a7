//! The `limits` of a config file: which there are, and how far each may be moved.

use super::section::{ConfigReader, ConfigSection};
use crate::domain::Limits;
use crate::domain::limits::MAX_DIAGNOSTICS;

/// One limit: its key, which is that of the wire, and its bounds.
pub(super) struct LimitBounds {
    pub(super) key: &'static str,
    pub(super) least: u64,
    pub(super) most: u64,
    /// Counted in bytes; may be written as a size.
    pub(super) bytes: bool,
}

/// Beyond these a daemon would be of no use, or would take memory for hours before it notices.
pub(super) const ALL: [LimitBounds; KEYS.len()] = [
    count("max_roots", 1, 4_096),
    count("max_depth", 1, 1_000),
    count("max_directories", 1, 10_000_000),
    count("max_entries", 1, 100_000_000),
    count("max_skills", 1, 1_000_000),
    LimitBounds { key: "max_file_bytes", least: 1 << 10, most: 16 << 30, bytes: true },
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

/// The keys of `limits`.
pub(super) const KEYS: [&str; 16] = [
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

const fn count(key: &'static str, least: u64, most: u64) -> LimitBounds {
    LimitBounds { key, least, most, bytes: false }
}

/// The limits in force: those given, else the defaults.
pub(super) fn read(section: &ConfigSection<'_>, checker: &mut ConfigReader<'_>) -> Limits {
    let mut given = |key: &str| {
        let limit = ALL.iter().find(|limit| limit.key == key)?;
        let item = section.get(key)?;
        let bounds = limit.least..=limit.most;
        if limit.bytes { checker.bytes(&item, &bounds) } else { checker.count(&item, &bounds) }
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
                "leaves max_cached_roots, {}, under max_roots, {roots}: a request for so many would \
                 never be answered whole",
                limits.max_cached_roots
            );
            checker.report_error(&item, reason);
        }
    }
    limits
}
