//! Reloads the configuration while the daemon runs. A file is read and checked off the runtime's threads,
//! then applied as a whole, refused as a whole, or left to a new process. Reloads are done one by one.

use super::accept::ConnectionLimiter;
use super::service_manager;
use super::tls::ReloadableTls;
use crate::bearer::RuleTokens;
use crate::catalog::{CatalogStore, ConsistencyLevel, PolicyConfig, WaitBudget};
use crate::config::{Config, ConfigError, RestartRequired};
use crate::domain::escape::truncate_escaped;
use crate::domain::search::SearchRules;
use crate::domain::{CallerPolicy, ConfigState, Limits, RejectedReload};
use crate::file_watch::{self, COMPARE_INTERVAL, FileHints, FileStamp, WatchedDirs};
use crate::grpc::{AuditLog, AuthLayer, AuthRules, LoadLimitLayer, Quota};
use crate::telemetry::LogHandle;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fmt, io};
use tokio::sync::{Notify, watch};

/// What is waited for the searches that a new configuration makes necessary.
const RESCAN_TIMEOUT: Duration = Duration::from_secs(5);
/// Mistakes whose places callers are told, and bytes of each.
const MAX_REPORTED_ERRORS: usize = 20;
const MAX_LOCATION_BYTES: usize = 120;
/// Bytes that the service manager is told of the first mistake.
const MAX_FIRST_ERROR_BYTES: usize = 400;
/// The most keys that are named when a new process is needed.
const MAX_KEYS: usize = 20;

/// Reads the configuration again. Blocks.
pub type ConfigLoader = Arc<dyn Fn() -> Result<Config, Vec<ConfigError>> + Send + Sync>;
/// Whether the process may read below a directory. Blocks.
pub type SandboxReadCheck = Arc<dyn Fn(&Path) -> bool + Send + Sync>;

/// Returns every mistake that keeps a new process from starting under the config file. Blocks.
pub type ConfigFileCheck = Arc<dyn Fn() -> io::Result<Vec<ConfigError>> + Send + Sync>;

/// Source of configurations. The default has none.
#[derive(Clone, Default)]
pub struct ReloadSource {
    /// Requests a reload.
    pub requested: Arc<Notify>,
    /// None if there is no file to read.
    pub load_config: Option<ConfigLoader>,
    /// None if nothing keeps the process from reading directories.
    pub may_read: Option<SandboxReadCheck>,
    /// Logs whose filter may change.
    pub logs: Option<Arc<LogHandle>>,
    /// The file that `load` reads.
    pub config_file: Option<ConfigFile>,
    /// Set under a service manager, which starts the daemon again: a reload that needs a new process
    /// then ends this one.
    pub check_file: Option<ConfigFileCheck>,
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
    Apply(Box<Config>, RestartRequired),
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
pub(super) struct ReloadTargets {
    pub(super) store: CatalogStore,
    pub(super) auth_layer: AuthLayer,
    pub(super) audit: AuditLog,
    pub(super) load_limit: LoadLimitLayer,
    pub(super) connection_limiter: ConnectionLimiter,
    pub(super) stream_quota: Quota,
    pub(super) tls: Option<Arc<ReloadableTls>>,
}

/// Has them go by another.
#[derive(Debug)]
pub(super) struct ConfigReloader {
    targets: ReloadTargets,
    /// What is in force, as it was read.
    config: Config,
    /// Which may be less than what was read.
    max_connections: usize,
    config_state: watch::Sender<ConfigState>,
}

impl ConfigReloader {
    pub(super) fn new(
        parts: ReloadTargets,
        config: Config,
        max_connections: usize,
        state: watch::Sender<ConfigState>,
    ) -> Self {
        Self { targets: parts, config, max_connections, config_state: state }
    }

    /// Reloads on request, and after changes of the file if `watch_config` is set. Returns when a new
    /// process is needed.
    pub(super) async fn run(mut self, mut reloads: ReloadSource) {
        let mut watch = None;
        loop {
            if !self.config.watch_config {
                watch = None;
            }
            let file = reloads.config_file.as_ref().filter(|_| self.config.watch_config);
            tokio::select! {
                () = reloads.requested.notified() => {}
                () = wait_for_file_change(file, &mut watch) => {
                    tracing::info!("the config file changed");
                }
            }
            service_manager::notify_reloading();
            match reloads.load_config.clone() {
                None => tracing::warn!("there is nothing to reload: no --config names a file"),
                Some(load) => {
                    if self.reload_config(load, &mut reloads).await {
                        return;
                    }
                }
            }
            service_manager::notify_reloaded(&self.targets.store, &self.config_state.borrow());
        }
    }

