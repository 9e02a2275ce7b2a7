//! What a config file says, key by key. Leaves defaults that depend on the surroundings, and flags, to
//! `Config`.

use super::error::ConfigErrors;
use super::flags::DEFAULT_ROOT_IDS;
use super::log::{self, LogConfig};
use super::section::{ConfigReader, ConfigSection, ConfigValue};
use super::socket_access::{self, SocketAccess};
use super::{ListenAddress, TraceConfig, address, callers, disabled_skills, limits, tls, traces};
use crate::catalog::WatchTiming;
use crate::domain::search::{DEFAULT_RESOURCE_DIRS, DEFAULT_SKIPPED_DIRS};
use crate::domain::{
    DisableRules, LandlockMode, Limits, PublishedRoot, RelPath, RootId, RootScope,
};
use crate::yaml_document::DocumentNode;
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Keys of the file, by section.
#[cfg(test)]
pub(super) const SECTIONS: [(&str, &[&str]); 13] = [
    ("", &TOP),
    ("socket", &socket_access::KEYS),
    ("roots", &ROOT),
    ("callers", &callers::KEYS),
    ("disabled_skills", &disabled_skills::KEYS),
    ("search", &SEARCH),
    ("limits", &limits::KEYS),
    ("watch", &WATCH),
    ("sandbox", &SANDBOX),
    ("log", &LOG),
    ("metrics", &METRICS),
    ("traces", &traces::KEYS),
    ("tls", &tls::KEYS),
];
const TOP: [&str; 20] = [
    "environment_ids",
    "listen",
    "tls",
    "insecure_tcp",
    "socket",
    "allow",
    "roots",
    "callers",
    "open_health",
    "open_reflection",
    "audit",
    "disabled_skills",
    "search",
    "limits",
    "watch",
    "watch_config",
    "sandbox",
    "log",
    "metrics",
    "traces",
];
const ROOT: [&str; 4] = ["id", "path", "scope", "follow_links"];
const SEARCH: [&str; 2] = ["excluded_dirs", "resource_dirs"];
const WATCH: [&str; 2] = ["debounce", "max_debounce"];
const SANDBOX: [&str; 1] = ["landlock"];
const LOG: [&str; 2] = ["filter", "format"];
const METRICS: [&str; 1] = ["listen"];

/// The longest that a change may be held back.
const MAX_DEBOUNCE: Duration = Duration::from_secs(10);

/// What the file says; `None` where it says nothing.
#[derive(Debug, Default)]
pub(super) struct FileSettings {
    pub(super) environment_ids: Option<Vec<String>>,
    pub(super) listeners: Option<Vec<ListenAddress>>,
    pub(super) tls: tls::TlsSettings,
    pub(super) allowed_dirs: Option<Vec<PathBuf>>,
    pub(super) published_roots: Option<Vec<PublishedRoot>>,
    pub(super) socket: Option<SocketAccess>,
    pub(super) callers: Option<Vec<callers::RuleDraft>>,
    pub(super) open_health: Option<bool>,
    pub(super) open_reflection: Option<bool>,
    pub(super) audit: Option<bool>,
    pub(super) disabled_skills: DisableRules,
    pub(super) excluded_dirs: Option<Vec<Box<[u8]>>>,
    pub(super) resource_dirs: Option<Vec<Box<[u8]>>>,
    pub(super) limits: Limits,
    pub(super) timing: WatchTiming,
    pub(super) watch_config: Option<bool>,
    pub(super) landlock: LandlockMode,
    pub(super) log: LogConfig,
    pub(super) metrics: Option<ListenAddress>,
    pub(super) traces: Option<TraceConfig>,
}

