//! Reads the keys of a config file.

use super::flags::is_default_root_id;
use super::keys::{self, ConfigKey};
use super::{
    FileSettings, address, callers, disabled_skills, limits, roots, socket_access, tls, top_keys,
    traces,
};
use crate::catalog::WatchTiming;
use crate::model::LandlockMode;
use crate::scan::search::{DEFAULT_RESOURCE_DIRS, DEFAULT_SKIPPED_DIRS};
use crate::telemetry::{LogConfig, log_config};
use caproot_core::document::{ConfigErrors, DocumentNode, DocumentReader, DocumentSection};
use caproot_core::wire::{RelPath, RootId};
use std::path::Path;

/// Reads the document of a file. `by_flag` returns whether a flag publishes a root; `allow_remote`
/// is set if a flag allows listeners that other machines can reach.
pub fn read(
    node: &DocumentNode,
    file: &Path,
    base: Option<&Path>,
    by_flag: impl Fn(&RootId) -> bool,
    allow_remote: bool,
    errors: &mut ConfigErrors,
) -> FileSettings {
    let mut reader = DocumentReader { file, errors };
    let top = reader.top_section(node, keys::names(&top_keys::KEYS));
    let environment_ids = top.get("environment_ids").map(|item| {
        let empty = Some("empty list; remove the key for the default, `local`");
        reader.unique_texts(&item, empty, |text| {
            RootId::new(text).map(|_| text.to_owned())
        })
    });
    let tls = tls::read(
        top.get("tls"),
        top.get("insecure_tcp").as_ref(),
        base,
        &mut reader,
    );
    let allow_remote = allow_remote || tls.allows_remote();
    let listeners = top.get("listen").map(|item| {
        let empty = Some("empty list; remove the key for the default socket");
        reader.unique_texts(&item, empty, |text| {
            let listener = address::parse_listener(text, base)?;
            if !allow_remote {
                address::require_local_or_tls(&listener)?;
            }
            Ok::<_, String>(listener)
        })
    });
    let allowed_dirs = top
        .get("allow")
        .map(|item| reader.unique_texts(&item, None, |text| roots::parse_directory(text, base)));
    let published_roots = top
        .get("roots")
        .map(|item| roots::read(&item, base, &mut reader));
    let roots_in_file = published_roots.as_deref().unwrap_or_default();
    let is_default = published_roots.is_none() && allowed_dirs.is_none();
    let is_root = |id: &RootId| {
        roots_in_file.iter().any(|p| p.id == *id)
            || by_flag(id)
            || is_default && is_default_root_id(id)
    };
    let disabled_rules = top
        .get("disabled_skills")
        .map(|item| disabled_skills::read(&item, is_root, &mut reader));
    let callers = top
        .get("callers")
        .map(|item| callers::read(&item, base, is_root, &mut reader));
    let socket = section(&top, "socket", &socket_access::KEYS, &mut reader);
    let socket =
        socket.and_then(|section| socket_access::read(&section, callers.is_some(), &mut reader));
    let mut boolean = |key| top.get(key).and_then(|item| reader.boolean(&item));
    let (open_health, open_reflection) = (boolean("open_health"), boolean("open_reflection"));
    let (audit, watch_config) = (boolean("audit"), boolean("watch_config"));
    let search = section(&top, "search", &top_keys::SEARCH, &mut reader);
    let mut names = |key| {
        let item = search.as_ref()?.get(key)?;
        Some(reader.unique_texts(&item, None, segment))
    };
    let (excluded_dirs, resource_dirs) = (names("excluded_dirs"), names("resource_dirs"));
    let limits = section(&top, "limits", &limits::KEYS, &mut reader);
    let limits = limits
        .map(|section| limits::read(&section, &mut reader))
        .unwrap_or_default();
    let watch = section(&top, "watch", &top_keys::WATCH, &mut reader);
    let timing = watch
        .map(|section| read_timing(&section, &mut reader))
        .unwrap_or_default();
    let sandbox = section(&top, "sandbox", &top_keys::SANDBOX, &mut reader);
    let landlock = sandbox.and_then(|section| section.get("landlock"));
    let landlock = landlock.and_then(|item| reader.parsed(&item, LandlockMode::parse));
    let log = read_log_section(&top, &mut reader);
    let metrics = section(&top, "metrics", &top_keys::METRICS, &mut reader).and_then(|section| {
        let listen = reader.required(&section, "listen")?;
        reader.parsed(&listen, |text| address::parse_local_listener(text, base))
    });
    let traces = section(&top, "traces", &traces::KEYS, &mut reader);
    FileSettings {
        environment_ids,
        listeners,
        tls,
        allowed_dirs,
        published_roots,
        socket,
        callers,
        open_health,
        open_reflection,
        audit,
        disabled_skills: disabled_rules.unwrap_or_default(),
        excluded_dirs,
        resource_dirs,
        limits,
        timing,
        watch_config,
        landlock: landlock.unwrap_or_default(),
        log,
        metrics,
        traces: traces.and_then(|section| traces::read(&section, &mut reader)),
    }
}