    /// Reads the file and does what it takes. Returns whether a new process is needed.
    async fn reload_config(&mut self, load: ConfigLoader, reloads: &mut ReloadSource) -> bool {
        let (old, tls) = (self.config.clone(), self.targets.tls.clone());
        let may_read = reloads.may_read.clone();
        // Without a service manager, the sandbox keeps the daemon from files in other directories.
        let needs_restart_to_read = may_read.is_some() && reloads.check_file.is_none();
        let (mut file, check_file) = (reloads.config_file.clone(), reloads.check_file.clone());
        let read = tokio::task::spawn_blocking(move || {
            if let Some(file) = &mut file {
                file.stamp = FileStamp::of_path(&file.path);
            }
            let may_read = |dir: &Path| may_read.as_ref().is_none_or(|may_read| may_read(dir));
            (plan(&load, &old, may_read, tls, check_file), file)
        });
        let (plan, file) = read.await.unwrap_or_else(|panic| {
            tracing::error!(%panic, "reading the configuration ended by a defect");
            let mistake = config_error("the configuration", "cannot be read: internal error");
            (Err(vec![mistake]), reloads.config_file.clone())
        });
        reloads.config_file = file;
        match plan {
            Ok(ReloadPlan::Apply(config, waits)) => {
                self.apply_config(*config, waits, reloads).await
            }
            Ok(ReloadPlan::Restart(keys)) => {
                tracing::warn!("starting again, as these keys need it: {}", keys.join(", "));
                service_manager::notify_restarting(&keys);
                return true;
            }
            Err(mistakes) => self.report_rejection(&mistakes, needs_restart_to_read),
        }
        false
    }