/// Reads a file's document. `by_flag` says which roots a flag publishes, `may_leave` whether a flag
/// lets listeners be reached from other machines.
pub(super) fn read(
    node: &DocumentNode,
    file: &Path,
    base: Option<&Path>,
    by_flag: impl Fn(&RootId) -> bool,
    may_leave: bool,
    mistakes: &mut ConfigErrors,
) -> FileSettings {
    let mut c = ConfigReader { file, errors: mistakes };
    let top = c.top_section(node, &TOP);
    let environment_ids = top.get("environment_ids").map(|item| {
        let empty = Some("names none; leave the key out for `local`");
        c.unique_texts(&item, empty, |text| RootId::new(text).map(|_| text.to_owned()))
    });
    let tls = tls::read(top.get("tls"), top.get("insecure_tcp").as_ref(), base, &mut c);
    let may_leave = may_leave || tls.allows_remote();
    let listeners = top.get("listen").map(|item| {
        let empty = Some("names none; leave the key out for a socket that clients find");
        c.unique_texts(&item, empty, |text| {
            let listener = address::parse_listener(text, base)?;
            if !may_leave {
                address::require_local_or_tls(&listener)?;
            }
            Ok::<_, String>(listener)
        })
    });
    let allowed = top
        .get("allow")
        .map(|item| c.unique_texts(&item, None, |text| parse_directory(text, base)));
    let published = top.get("roots").map(|item| roots(&item, base, &mut c));
    let here = published.as_deref().unwrap_or_default();
    let usual = published.is_none() && allowed.is_none();
    let known = |id: &RootId| {
        here.iter().any(|p| p.id == *id)
            || by_flag(id)
            || usual && DEFAULT_ROOT_IDS.contains(&id.as_str())
    };
    let switched_off =
        top.get("disabled_skills").map(|item| disabled_skills::read(&item, known, &mut c));
    let callers = top.get("callers").map(|item| callers::read(&item, base, known, &mut c));
    let socket = section(&top, "socket", &socket_access::KEYS, &mut c);
    let socket =
        socket.and_then(|section| socket_access::read(&section, callers.is_some(), &mut c));
    let mut switch = |key| top.get(key).and_then(|item| c.boolean(&item));
    let (open_health, open_reflection) = (switch("open_health"), switch("open_reflection"));
    let (audit, watch_config) = (switch("audit"), switch("watch_config"));
    let search = section(&top, "search", &SEARCH, &mut c);
    let mut names = |key| {
        let item = search.as_ref()?.get(key)?;
        Some(c.unique_texts(&item, None, segment))
    };
    let (excluded_dirs, resource_dirs) = (names("excluded_dirs"), names("resource_dirs"));
    let limits = section(&top, "limits", &limits::KEYS, &mut c);
    let limits = limits.map(|section| limits::read(&section, &mut c)).unwrap_or_default();
    let watch = section(&top, "watch", &WATCH, &mut c);
    let timing = watch.map(|section| read_timing(&section, &mut c)).unwrap_or_default();
    let sandbox = section(&top, "sandbox", &SANDBOX, &mut c);
    let landlock = sandbox.and_then(|section| section.get("landlock"));
    let landlock = landlock.and_then(|item| c.parsed(&item, LandlockMode::parse));
    let log = section(&top, "log", &LOG, &mut c);
    let metrics = section(&top, "metrics", &METRICS, &mut c).and_then(|section| {
        let listen = c.required(&section, "listen")?;
        c.parsed(&listen, |text| address::parse_local_listener(text, base))
    });
    let traces = section(&top, "traces", &traces::KEYS, &mut c);
    FileSettings {
        environment_ids,
        listeners,
        tls,
        allowed_dirs: allowed,
        published_roots: published,
        socket,
        callers,
        open_health,
        open_reflection,
        audit,
        disabled_skills: switched_off.unwrap_or_default(),
        excluded_dirs,
        resource_dirs,
        limits,
        timing,
        watch_config,
        landlock: landlock.unwrap_or_default(),
        log: log.map(|section| read_log(&section, &mut c)).unwrap_or_default(),
        metrics,
        traces: traces.and_then(|section| traces::read(&section, &mut c)),
    }
}

fn read_timing(section: &ConfigSection<'_>, checker: &mut ConfigReader<'_>) -> WatchTiming {
    let mut span = |key| {
        let item = section.get(key)?;
        checker.parsed(&item, |text| match humantime::parse_duration(text) {
            Ok(span) if span <= MAX_DEBOUNCE => Ok(span),
            _ => Err("is no span of time from 0ms to 10s, such as 50ms"),
        })
    };
    let default = WatchTiming::default();
    let debounce = span("debounce").unwrap_or(default.debounce);
    let max_debounce = span("max_debounce").unwrap_or(default.max_debounce);
    let given = WATCH.into_iter().find_map(|key| section.get(key));
    if let Some(item) = given.filter(|_| max_debounce < debounce) {
        let reason = format!("leaves max_debounce, {max_debounce:?}, under debounce, {debounce:?}");
        checker.report_error(&item, reason);
    }
    WatchTiming { debounce, max_debounce, ..default }
}

