//! Reloads the configuration while the daemon runs. A file is read and checked off the runtime's threads,
//! then applied as a whole, refused as a whole, or left to a new process. Reloads are done one by one.

use super::accept::Gate;
use super::supervisor;
use super::tls::Tls;
use crate::bearer::Tokens;
use crate::catalog::{Consistency, Keeper, Patience, Terms};
use crate::config::{Config, Mistake, Waits};
use crate::domain::search::Rules;
use crate::domain::shown::brief;
use crate::domain::{Callers, ConfigState, Limits, Refused};
use crate::file_watch::{self, COMPARE_INTERVAL, FileHints, FileStamp, WatchedDirs};
use crate::grpc::{Admission, Audit, Door, Entry, Places};
use crate::telemetry::Logs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fmt, io};
use tokio::sync::{Notify, watch};

/// What is waited for the searches that a new configuration makes necessary.
const SEARCHES: Duration = Duration::from_secs(5);
/// Mistakes whose places callers are told, and bytes of each.
const MAX_TOLD: usize = 20;
const MAX_PLACE_BYTES: usize = 120;
/// Bytes that the service manager is told of the first mistake.
const MAX_FIRST_BYTES: usize = 400;
/// The most keys that are named when a new process is needed.
const MAX_KEYS: usize = 20;

/// Reads the configuration again. Blocks.
pub type Load = Arc<dyn Fn() -> Result<Config, Vec<Mistake>> + Send + Sync>;
/// Whether the process may read below a directory. Blocks.
pub type MayRead = Arc<dyn Fn(&Path) -> bool + Send + Sync>;

/// Returns every mistake that keeps a new process from starting under the config file. Blocks.
pub type CheckFile = Arc<dyn Fn() -> io::Result<Vec<Mistake>> + Send + Sync>;

/// Source of configurations. The default has none.
#[derive(Clone, Default)]
pub struct Reloads {
    /// Requests a reload.
    pub asked: Arc<Notify>,
    /// None if there is no file to read.
    pub load: Option<Load>,
    /// None if nothing keeps the process from reading directories.
    pub may_read: Option<MayRead>,
    /// Logs whose filter may change.
    pub logs: Option<Arc<Logs>>,
    /// The file that `load` reads.
    pub file: Option<ConfigFile>,
    /// Set under a service manager, which starts the daemon again: a reload that needs a new process
    /// then ends this one.
    pub check_file: Option<CheckFile>,
}

/// The config file, to be watched if `watch_config` is set.
#[derive(Debug, Clone)]
pub struct ConfigFile {
    /// Path of the file.
    pub path: PathBuf,
    /// Stamp of the file from before it was read.
    pub stamp: Option<FileStamp>,
}

/// Outcome of reading a new config file.
enum ReloadPlan {
    /// Apply the configuration; some keys keep their values until the next start.
    Apply(Box<Config>, Waits),
    /// End this process: these keys need a new one.
    Restart(Vec<String>),
}

/// Watches the config file.
struct ConfigFileWatch {
    watched: WatchedDirs,
    hints: FileHints,
}

/// All that goes by the configuration.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) keeper: Keeper,
    pub(super) admission: Admission,
    pub(super) audit: Audit,
    pub(super) door: Door,
    pub(super) gate: Gate,
    pub(super) streams: Places,
    pub(super) tls: Option<Arc<Tls>>,
}

/// Has them go by another.
#[derive(Debug)]
pub(super) struct Reloader {
    parts: Parts,
    /// What is in force, as it was read.
    config: Config,
    /// Which may be less than what was read.
    max_connections: usize,
    state: watch::Sender<ConfigState>,
}

impl Reloader {
    pub(super) fn new(
        parts: Parts,
        config: Config,
        max_connections: usize,
        state: watch::Sender<ConfigState>,
    ) -> Self {
        Self { parts, config, max_connections, state }
    }

    /// Reloads on request, and after changes of the file if `watch_config` is set. Returns when a new
    /// process is needed.
    pub(super) async fn serve(mut self, mut reloads: Reloads) {
        let mut watch = None;
        loop {
            if !self.config.watch_config {
                watch = None;
            }
            let file = reloads.file.as_ref().filter(|_| self.config.watch_config);
            tokio::select! {
                () = reloads.asked.notified() => {}
                () = file_changed(file, &mut watch) => {
                    tracing::info!("the config file changed");
                }
            }
            supervisor::reloading();
            match reloads.load.clone() {
                None => tracing::warn!("there is nothing to reload: no --config names a file"),
                Some(load) => {
                    if self.reload(load, &mut reloads).await {
                        return;
                    }
                }
            }
            supervisor::reloaded(&self.parts.keeper, &self.state.borrow());
        }
    }