    fn report_rejection(&self, mistakes: &[ConfigError], needs_restart_to_read: bool) {
        for mistake in mistakes {
            let mistake = truncate_escaped(&mistake.to_string(), 4 * MAX_FIRST_ERROR_BYTES);
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
        let refusal = RejectedReload {
            rejected_at: unix_time(),
            error_positions: mistakes
                .iter()
                .filter_map(error_location)
                .take(MAX_REPORTED_ERRORS)
                .collect(),
            first_error: truncate_escaped(&first, MAX_FIRST_ERROR_BYTES),
        };
        self.config_state.send_modify(|state| {
            state.rejected_reloads += 1;
            state.last_rejection = Some(refusal);
        });
    }

    async fn apply_config(
        &mut self,
        config: Config,
        waits: RestartRequired,
        reloads: &ReloadSource,
    ) {
        for warning in &config.warnings {
            tracing::warn!("{warning}");
        }
        let ReloadTargets {
            store: keeper,
            auth_layer: admission,
            audit,
            load_limit: door,
            connection_limiter: gate,
            stream_quota: streams,
            tls: _,
        } = &self.targets;
        let mut limits = config.limits.clone();
        limits.max_connections = self.max_connections;
        // Who may ask comes before what there is to be asked for.
        admission.replace_rules(auth_config(&config));
        audit.set_log_every_call(config.audit);
        door.set_limits(&limits);
        gate.set_limits(&limits);
        streams.set_limits(limits.max_streams, limits.max_streams_per_caller);
        keeper.apply_policy(policy_config(&config, limits));
        // What is told of it from here on is as it is now.
        let patience = WaitBudget::new(Some(RESCAN_TIMEOUT));
        drop(
            keeper.view(&keeper.select_published_roots(), ConsistencyLevel::Fresh, patience).await,
        );
        for dir in &waits.unreadable_dirs {
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
        self.config_state.send_modify(|state| {
            state.read_at = unix_time();
            state.applied_reloads += 1;
            state.last_rejection = None;
            state.restart_required = waits.keys;
        });
    }
}

/// Reads the file and decides whether to apply, refuse or leave it to a new process. Blocks.
fn plan(
    load: &ConfigLoader,
    old: &Config,
    may_read: impl Fn(&Path) -> bool,
    tls: Option<Arc<ReloadableTls>>,
    check_file: Option<ConfigFileCheck>,
) -> Result<ReloadPlan, Vec<ConfigError>> {
    let loaded = load().map(|config| config.restrict_to_reloadable(old, &may_read));
    let check = match (&loaded, check_file) {
        (Ok((_, waits)), Some(check)) if !waits.keys.is_empty() => Some(check),
        // The sandbox may be the only reason, such as a certificate in another directory.
        (Err(_), Some(check)) => Some(check),
        _ => None,
    };
    let Some(check) = check else { return plan_apply(loaded?, tls) };
    let found = match check() {
        Ok(found) => found,
        Err(error) => {
            tracing::error!(%error, "the config file cannot be checked outside the sandbox");
            return plan_apply(loaded?, tls);
        }
    };
    let mut keys = match &loaded {
        Ok((_, waits)) => waits.keys.iter().map(|key| (*key).to_owned()).collect(),
        // The check knows nothing of sockets that were handed over.
        Err(mistakes) if found.is_empty() && mistakes.iter().all(|m| m.file.is_some()) => {
            let key = |mistake: &ConfigError| match &*mistake.key {
                "" => "the config file".to_owned(),
                key => key.to_owned(),
            };
            // The file may have been half written before.
            match load().map(|config| config.restrict_to_reloadable(old, may_read)) {
                Ok((config, waits)) if waits.keys.is_empty() => {
                    return plan_apply((config, waits), tls);
                }
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
fn plan_apply(
    (config, waits): (Config, RestartRequired),
    tls: Option<Arc<ReloadableTls>>,
) -> Result<ReloadPlan, Vec<ConfigError>> {
    if let Some((tls, files)) = tls.zip(config.tls.clone()) {
        tls.reload_files(files).map_err(|unusable| vec![config_error("tls", unusable)])?;
    }
    Ok(ReloadPlan::Apply(Box::new(config), waits))
}

/// Returns once the file is another than when it was read last; never without a file. A file that is
/// missing is no change: programs that replace a file may remove it first.
async fn wait_for_file_change(file: Option<&ConfigFile>, watch: &mut Option<ConfigFileWatch>) {
    let Some(ConfigFile { path, stamp }) = file else { return std::future::pending().await };
    let ConfigFileWatch { watched, hints } = watch.get_or_insert_with(|| {
        let (watched, hints) =
            file_watch::start_file_watcher(|sentence| tracing::warn!("{sentence}"));
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
        hints.wait_for_hint(COMPARE_INTERVAL).await;
    }
}

/// Who is let in, and where the tokens are that are asked for.
pub(super) fn auth_config(config: &Config) -> AuthRules {
    let callers = config.callers.as_ref().map(|rules| {
        let names = rules.callers.rules.iter().map(|rule| rule.name.clone());
        let files = rules.token_files.iter().cloned();
        let callers: CallerPolicy = rules.callers.clone();
        (callers, Arc::new(RuleTokens::new(names.zip(files).collect())))
    });
    let Config { open_health, open_reflection, .. } = *config;
    AuthRules { callers, public_health: open_health, public_reflection: open_reflection }
}

/// What the keeper goes by, with the limits that are to be had.
pub(super) fn policy_config(config: &Config, limits: Limits) -> PolicyConfig {
    PolicyConfig {
        environments: config.environment_ids.clone(),
        allowed_dirs: config.allowed_dirs.clone(),
        published_roots: config.published_roots.clone(),
        rules: SearchRules { limits, ..config.search_rules() },
        timing: config.timing.clone(),
    }
}

/// Since the Unix epoch.
pub(super) fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Where a mistake is, without anything that the file says: callers are told.
fn error_location(mistake: &ConfigError) -> Option<String> {
    let at = mistake.position?;
    let is_known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '[' | ']');
    let key = if mistake.key.chars().all(is_known) { &*mistake.key } else { "" };
    let place = format!("{}:{} {key}", at.line, at.column);
    Some(truncate_escaped(place.trim_end(), MAX_LOCATION_BYTES))
}

fn config_error(key: &str, reason: impl fmt::Display) -> ConfigError {
    let (key, reason) = (key.to_owned(), reason.to_string());
    ConfigError { file: None, position: None, key, value: None, reason }
}

impl fmt::Debug for ReloadSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloads")
            .field("has_file", &self.load_config.is_some())
            .finish_non_exhaustive()
    }
}
