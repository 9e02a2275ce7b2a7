//! What a config file says, key by key. Leaves defaults that depend on the surroundings, and flags, to
//! `Config`.

use super::flags::USUAL_IDS;
use super::log::{self, Log};
use super::mistake::Mistakes;
use super::section::{Checker, Item, Section};
use super::socket::{self, Socket};
use super::{Listener, Traces, callers, limits, place, switches, tls, traces};
use crate::catalog::Timing;
use crate::document::Node;
use crate::domain::search::{OWN_DIRECTORIES, PASSED_OVER};
use crate::domain::{Landlock, Limits, Published, RelPath, RootId, Scope, SwitchedOff};
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Keys of the file, by section.
#[cfg(test)]
pub(super) const SECTIONS: [(&str, &[&str]); 13] = [
    ("", &TOP),
    ("socket", &socket::KEYS),
    ("roots", &ROOT),
    ("callers", &callers::KEYS),
    ("disabled_skills", &switches::KEYS),
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
const SEARCH: [&str; 2] = ["passed_over", "own_directories"];
const WATCH: [&str; 2] = ["settle", "settle_cap"];
const SANDBOX: [&str; 1] = ["landlock"];
const LOG: [&str; 2] = ["filter", "format"];
const METRICS: [&str; 1] = ["listen"];

/// The longest that a change may be held back.
const MAX_SETTLE: Duration = Duration::from_secs(10);

/// What the file says; `None` where it says nothing.
#[derive(Debug, Default)]
pub(super) struct Settings {
    pub(super) environment_ids: Option<Vec<String>>,
    pub(super) listeners: Option<Vec<Listener>>,
    pub(super) tls: tls::Given,
    pub(super) allowed: Option<Vec<PathBuf>>,
    pub(super) published: Option<Vec<Published>>,
    pub(super) socket: Option<Socket>,
    pub(super) callers: Option<Vec<callers::Draft>>,
    pub(super) open_health: Option<bool>,
    pub(super) open_reflection: Option<bool>,
    pub(super) audit: Option<bool>,
    pub(super) switched_off: SwitchedOff,
    pub(super) passed_over: Option<Vec<Box<[u8]>>>,
    pub(super) own_directories: Option<Vec<Box<[u8]>>>,
    pub(super) limits: Limits,
    pub(super) timing: Timing,
    pub(super) watch_config: Option<bool>,
    pub(super) landlock: Landlock,
    pub(super) log: Log,
    pub(super) metrics: Option<Listener>,
    pub(super) traces: Option<Traces>,
}

/// Reads a file's document. `by_flag` says which roots a flag publishes, `may_leave` whether a flag
/// lets listeners be reached from other machines.
pub(super) fn read(
    node: &Node,
    file: &Path,
    base: Option<&Path>,
    by_flag: impl Fn(&RootId) -> bool,
    may_leave: bool,
    mistakes: &mut Mistakes,
) -> Settings {
    let mut c = Checker { file, mistakes };
    let top = c.document(node, &TOP);
    let environment_ids = top.get("environment_ids").map(|item| {
        let empty = Some("names none; leave the key out for `local`");
        c.each(&item, empty, |text| RootId::new(text).map(|_| text.to_owned()))
    });
    let tls = tls::read(top.get("tls"), top.get("insecure_tcp").as_ref(), base, &mut c);
    let may_leave = may_leave || tls.may_leave();
    let listeners = top.get("listen").map(|item| {
        let empty = Some("names none; leave the key out for a socket that clients find");
        c.each(&item, empty, |text| {
            let listener = place::listener(text, base)?;
            if !may_leave {
                place::stays_here(&listener)?;
            }
            Ok::<_, String>(listener)
        })
    });
    let allowed = top.get("allow").map(|item| c.each(&item, None, |text| directory(text, base)));
    let published = top.get("roots").map(|item| roots(&item, base, &mut c));
    let here = published.as_deref().unwrap_or_default();
    let usual = published.is_none() && allowed.is_none();
    let known = |id: &RootId| {
        here.iter().any(|p| p.id == *id) || by_flag(id) || usual && USUAL_IDS.contains(&id.as_str())
    };
    let switched_off = top.get("disabled_skills").map(|item| switches::read(&item, known, &mut c));
    let callers = top.get("callers").map(|item| callers::read(&item, base, known, &mut c));
    let socket = section(&top, "socket", &socket::KEYS, &mut c);
    let socket = socket.and_then(|section| socket::read(&section, callers.is_some(), &mut c));
    let mut switch = |key| top.get(key).and_then(|item| c.boolean(&item));
    let (open_health, open_reflection) = (switch("open_health"), switch("open_reflection"));
    let (audit, watch_config) = (switch("audit"), switch("watch_config"));
    let search = section(&top, "search", &SEARCH, &mut c);
    let mut names = |key| {
        let item = search.as_ref()?.get(key)?;
        Some(c.each(&item, None, segment))
    };
    let (passed_over, own_directories) = (names("passed_over"), names("own_directories"));
    let limits = section(&top, "limits", &limits::KEYS, &mut c);
    let limits = limits.map(|section| limits::read(&section, &mut c)).unwrap_or_default();
    let watch = section(&top, "watch", &WATCH, &mut c);
    let timing = watch.map(|section| read_timing(&section, &mut c)).unwrap_or_default();
    let sandbox = section(&top, "sandbox", &SANDBOX, &mut c);
    let landlock = sandbox.and_then(|section| section.get("landlock"));
    let landlock = landlock.and_then(|item| c.parsed(&item, Landlock::parse));
    let log = section(&top, "log", &LOG, &mut c);
    let metrics = section(&top, "metrics", &METRICS, &mut c).and_then(|section| {
        let listen = c.required(&section, "listen")?;
        c.parsed(&listen, |text| place::local_listener(text, base))
    });
    let traces = section(&top, "traces", &traces::KEYS, &mut c);
    Settings {
        environment_ids,
        listeners,
        tls,
        allowed,
        published,
        socket,
        callers,
        open_health,
        open_reflection,
        audit,
        switched_off: switched_off.unwrap_or_default(),
        passed_over,
        own_directories,
        limits,
        timing,
        watch_config,
        landlock: landlock.unwrap_or_default(),
        log: log.map(|section| read_log(&section, &mut c)).unwrap_or_default(),
        metrics,
        traces: traces.and_then(|section| traces::read(&section, &mut c)),
    }
}

fn read_timing(section: &Section<'_>, checker: &mut Checker<'_>) -> Timing {
    let mut span = |key| {
        let item = section.get(key)?;
        checker.parsed(&item, |text| match humantime::parse_duration(text) {
            Ok(span) if span <= MAX_SETTLE => Ok(span),
            _ => Err("is no span of time from 0ms to 10s, such as 50ms"),
        })
    };
    let default = Timing::default();
    let settle = span("settle").unwrap_or(default.settle);
    let settle_cap = span("settle_cap").unwrap_or(default.settle_cap);
    let given = WATCH.into_iter().find_map(|key| section.get(key));
    if let Some(item) = given.filter(|_| settle_cap < settle) {
        let reason = format!("leaves settle_cap, {settle_cap:?}, under settle, {settle:?}");
        checker.refuse(&item, reason);
    }
    Timing { settle, settle_cap, ..default }
}

fn read_log(section: &Section<'_>, checker: &mut Checker<'_>) -> Log {
    let filter = |text: &str| log::filter(text).map_err(|e| format!("is no log filter: {e}"));
    let filter = section.get("filter").and_then(|item| checker.parsed(&item, filter));
    let format = section.get("format").and_then(|item| checker.parsed(&item, log::format));
    let default = Log::default();
    Log { filter: filter.unwrap_or(default.filter), format: format.unwrap_or(default.format) }
}

impl Settings {
    /// Directories that are never entered, by name.
    pub(super) fn passed_over(&self) -> Vec<Box<[u8]>> {
        self.passed_over.clone().unwrap_or_else(|| names(&PASSED_OVER))
    }

    /// Directories that are not entered directly inside a skill, by name.
    pub(super) fn own_directories(&self) -> Vec<Box<[u8]>> {
        self.own_directories.clone().unwrap_or_else(|| names(&OWN_DIRECTORIES))
    }
}

fn names(names: &[&str]) -> Vec<Box<[u8]>> {
    names.iter().map(|name| name.as_bytes().into()).collect()
}

fn section<'a>(
    top: &Section<'a>,
    key: &str,
    known: &'static [&'static str],
    checker: &mut Checker<'_>,
) -> Option<Section<'a>> {
    checker.section(&top.get(key)?, known)
}