fn read_timing(section: &DocumentSection<'_>, reader: &mut DocumentReader<'_>) -> WatchTiming {
    let mut duration = |key| {
        let item = section.get(key)?;
        reader.parsed(&item, |text| match humantime::parse_duration(text) {
            Ok(duration) if duration <= top_keys::MAX_DEBOUNCE => Ok(duration),
            _ => Err("expected a duration from 0ms to 10s, such as 50ms"),
        })
    };
    let default = WatchTiming::default();
    let debounce = duration("debounce").unwrap_or(default.debounce);
    let max_debounce = duration("max_debounce").unwrap_or(default.max_debounce);
    let given = keys::names(&top_keys::WATCH).find_map(|key| section.get(key));
    if let Some(item) = given.filter(|_| max_debounce < debounce) {
        let reason =
            format!("max_debounce, {max_debounce:?}, must not be less than debounce, {debounce:?}");
        reader.report_error(&item, reason);
    }
    WatchTiming {
        debounce,
        max_debounce,
        ..default
    }
}

/// Reads the section `log`, or returns the default.
pub fn read_log_section(top: &DocumentSection<'_>, reader: &mut DocumentReader<'_>) -> LogConfig {
    let log = section(top, "log", &top_keys::LOG, reader);
    log.map(|section| read_log(&section, reader))
        .unwrap_or_default()
}

fn read_log(section: &DocumentSection<'_>, reader: &mut DocumentReader<'_>) -> LogConfig {
    let filter =
        |text: &str| log_config::parse_filter(text).map_err(|e| format!("invalid log filter: {e}"));
    let filter = section
        .get("filter")
        .and_then(|item| reader.parsed(&item, filter));
    let format = section
        .get("format")
        .and_then(|item| reader.parsed(&item, log_config::parse_format));
    let default = LogConfig::default();
    LogConfig {
        filter: filter.unwrap_or(default.filter),
        format: format.unwrap_or(default.format),
    }
}

pub fn default_excluded_dirs() -> Vec<Box<[u8]>> {
    names(&DEFAULT_SKIPPED_DIRS)
}

pub fn default_resource_dirs() -> Vec<Box<[u8]>> {
    names(&DEFAULT_RESOURCE_DIRS)
}

fn names(names: &[&str]) -> Vec<Box<[u8]>> {
    names.iter().map(|name| name.as_bytes().into()).collect()
}

fn section<'a>(
    top: &DocumentSection<'a>,
    key: &str,
    known: &'static [ConfigKey],
    reader: &mut DocumentReader<'_>,
) -> Option<DocumentSection<'a>> {
    reader.section(&top.get(key)?, keys::names(known))
}

/// Parses the name of a directory.
fn segment(text: &str) -> Result<Box<[u8]>, &'static str> {
    let one = RelPath::root().join(text.as_bytes());
    let reason = "expected the name of a directory: without `/`, and not `.` or `..`";
    one.map(|path| path.as_bytes().into()).ok_or(reason)
}
