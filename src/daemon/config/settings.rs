//! Reads the keys of a config file. The tables of [`top_keys`] and of the sections name the keys.

use super::keys::{self, ConfigKey};
use super::{
    GivenSettings, ListenAddress, address, callers, disabled_skills, limits, readiness, roots,
    socket_access, tls, top_keys, traces, trust,
};
use crate::daemon::catalog::WatchTiming;
use crate::daemon::model::LandlockMode;
use crate::log_config::{self, LogConfig};
use caproot_core::document::{DocumentNode, DocumentReader, DocumentSection};
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::wire::{RelPath, RootId};
use std::path::Path;

/// Reads the document of a file. Relative paths start at `base`; presets of roots depend on `env`.
pub fn read(
    node: &DocumentNode,
    base: Option<&Path>,
    flags: &GivenSettings,
    env: &ProcessEnv,
    reader: &mut DocumentReader<'_>,
) -> GivenSettings {
    let top = reader.top_section(node, keys::names(&top_keys::KEYS));

    // TLS comes before the listeners: without TLS, other machines must not reach them.
    let tls = tls::read(&top, base, reader);
    let allow_remote = flags.tls.allows_remote() || tls.allows_remote();
    let listeners = read_listeners(&top, base, allow_remote, reader);

    // The roots come before the rules that name them, and the callers before the sockets: only rules
    // make a socket for every user safe.
    let root_keys = read_root_keys(&top, base, flags, env, reader);
    let has_callers = root_keys.callers.is_some();
    let socket = top_keys::SOCKET
        .section(&top, reader)
        .and_then(|section| socket_access::read(&section, has_callers, reader));

    // The order of the other keys has no effect, because the errors are sorted by position.
    let search = top_keys::SEARCH.section(&top, reader);
    let search = search.as_ref();
    GivenSettings {
        environment_ids: read_environment_ids(&top, reader),
        listeners,
        tls,
        socket,
        open_health: read_boolean(top_keys::OPEN_HEALTH, &top, reader),
        open_reflection: read_boolean(top_keys::OPEN_REFLECTION, &top, reader),
        audit: read_boolean(top_keys::AUDIT, &top, reader),
        excluded_dirs: search
            .and_then(|keys| top_keys::EXCLUDED_DIRS.list(keys, reader, None, parse_dir_name)),
        resource_dirs: search
            .and_then(|keys| top_keys::RESOURCE_DIRS.list(keys, reader, None, parse_dir_name)),
        limits: top_keys::LIMITS
            .section(&top, reader)
            .map(|section| limits::read(&section, reader))
            .unwrap_or_default(),
        timing: read_timing(&top, reader).unwrap_or_default(),
        watch_config: read_boolean(top_keys::WATCH_CONFIG, &top, reader),
        landlock: top_keys::SANDBOX
            .section(&top, reader)
            .and_then(|keys| top_keys::LANDLOCK.parsed(&keys, reader, LandlockMode::parse))
            .unwrap_or_default(),
        readiness: top_keys::READINESS
            .section(&top, reader)
            .map(|section| readiness::read(&section, base, reader))
            .unwrap_or_default(),
        log: read_log_section(&top, reader),
        metrics: read_metrics(&top, base, reader),
        traces: top_keys::TRACES
            .section(&top, reader)
            .and_then(|section| traces::read(&section, reader)),
        ..root_keys
    }
}

/// Reads the listeners. Unless `allow_remote` is set, reports those that other machines can reach.
fn read_listeners(
    top: &DocumentSection<'_>,
    base: Option<&Path>,
    allow_remote: bool,
    reader: &mut DocumentReader<'_>,
) -> Option<Vec<ListenAddress>> {
    let empty = Some("empty list; remove the key for the default socket");
    top_keys::LISTEN.list(top, reader, empty, |text| {
        let listener = address::parse_listener(text, base)?;
        if !allow_remote {
            address::require_local_or_tls(&listener)?;
        }
        Ok::<_, String>(listener)
    })
}