fn roots(item: &Item<'_>, base: Option<&Path>, checker: &mut Checker<'_>) -> Vec<Published> {
    let mut lines: HashMap<RootId, u32> = HashMap::new();
    let mut roots = Vec::new();
    for entry in checker.list(item) {
        let Some(section) = checker.section(&entry, &ROOT) else { continue };
        let id = checker.required(&section, "id");
        let path = checker.required(&section, "path");
        let scope = section.get("scope").map(|item| checker.parsed(&item, scope));
        let scope = scope.unwrap_or(Some(Scope::User));
        let path = path.and_then(|item| checker.parsed(&item, |text| directory(text, base)));
        let follow = section.get("follow_links").map(|item| (checker.boolean(&item), item));
        if let (Some((Some(true), item)), Some(Scope::System)) = (&follow, scope) {
            checker.refuse(item, "cannot be: links are not followed in scope system");
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
        roots.push(Published {
            id,
            path: path.as_os_str().as_bytes().into(),
            scope,
            follow_links: follow_links.unwrap_or(scope != Scope::System),
        });
    }
    roots
}

fn scope(text: &str) -> Result<Scope, &'static str> {
    match text {
        "repo" => Ok(Scope::Repo),
        "user" => Ok(Scope::User),
        "system" => Ok(Scope::System),
        "admin" => Ok(Scope::Admin),
        _ => Err("is no scope; the scopes are repo, user, system, admin"),
    }
}

/// A directory that is there, or may yet be made.
pub(super) fn directory(text: &str, base: Option<&Path>) -> Result<PathBuf, String> {
    if text == "~" || text.starts_with("~/") {
        return Err("begins with `~`, which means nothing here; write the whole path".to_owned());
    }
    let dir = place::absolute(text.as_ref(), base)?;
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
