//! Reads `limits` of a config file.

use super::keys::{ConfigKey, KeyDefault, KeyReload, KeyValue, RESTART, RestartRule};
use super::section::{self, ConfigReader, ConfigSection};
use crate::model::Limits;
use crate::model::limits::MAX_DIAGNOSTICS;

/// Keys of the section. The protocol uses the same names. With a value outside of the bounds, the
/// daemon would be useless or could use up the memory.
pub const KEYS: [ConfigKey; 16] = [
    ConfigKey::new(
        "limits.max_roots",
        KeyValue::Count { min: 1, max: 4_096 },
        KeyDefault::Value(|| Limits::default().max_roots.to_string()),
        "Roots in one request.",
    )
    .with_reload(KeyReload::Section),
    ConfigKey::new(
        "limits.max_depth",
        KeyValue::Count { min: 1, max: 1_000 },
        KeyDefault::Value(|| Limits::default().max_depth.to_string()),
        "Levels of directories below a root that are scanned.",
    )
    .with_reload(KeyReload::Section),
    ConfigKey::new(
        "limits.max_directories",
        KeyValue::Count { min: 1, max: 10_000_000 },
        KeyDefault::Value(|| Limits::default().max_directories.to_string()),
        "Directories of a root that are scanned.",
    )
    .with_reload(KeyReload::Section),
    ConfigKey::new(
        "limits.max_entries",
        KeyValue::Count { min: 1, max: 100_000_000 },
        KeyDefault::Value(|| Limits::default().max_entries.to_string()),
        "Directory entries of a root that are scanned.",
    )
    .with_reload(KeyReload::Section),
    ConfigKey::new(
        "limits.max_skills",
        KeyValue::Count { min: 1, max: 1_000_000 },
        KeyDefault::Value(|| Limits::default().max_skills.to_string()),
        "Skills of a root that are listed.",
    )
    .with_reload(KeyReload::Section),
    ConfigKey::new(
        "limits.max_file_bytes",
        KeyValue::Size { min: 1 << 10, max: 16 << 30 },
        KeyDefault::Value(|| section::size(Limits::default().max_file_bytes)),
        "Size of a file that is read.",
    )
    .with_reload(KeyReload::Section),
    ConfigKey::new(
        "limits.max_cached_roots",
        KeyValue::Count { min: 1, max: 65_536 },
        KeyDefault::Value(|| Limits::default().max_cached_roots.to_string()),
        "Roots whose catalogs are in memory. Must not be less than `max_roots`.",
    )
    .with_reload(KeyReload::Section),
    ConfigKey::new(
        "limits.max_reads_per_root",
        KeyValue::Count { min: 1, max: 1_024 },
        KeyDefault::Value(|| Limits::default().max_reads_per_root.to_string()),
        "Concurrent reads of pages of one root.",
    )
    .with_reload(KeyReload::Section),
    ConfigKey::new(
        "limits.max_streams",
        KeyValue::Count { min: 1, max: 65_536 },
        KeyDefault::Value(|| Limits::default().max_streams.to_string()),
        "Open streams of changes.",
    )
    .with_reload(KeyReload::Section),
    ConfigKey::new(
        "limits.max_history",
        KeyValue::Count { min: 1, max: 1_024 },
        KeyDefault::Value(|| Limits::default().max_history.to_string()),
        "Revisions of a root from which a page or a stream can continue.",
    )
    .with_reload(KeyReload::Section),
    ConfigKey::new(
        "limits.max_diagnostics",
        KeyValue::Count { min: 1, max: MAX_DIAGNOSTICS as u64 },
        KeyDefault::Value(|| Limits::default().max_diagnostics.to_string()),
        "Diagnostics of a root that are kept. Further diagnostics are counted.",
    )
    .with_reload(KeyReload::Section),
    ConfigKey::new(
        "limits.max_connections",
        KeyValue::Count { min: 1, max: 65_536 },
        KeyDefault::Value(|| Limits::default().max_connections.to_string()),
        "Open connections. Further connections wait.",
    )
    .with_reload(KeyReload::Restart(RestartRule {
        effect: RESTART,
        differs: |new, old| new.limits.max_connections != old.limits.max_connections,
        keep: |new, old| new.limits.max_connections = old.limits.max_connections,
    })),
    ConfigKey::new(
        "limits.max_connections_per_caller",
        KeyValue::Count { min: 1, max: 65_536 },
        KeyDefault::Value(|| Limits::default().max_connections_per_caller.to_string()),
        "Open connections of one caller, which is a user on a Unix socket and an address \
         on TCP. Further connections are closed.",
    )
    .with_reload(KeyReload::Section),
    ConfigKey::new(
        "limits.max_streams_per_caller",
        KeyValue::Count { min: 1, max: 65_536 },
        KeyDefault::Value(|| Limits::default().max_streams_per_caller.to_string()),
        "Open streams of changes of one caller.",
    )
    .with_reload(KeyReload::Section),
    ConfigKey::new(
        "limits.max_calls",
        KeyValue::Count { min: 1, max: 65_536 },
        KeyDefault::Value(|| Limits::default().max_calls.to_string()),
        "Other calls in flight.",
    )
    .with_reload(KeyReload::Section),
    ConfigKey::new(
        "limits.max_calls_per_caller",
        KeyValue::Count { min: 1, max: 65_536 },
        KeyDefault::Value(|| Limits::default().max_calls_per_caller.to_string()),
        "Other calls of one caller in flight.",
    )
    .with_reload(KeyReload::Section),
];

/// Reads the limits. Absent keys have their defaults.
pub fn read(section: &ConfigSection<'_>, reader: &mut ConfigReader<'_>) -> Limits {
    let mut given = |key: &str| {
        let item = section.get(key)?;
        match KEYS.iter().find(|limit| limit.name() == key)?.value {
            KeyValue::Count { min, max } => reader.count(&item, &(min..=max)),
            KeyValue::Size { min, max } => reader.bytes(&item, &(min..=max)),
            _ => None,
        }
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