/// Reads the keys that name roots.
fn read_root_keys(
    top: &DocumentSection<'_>,
    base: Option<&Path>,
    flags: &GivenSettings,
    env: &ProcessEnv,
    reader: &mut DocumentReader<'_>,
) -> GivenSettings {
    let parse_directory = |text: &str| roots::parse_directory(text, base);
    let allowed_dirs = top_keys::ALLOW.list(top, reader, None, parse_directory);
    let roots_item = top_keys::ROOTS.field(top);
    let has_roots = roots_item.is_some();
    let list = roots_item.map_or_else(roots::RootList::default, |item| {
        roots::read(&item, base, env, reader)
    });

    let known_roots = roots::KnownRoots {
        in_file: &list.found.roots,
        presets: &list.presets,
        by_flag: flags.published_roots.as_deref().unwrap_or_default(),
        has_defaults: !has_roots && allowed_dirs.is_none(),
    };
    let disabled_skills = top_keys::DISABLED_SKILLS
        .field(top)
        .map(|item| disabled_skills::read(&item, &known_roots, reader));
    let trust = trust::read(top, base, &known_roots, reader);
    let callers = top_keys::CALLERS
        .field(top)
        .map(|item| callers::read(&item, base, &known_roots, reader));

    GivenSettings {
        allowed_dirs,
        published_roots: has_roots.then_some(list.found.roots),
        root_warnings: list.found.warnings,
        disabled_skills: disabled_skills.unwrap_or_default(),
        trust,
        callers,
        ..GivenSettings::default()
    }
}

/// Reads the environment ids.
fn read_environment_ids(
    top: &DocumentSection<'_>,
    reader: &mut DocumentReader<'_>,
) -> Option<Vec<String>> {
    let empty = Some("empty list; remove the key for the default, `local`");
    top_keys::ENVIRONMENT_IDS.list(top, reader, empty, |text| {
        RootId::new(text).map(|_| text.to_owned())
    })
}

/// Reads the listener for metrics.
fn read_metrics(
    top: &DocumentSection<'_>,
    base: Option<&Path>,
    reader: &mut DocumentReader<'_>,
) -> Option<ListenAddress> {
    let section = top_keys::METRICS.section(top, reader)?;
    top_keys::METRICS_LISTEN.required(&section, reader, |text| {
        let listener = address::parse_listener(text, base)?;
        // The listener never has TLS.
        address::require_local(&listener).map(|()| listener)
    })
}

fn read_boolean(
    key: ConfigKey,
    section: &DocumentSection<'_>,
    reader: &mut DocumentReader<'_>,
) -> Option<bool> {
    reader.boolean(&key.field(section)?)
}

fn read_timing(top: &DocumentSection<'_>, reader: &mut DocumentReader<'_>) -> Option<WatchTiming> {
    let section = top_keys::WATCH.section(top, reader)?;
    let mut timing = WatchTiming::default();
    for (key, duration) in [
        (top_keys::DEBOUNCE, &mut timing.debounce),
        (top_keys::MAX_DEBOUNCE, &mut timing.max_debounce),
    ] {
        let given = key.duration(&section, reader);
        *duration = given.unwrap_or(*duration);
    }

    if timing.max_debounce < timing.debounce {
        let reason = format!(
            "{}, {:?}, must not be less than {}, {:?}",
            top_keys::MAX_DEBOUNCE.name(),
            timing.max_debounce,
            top_keys::DEBOUNCE.name(),
            timing.debounce
        );
        // One key is given, because the defaults fit.
        if let Some(item) = top_keys::WATCH_KEYS
            .iter()
            .find_map(|key| key.field(&section))
        {
            reader.report_error(&item, reason);
        }
    }
    Some(timing)
}

/// Reads the section `log`, or returns the default.
pub fn read_log_section(top: &DocumentSection<'_>, reader: &mut DocumentReader<'_>) -> LogConfig {
    let mut log = LogConfig::default();
    let Some(section) = top_keys::LOG.section(top, reader) else {
        return log;
    };

    let filter = top_keys::LOG_FILTER.parsed(&section, reader, |text| {
        log_config::parse_filter(text).map_err(|error| format!("invalid log filter: {error}"))
    });
    log.filter = filter.unwrap_or(log.filter);
    let format = top_keys::LOG_FORMAT.parsed(&section, reader, log_config::parse_format);
    log.format = format.unwrap_or(log.format);
    log
}

fn parse_dir_name(text: &str) -> Result<Box<[u8]>, &'static str> {
    RelPath::root()
        .join(text.as_bytes())
        .map(|path| path.as_bytes().into())
        .ok_or("expected the name of a directory: without `/`, and not `.` or `..`")
}