    /// Reads the file and does what it takes. Returns whether a new process is needed.
    async fn reload(&mut self, load: Load, reloads: &mut Reloads) -> bool {
        let (old, tls) = (self.config.clone(), self.parts.tls.clone());
        let may_read = reloads.may_read.clone();
        // Without a service manager, the sandbox keeps the daemon from files in other directories.
        let needs_restart_to_read = may_read.is_some() && reloads.check_file.is_none();
        let (mut file, check_file) = (reloads.file.clone(), reloads.check_file.clone());
        let read = tokio::task::spawn_blocking(move || {
            if let Some(file) = &mut file {
                file.stamp = FileStamp::of_path(&file.path);
            }
            let may_read = |dir: &Path| may_read.as_ref().is_none_or(|may_read| may_read(dir));
            (plan(&load, &old, may_read, tls, check_file), file)
        });
        let (plan, file) = read.await.unwrap_or_else(|panic| {
            tracing::error!(%panic, "reading the configuration ended by a defect");
            let mistake = mistake("the configuration", "cannot be read: internal error");
            (Err(vec![mistake]), reloads.file.clone())
        });
        reloads.file = file;
        match plan {
            Ok(ReloadPlan::Apply(config, waits)) => self.take_over(*config, waits, reloads).await,
            Ok(ReloadPlan::Restart(keys)) => {
                tracing::warn!("starting again, as these keys need it: {}", keys.join(", "));
                supervisor::restarting(&keys);
                return true;
            }
            Err(mistakes) => self.refuse(&mistakes, needs_restart_to_read),
        }
        false
    }

    fn refuse(&self, mistakes: &[Mistake], needs_restart_to_read: bool) {
        for mistake in mistakes {
            let mistake = brief(&mistake.to_string(), 4 * MAX_FIRST_BYTES);
            tracing::error!("the new configuration is refused: {mistake}");
        }
        let hint = if needs_restart_to_read {
            "; what lies outside the daemon's sandbox it can read only after a restart"
        } else {
            ""
        };
        let count = mistakes.len();
        tracing::error!(mistakes = count, "the configuration from before stays in force{hint}");
        let first = mistakes.first().map(ToString::to_string).unwrap_or_default();
        let refusal = Refused {
            at: now(),
            mistakes: mistakes.iter().filter_map(place).take(MAX_TOLD).collect(),
            first: brief(&first, MAX_FIRST_BYTES),
        };
        self.state.send_modify(|state| {
            state.refusals += 1;
            state.refusal = Some(refusal);
        });
    }

    async fn take_over(&mut self, config: Config, waits: Waits, reloads: &Reloads) {
        for warning in &config.warnings {
            tracing::warn!("{warning}");
        }
        let Parts { keeper, admission, audit, door, gate, streams, tls: _ } = &self.parts;
        let mut limits = config.limits.clone();
        limits.max_connections = self.max_connections;
        // Who may ask comes before what there is to be asked for.
        admission.renew(entry(&config));
        audit.tell_every_call(config.audit);
        door.resize(&limits);
        gate.resize(&limits);
        streams.resize(limits.max_streams, limits.max_streams_per_caller);
        keeper.renew(terms(&config, limits));
        // What is told of it from here on is as it is now.
        let patience = Patience::new(Some(SEARCHES));
        drop(keeper.view(&keeper.offered(), Consistency::Fresh, patience).await);
        for dir in &waits.closed {
            let dir = dir.display();
            tracing::warn!("{dir} lies outside the daemon's sandbox, and needs a restart");
        }
        if !waits.keys.is_empty() {
            tracing::warn!("needs a restart: {}", waits.keys.join(", "));
        }
        tracing::info!("the configuration was reloaded");
        if let Some(logs) = &reloads.logs {
            logs.set_filter(&config.log.filter);
        }
        self.config = config;
        self.state.send_modify(|state| {
            state.read_at = now();
            state.reloads += 1;
            state.refusal = None;
            state.needs_restart = waits.keys;
        });
    }
}

