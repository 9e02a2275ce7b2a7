//! Reads the keys of a config file. The tables of [`top_keys`] and of the sections name the keys.

use super::callers::RuleDraft;
use super::flags::is_default_root_id;
use super::keys::{self, ConfigKey};
use super::presets::RootPreset;
use super::{
    FileSettings, FlagContext, ListenAddress, address, callers, disabled_skills, limits, readiness,
    roots, socket_access, tls, top_keys, traces, trust,
};
use crate::daemon::catalog::WatchTiming;
use crate::daemon::model::{DisableRules, LandlockMode, PublishedRoot};
use crate::daemon::scan::search::{DEFAULT_RESOURCE_DIRS, DEFAULT_SKIPPED_DIRS};
use crate::log_config::{self, LogConfig};
use caproot_core::document::{DocumentNode, DocumentReader, DocumentSection};
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::wire::{RelPath, RootId};
use std::path::{Path, PathBuf};

/// Roots that rules of a file may name.
struct KnownRoots<'a> {
    in_file: &'a [PublishedRoot],
    presets: &'a [RootPreset],
    by_flag: &'a [PublishedRoot],
    /// Whether the default roots are published, because the file names neither roots nor directories.
    has_defaults: bool,
}

impl KnownRoots<'_> {
    fn contains(&self, id: &RootId) -> bool {
        self.in_file
            .iter()
            .chain(self.by_flag)
            .any(|root| root.id == *id)
            || self.presets.iter().any(|preset| preset.can_have_root(id))
            || self.has_defaults && is_default_root_id(id)
    }
}

/// Reads the document of a file. Relative paths start at `base`; presets of roots depend on `env`.
pub fn read(
    node: &DocumentNode,
    base: Option<&Path>,
    flags: FlagContext<'_>,
    env: &ProcessEnv,
    reader: &mut DocumentReader<'_>,
) -> FileSettings {
    let top = reader.top_section(node, keys::names(&top_keys::KEYS));

    // TLS comes before the listeners: without TLS, other machines must not reach them.
    let tls = tls::read(&top, base, reader);
    let allow_remote = flags.allow_remote || tls.allows_remote();
    let listeners = read_listeners(&top, base, allow_remote, reader);

    // The roots come before the rules that name them, and the callers before the sockets: only rules
    // make a socket for every user safe.
    let root_keys = read_root_keys(&top, base, flags.published_roots, env, reader);
    let has_callers = root_keys.callers.is_some();
    let socket = top_keys::SOCKET
        .section(&top, reader)
        .and_then(|section| socket_access::read(&section, has_callers, reader));

    // The order of the other keys has no effect, because the errors are sorted by position.
    let search_section = top_keys::SEARCH.section(&top, reader);
    let search = search_section.as_ref();
    FileSettings {
        environment_ids: read_environment_ids(&top, reader),
        listeners,
        tls,
        allowed_dirs: root_keys.allowed_dirs,
        published_roots: root_keys.published_roots,
        root_warnings: root_keys.root_warnings,
        socket,
        callers: root_keys.callers,
        open_health: read_boolean(top_keys::OPEN_HEALTH, &top, reader),
        open_reflection: read_boolean(top_keys::OPEN_REFLECTION, &top, reader),
        audit: read_boolean(top_keys::AUDIT, &top, reader),
        disabled_skills: root_keys.disabled_skills.unwrap_or_default(),
        trust: root_keys.trust,
        excluded_dirs: read_dir_names(top_keys::EXCLUDED_DIRS, search, reader),
        resource_dirs: read_dir_names(top_keys::RESOURCE_DIRS, search, reader),
        limits: top_keys::LIMITS
            .section(&top, reader)
            .map(|section| limits::read(&section, reader))
            .unwrap_or_default(),
        timing: read_timing(&top, reader).unwrap_or_default(),
        watch_config: read_boolean(top_keys::WATCH_CONFIG, &top, reader),
        landlock: read_landlock(&top, reader).unwrap_or_default(),
        readiness: top_keys::READINESS
            .section(&top, reader)
            .map(|section| readiness::read(&section, base, reader))
            .unwrap_or_default(),
        log: read_log_section(&top, reader),
        metrics: read_metrics(&top, base, reader),
        traces: top_keys::TRACES
            .section(&top, reader)
            .and_then(|section| traces::read(&section, reader)),
    }
}

/// Values of the keys that name roots.
struct RootKeys {
    allowed_dirs: Option<Vec<PathBuf>>,
    published_roots: Option<Vec<PublishedRoot>>,
    root_warnings: Vec<String>,
    disabled_skills: Option<DisableRules>,
    trust: Option<trust::TrustDraft>,
    callers: Option<Vec<RuleDraft>>,
}