fn read_log(section: &ConfigSection<'_>, checker: &mut ConfigReader<'_>) -> LogConfig {
    let filter = |text: &str| log::parse_filter(text).map_err(|e| format!("is no log filter: {e}"));
    let filter = section.get("filter").and_then(|item| checker.parsed(&item, filter));
    let format = section.get("format").and_then(|item| checker.parsed(&item, log::parse_format));
    let default = LogConfig::default();
    LogConfig { filter: filter.unwrap_or(default.filter), format: format.unwrap_or(default.format) }
}

impl FileSettings {
    /// Directories that are never entered, by name.
    pub(super) fn excluded_dirs(&self) -> Vec<Box<[u8]>> {
        self.excluded_dirs.clone().unwrap_or_else(|| names(&DEFAULT_SKIPPED_DIRS))
    }

    /// Directories that are not entered directly inside a skill, by name.
    pub(super) fn resource_dirs(&self) -> Vec<Box<[u8]>> {
        self.resource_dirs.clone().unwrap_or_else(|| names(&DEFAULT_RESOURCE_DIRS))
    }
}

fn names(names: &[&str]) -> Vec<Box<[u8]>> {
    names.iter().map(|name| name.as_bytes().into()).collect()
}

fn section<'a>(
    top: &ConfigSection<'a>,
    key: &str,
    known: &'static [&'static str],
    checker: &mut ConfigReader<'_>,
) -> Option<ConfigSection<'a>> {
    checker.section(&top.get(key)?, known)
}

fn roots(
    item: &ConfigValue<'_>,
    base: Option<&Path>,
    checker: &mut ConfigReader<'_>,
) -> Vec<PublishedRoot> {
    let mut lines: HashMap<RootId, u32> = HashMap::new();
    let mut roots = Vec::new();
    for entry in checker.list(item) {
        let Some(section) = checker.section(&entry, &ROOT) else { continue };
        let id = checker.required(&section, "id");
        let path = checker.required(&section, "path");
        let scope = section.get("scope").map(|item| checker.parsed(&item, scope));
        let scope = scope.unwrap_or(Some(RootScope::User));
        let path = path.and_then(|item| checker.parsed(&item, |text| parse_directory(text, base)));
        let follow = section.get("follow_links").map(|item| (checker.boolean(&item), item));
        if let (Some((Some(true), item)), Some(RootScope::System)) = (&follow, scope) {
            checker.report_error(item, "cannot be: links are not followed in scope system");
        }
        let follow_links = follow.and_then(|(given, _)| given);
        let Some(id) = id else { continue };
        let line = id.line();
        let taken = |id: RootId| match lines.get(&id) {
            Some(line) => Err(format!("is taken by the root in line {line}; give each its own")),
            None => Ok(id),
        };
        let parsed =
            checker.parsed(&id, |text| RootId::new(text).map_err(str::to_owned).and_then(taken));
        let (Some(id), Some(path), Some(scope)) = (parsed, path, scope) else { continue };
        lines.insert(id.clone(), line);
        roots.push(PublishedRoot {
            id,
            path: path.as_os_str().as_bytes().into(),
            scope,
            follow_links: follow_links.unwrap_or(scope != RootScope::System),
        });
    }
    roots
}

fn scope(text: &str) -> Result<RootScope, &'static str> {
    match text {
        "repo" => Ok(RootScope::Repo),
        "user" => Ok(RootScope::User),
        "system" => Ok(RootScope::System),
        "admin" => Ok(RootScope::Admin),
        _ => Err("is no scope; the scopes are repo, user, system, admin"),
    }
}

/// A directory that is there, or may yet be made.
pub(super) fn parse_directory(text: &str, base: Option<&Path>) -> Result<PathBuf, String> {
    if text == "~" || text.starts_with("~/") {
        return Err("begins with `~`, which means nothing here; write the whole path".to_owned());
    }
    let dir = address::absolute_path(text.as_ref(), base)?;
    if dir.exists() && !dir.is_dir() {
        return Err("is not a directory".to_owned());
    }
    Ok(dir)
}

/// The name of a directory.
fn segment(text: &str) -> Result<Box<[u8]>, &'static str> {
    let one = RelPath::root().join(text.as_bytes());
    let why = "is no name of a directory: it must not hold `/`, nor be `.` or `..`";
    one.map(|path| path.as_bytes().into()).ok_or(why)
}