/// Reads the file and decides whether to apply, refuse or leave it to a new process. Blocks.
fn plan(
    load: &Load,
    old: &Config,
    may_read: impl Fn(&Path) -> bool,
    tls: Option<Arc<Tls>>,
    check_file: Option<CheckFile>,
) -> Result<ReloadPlan, Vec<Mistake>> {
    let loaded = load().map(|config| config.taken_over(old, &may_read));
    let check = match (&loaded, check_file) {
        (Ok((_, waits)), Some(check)) if !waits.keys.is_empty() => Some(check),
        // The sandbox may be the only reason, such as a certificate in another directory.
        (Err(_), Some(check)) => Some(check),
        _ => None,
    };
    let Some(check) = check else { return apply(loaded?, tls) };
    let found = match check() {
        Ok(found) => found,
        Err(error) => {
            tracing::error!(%error, "the config file cannot be checked outside the sandbox");
            return apply(loaded?, tls);
        }
    };
    let mut keys = match &loaded {
        Ok((_, waits)) => waits.keys.iter().map(|key| (*key).to_owned()).collect(),
        // The check knows nothing of sockets that were handed over.
        Err(mistakes) if found.is_empty() && mistakes.iter().all(|m| m.file.is_some()) => {
            let key = |mistake: &Mistake| match &*mistake.key {
                "" => "the config file".to_owned(),
                key => key.to_owned(),
            };
            // The file may have been half written before.
            match load().map(|config| config.taken_over(old, may_read)) {
                Ok((config, waits)) if waits.keys.is_empty() => return apply((config, waits), tls),
                _ => mistakes.iter().map(key).collect::<Vec<_>>(),
            }
        }
        Err(mistakes) => {
            let elsewhere = mistakes.iter().filter(|mistake| mistake.file.is_none()).cloned();
            return Err(found.into_iter().chain(elsewhere).collect());
        }
    };
    if !found.is_empty() {
        return Err(found);
    }
    keys.truncate(MAX_KEYS);
    Ok(ReloadPlan::Restart(keys))
}

/// Takes over the certificate files, which is the last step that can fail.
fn apply(
    (config, waits): (Config, Waits),
    tls: Option<Arc<Tls>>,
) -> Result<ReloadPlan, Vec<Mistake>> {
    if let Some((tls, files)) = tls.zip(config.tls.clone()) {
        tls.adopt(files).map_err(|unusable| vec![mistake("tls", unusable)])?;
    }
    Ok(ReloadPlan::Apply(Box::new(config), waits))
}

/// Returns once the file is another than when it was read last; never without a file. A file that is
/// missing is no change: programs that replace a file may remove it first.
async fn file_changed(file: Option<&ConfigFile>, watch: &mut Option<ConfigFileWatch>) {
    let Some(ConfigFile { path, stamp }) = file else { return std::future::pending().await };
    let ConfigFileWatch { watched, hints } = watch.get_or_insert_with(|| {
        let (watched, hints) = file_watch::start(|sentence| tracing::warn!("{sentence}"));
        ConfigFileWatch { watched, hints }
    });
    loop {
        let (path, watched) = (path.clone(), watched.clone());
        let seen = tokio::task::spawn_blocking(move || {
            watched.watch_only(&file_watch::parent_dirs([&*path]));
            FileStamp::of_path(&path)
        });
        let seen = seen.await.ok().flatten();
        if seen.is_some() && seen != *stamp {
            return;
        }
        hints.wait(COMPARE_INTERVAL).await;
    }
}

/// Who is let in, and where the tokens are that are asked for.
pub(super) fn entry(config: &Config) -> Entry {
    let callers = config.callers.as_ref().map(|rules| {
        let names = rules.callers.rules.iter().map(|rule| rule.name.clone());
        let files = rules.token_files.iter().cloned();
        let callers: Callers = rules.callers.clone();
        (callers, Arc::new(Tokens::new(names.zip(files).collect())))
    });
    let Config { open_health, open_reflection, .. } = *config;
    Entry { callers, open_health, open_reflection }
}

/// What the keeper goes by, with the limits that are to be had.
pub(super) fn terms(config: &Config, limits: Limits) -> Terms {
    Terms {
        environments: config.environment_ids.clone(),
        allowed: config.allowed.clone(),
        published: config.published.clone(),
        rules: Rules { limits, ..config.rules() },
        timing: config.timing.clone(),
    }
}

/// Since the Unix epoch.
pub(super) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Where a mistake is, without anything that the file says: callers are told.
fn place(mistake: &Mistake) -> Option<String> {
    let at = mistake.at?;
    let is_known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '[' | ']');
    let key = if mistake.key.chars().all(is_known) { &*mistake.key } else { "" };
    let place = format!("{}:{} {key}", at.line, at.column);
    Some(brief(place.trim_end(), MAX_PLACE_BYTES))
}

fn mistake(key: &str, reason: impl fmt::Display) -> Mistake {
    let (key, reason) = (key.to_owned(), reason.to_string());
    Mistake { file: None, at: None, key, value: None, reason }
}

impl fmt::Debug for Reloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloads").field("has_file", &self.load.is_some()).finish_non_exhaustive()
    }
}