fn read_root_keys(
    top: &DocumentSection<'_>,
    base: Option<&Path>,
    by_flag: &[PublishedRoot],
    env: &ProcessEnv,
    reader: &mut DocumentReader<'_>,
) -> RootKeys {
    let allowed_dirs = top_keys::ALLOW
        .field(top)
        .map(|item| reader.unique_texts(&item, None, |text| roots::parse_directory(text, base)));
    let roots_item = top_keys::ROOTS.field(top);
    let has_roots = roots_item.is_some();
    let list = roots_item.map_or_else(roots::RootList::default, |item| {
        roots::read(&item, base, env, reader)
    });

    let known_roots = KnownRoots {
        in_file: &list.found.roots,
        presets: &list.presets,
        by_flag,
        has_defaults: !has_roots && allowed_dirs.is_none(),
    };
    let disabled_skills = top_keys::DISABLED_SKILLS
        .field(top)
        .map(|item| disabled_skills::read(&item, |id| known_roots.contains(id), reader));
    let trust = trust::read(top, base, |id| known_roots.contains(id), reader);
    let callers = top_keys::CALLERS
        .field(top)
        .map(|item| callers::read(&item, base, |id| known_roots.contains(id), reader));

    RootKeys {
        allowed_dirs,
        published_roots: has_roots.then_some(list.found.roots),
        root_warnings: list.found.warnings,
        disabled_skills,
        trust,
        callers,
    }
}

fn read_environment_ids(
    top: &DocumentSection<'_>,
    reader: &mut DocumentReader<'_>,
) -> Option<Vec<String>> {
    let item = top_keys::ENVIRONMENT_IDS.field(top)?;
    let empty = Some("empty list; remove the key for the default, `local`");
    Some(reader.unique_texts(&item, empty, |text| {
        RootId::new(text).map(|_| text.to_owned())
    }))
}

/// Reads the listeners. Unless `allow_remote` is set, reports those that other machines can reach.
fn read_listeners(
    top: &DocumentSection<'_>,
    base: Option<&Path>,
    allow_remote: bool,
    reader: &mut DocumentReader<'_>,
) -> Option<Vec<ListenAddress>> {
    let item = top_keys::LISTEN.field(top)?;
    let empty = Some("empty list; remove the key for the default socket");
    Some(reader.unique_texts(&item, empty, |text| {
        let listener = address::parse_listener(text, base)?;
        if !allow_remote {
            address::require_local_or_tls(&listener)?;
        }
        Ok::<_, String>(listener)
    }))
}

fn read_boolean(
    key: ConfigKey,
    section: &DocumentSection<'_>,
    reader: &mut DocumentReader<'_>,
) -> Option<bool> {
    reader.boolean(&key.field(section)?)
}

fn read_dir_names(
    key: ConfigKey,
    search: Option<&DocumentSection<'_>>,
    reader: &mut DocumentReader<'_>,
) -> Option<Vec<Box<[u8]>>> {
    let item = key.field(search?)?;
    Some(reader.unique_texts(&item, None, parse_dir_name))
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

fn read_landlock(
    top: &DocumentSection<'_>,
    reader: &mut DocumentReader<'_>,
) -> Option<LandlockMode> {
    let section = top_keys::SANDBOX.section(top, reader)?;
    reader.parsed(&top_keys::LANDLOCK.field(&section)?, LandlockMode::parse)
}

fn read_metrics(
    top: &DocumentSection<'_>,
    base: Option<&Path>,
    reader: &mut DocumentReader<'_>,
) -> Option<ListenAddress> {
    let section = top_keys::METRICS.section(top, reader)?;
    let listen = top_keys::METRICS_LISTEN.required_field(&section, reader)?;
    reader.parsed(&listen, |text| address::parse_local_listener(text, base))
}

/// Reads the section `log`, or returns the default.
pub fn read_log_section(top: &DocumentSection<'_>, reader: &mut DocumentReader<'_>) -> LogConfig {
    let mut log = LogConfig::default();
    let Some(section) = top_keys::LOG.section(top, reader) else {
        return log;
    };

    if let Some(item) = top_keys::LOG_FILTER.field(&section) {
        let filter = reader.parsed(&item, |text| {
            log_config::parse_filter(text).map_err(|error| format!("invalid log filter: {error}"))
        });
        log.filter = filter.unwrap_or(log.filter);
    }
    if let Some(item) = top_keys::LOG_FORMAT.field(&section) {
        let format = reader.parsed(&item, log_config::parse_format);
        log.format = format.unwrap_or(log.format);
    }
    log
}

pub fn default_excluded_dirs() -> Vec<Box<[u8]>> {
    to_dir_names(&DEFAULT_SKIPPED_DIRS)
}

pub fn default_resource_dirs() -> Vec<Box<[u8]>> {
    to_dir_names(&DEFAULT_RESOURCE_DIRS)
}

fn to_dir_names(names: &[&str]) -> Vec<Box<[u8]>> {
    names.iter().map(|name| name.as_bytes().into()).collect()
}

fn parse_dir_name(text: &str) -> Result<Box<[u8]>, &'static str> {
    RelPath::root()
        .join(text.as_bytes())
        .map(|path| path.as_bytes().into())
        .ok_or("expected the name of a directory: without `/`, and not `.` or `..`")
}
