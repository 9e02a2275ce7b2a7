//! Reloads the configuration of a running daemon. A blocking task reads the file and plans the
//! reload; this module applies or rejects the result. Reloads run one at a time.

use super::denied_roots::DeniedRoots;
use super::reload_plan::{
    ConfigFileCheck, ConfigLoader, NewConfig, ReloadPlan, SandboxReadCheck, plan_reload,
};
use super::service_manager;
use super::tls::ReloadableTls;
use crate::daemon::catalog::{CatalogStore, ConsistencyLevel, PolicyConfig, WaitBudget};
use crate::daemon::config::{
    Config, ConfigError, ConfigErrors, LoadedTrust, LockPaths, READ_TIMEOUT, ReadLock,
    ReadProgress, record_reading,
};
use crate::daemon::grpc::auth::RuleTokens;
use crate::daemon::grpc::{AuthLayer, AuthRules};
use crate::daemon::model::{ConfigState, Limits, RejectedReload};
use crate::daemon::scan::search::SearchRules;
use crate::daemon::telemetry::LogHandle;
use caproot_core::file_watch::{FileChanges, FileStamp, FileStamps, stamp_files};
use caproot_core::sync::{Mutex, run_blocking};
use caproot_core::text::truncate_with_ellipsis;
use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// Time for which an invalid lock is not reported, because a lock and its signature are written one
/// after the other.
const WRITE_GRACE: Duration = Duration::from_secs(2);
/// Longest wait for the scans after a reload.
const RESCAN_TIMEOUT: Duration = Duration::from_secs(5);
/// Most errors whose positions callers see, and most bytes of each position.
const MAX_REPORTED_ERRORS: usize = 20;
const MAX_LOCATION_BYTES: usize = 120;
/// Most bytes of the first error in the status of the service manager.
const MAX_FIRST_ERROR_BYTES: usize = 400;
/// Most earlier reloads that still wait for a file. Each of them keeps a thread.
const MAX_HUNG_READS: usize = 4;

/// Source of new configurations. The default has no file, so every reload fails.
#[derive(Clone, Default)]
pub struct ReloadSource {
    /// Notified to request a reload.
    pub requested: Arc<Notify>,
    /// `None` if there is no file to read.
    pub load_config: Option<ConfigLoader>,
    /// `None` if no sandbox restricts the process.
    pub may_read: Option<SandboxReadCheck>,
    /// Logs whose filter may change.
    pub logs: Option<Arc<LogHandle>>,
    /// File that `load_config` reads.
    pub config_file: Option<ConfigFile>,
    /// Set if a service manager restarts the daemon. A reload that needs a new process then ends
    /// this one.
    pub check_file: Option<ConfigFileCheck>,
}

/// Config file, which is watched if `watch_config` is set.
#[derive(Debug, Clone)]
pub struct ConfigFile {
    /// Path of the file.
    pub path: PathBuf,
    /// Stamp of the file from before it was read.
    pub stamp: Option<FileStamp>,
}

/// Task that applies new configurations to the daemon.
#[derive(Debug)]
pub struct ConfigReloader {
    pub store: CatalogStore,
    pub auth_layer: AuthLayer,
    pub tls: Option<Arc<ReloadableTls>>,
    /// Limits in use, which a reload does not change.
    pub limits: Limits,
    /// Applied configuration.
    pub config: Config,
    pub config_state: watch::Sender<ConfigState>,
    /// Earlier reloads that were rejected because a file did not answer.
    pub hung_reads: Vec<AbortHandle>,
}

impl ConfigReloader {
    /// Reloads on request, and after changes of the file if `watch_config` is set. Returns when a
    /// new process is needed.
    pub async fn run(mut self, mut reloads: ReloadSource) {
        let mut changes = None;
        let mut lock_changes = None;
        let mut denied_roots = DeniedRoots::new(&self.store);
        loop {
            let file = reloads
                .config_file
                .as_ref()
                .filter(|_| self.config.watch_config);
            tokio::select! {
                () = wait_for_lock_change(self.config.trust.as_ref(), &mut lock_changes) => {
                    self.reload_lock(&mut lock_changes).await;
                    continue;
                }
                root = denied_roots.wait_for_new() => {
                    // A sandbox cannot be widened, so that only a new process can read the root.
                    tracing::warn!(root, "restarting to read a root that was created after the start");
                    service_manager::notify_restarting(&[format!("the new root {root}")]);
                    return;
                }
                () = reloads.requested.notified() => {}
                () = wait_for_file_change(file, &mut changes) => {
                    tracing::info!("the config file changed");
                }
            }

            service_manager::notify_reloading();
            match reloads.load_config.clone() {
                None => tracing::warn!(
                    "there is nothing to reload: the daemon runs without --config FILE"
                ),
                Some(load) => {
                    if self.reload_config(load, &mut reloads).await {
                        return;
                    }
                }
            }

            // The service manager waits for the end of a rejected reload, too: sd_notify(3).
            service_manager::notify_reloaded(&self.store, &self.config_state.borrow());
        }
    }

    /// Reads the file, and applies or rejects it. Returns whether a new process is needed.
    async fn reload_config(&mut self, load: ConfigLoader, reloads: &mut ReloadSource) -> bool {
        // Without a service manager, the sandbox denies files in new directories until a restart.
        let needs_restart_to_read = reloads.may_read.is_some() && reloads.check_file.is_none();
        match self.plan_in_time(load, reloads).await {
            Ok(ReloadPlan::Apply(new)) => self.apply_config(*new, reloads).await,
            Ok(ReloadPlan::Restart(keys)) => {
                tracing::warn!("restarting to apply: {}", keys.join(", "));
                service_manager::notify_restarting(&keys);
                return true;
            }
            Err(errors) => {
                log_rejection(&errors, needs_restart_to_read);
                self.config_state.send_modify(|state| {
                    state.rejected_reloads += 1;
                    state.last_rejection = Some(rejected_reload(&errors));
                });
            }
        }
        false
    }

    /// Reads the file on a blocking thread. If a file does not answer in time, returns an error that
    /// names the file, and discards the result of the thread.
    async fn plan_in_time(
        &mut self,
        load: ConfigLoader,
        reloads: &mut ReloadSource,
    ) -> Result<ReloadPlan, ConfigErrors> {
        self.hung_reads.retain(|read| !read.is_finished());
        if self.hung_reads.len() >= MAX_HUNG_READS {
            let reason = format!(
                "cannot be read: {MAX_HUNG_READS} earlier reloads still wait for a file; repair its \
                 filesystem, or restart the daemon"
            );
            return Err(ConfigError::key("the configuration", reason).into());
        }

        let progress = ReadProgress::default();
        let stamp = Arc::new(Mutex::new(None));
        let mut read = {
            let old = self.config.clone();
            let tls = self.tls.clone();
            let may_read = reloads.may_read.clone();
            let check_file = reloads.check_file.clone();
            let path = reloads.config_file.as_ref().map(|file| file.path.clone());
            let read_progress = progress.clone();
            let read_stamp = stamp.clone();
            tokio::task::spawn_blocking(move || {
                read_progress.follow(|| {
                    if let Some(path) = &path {
                        record_reading(&[path]);
                        *read_stamp.lock() = Some(FileStamp::of_path(path));
                    }
                    let is_readable =
                        |dir: &Path| may_read.as_ref().is_none_or(|may_read| may_read(dir));
                    plan_reload(&load, &old, is_readable, tls, check_file)
                })
            })
        };

        let planned = timeout(READ_TIMEOUT, &mut read).await;

        // Even if the file does not answer: only a further change of the file starts a reload.
        if let (Some(file), Some(stamp)) = (&mut reloads.config_file, *stamp.lock()) {
            file.stamp = stamp;
        }
        match planned {
            Ok(Ok(plan)) => plan,
            Ok(Err(panic)) => {
                if panic.is_cancelled() {
                    // The runtime shuts down.
                    pending::<()>().await;
                }
                tracing::error!(panic = ?Some(panic), "internal error: reading the configuration panicked");
                let reason = "cannot be read: internal error";
                Err(ConfigError::key("the configuration", reason).into())
            }
            Err(_) => {
                // The result is dropped if the file answers too late.
                self.hung_reads.push(read.abort_handle());
                Err(Config::read_timeout_error(&progress).into())
            }
        }
    }

    async fn apply_config(&mut self, new: NewConfig, reloads: &ReloadSource) {
        let NewConfig {
            config,
            restart,
            tls: new_tls,
        } = new;
        for warning in &config.warnings {
            tracing::warn!("{warning}");
        }

        if let Some((tls, new_tls)) = self.tls.as_ref().zip(new_tls) {
            tls.install(new_tls, |_| true);
        }
        // Before the policy of the store, so that no caller sees new roots under the old rules.
        self.auth_layer.replace_rules(auth_config(&config));
        self.apply_policy(&config);
        self.wait_for_rescan().await;

        for dir in &restart.unreadable_dirs {
            tracing::warn!(
                "{} is outside the daemon's sandbox; restart the daemon to allow access",
                dir.display()
            );
        }
        if !restart.keys.is_empty() {
            tracing::warn!("needs a restart: {}", restart.keys.join(", "));
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
            state.lock_rejection = None;
            state.restart_required = restart.keys;
        });
    }

    /// Reads the lock again, and applies or rejects it.
    async fn reload_lock(&mut self, changes: &mut Option<FileChanges>) {
        let Some(trust) = &mut self.config.trust else {
            return;
        };
        let paths = LockPaths::of(&trust.policy.lock);
        let read = read_lock_in_time(&paths, &self.config.allowed_dirs).await;
        match read {
            Ok(ReadLock { lock, stamps }) => {
                trust.policy.lock = Arc::new(lock);
                trust.stamps = stamps;
            }
            Err(rejected) => {
                let RejectedLock { error, stamps } = *rejected;
                trust.stamps = stamps;
                // A program may still be writing the signature.
                let next_change = wait_for_lock_change(Some(trust), changes);
                if timeout(WRITE_GRACE, next_change).await.is_err() {
                    let text =
                        truncate_with_ellipsis(&error.to_string(), 4 * MAX_FIRST_ERROR_BYTES);
                    tracing::error!("new lock rejected: {text}; keeping the previous lock");
                    self.config_state.send_modify(|state| {
                        state.lock_rejection = Some(rejected_reload(&[error]));
                    });
                }
                return;
            }
        }

        self.apply_policy(&self.config);
        self.wait_for_rescan().await;
        tracing::info!("the lock was reloaded");
        self.config_state
            .send_modify(|state| state.lock_rejection = None);
    }

    fn apply_policy(&self, config: &Config) {
        self.store
            .apply_policy(policy_config(config, self.limits.clone()));
    }

    /// Waits until the roots are scanned by the new rules. From then on, responses show the new
    /// configuration.
    async fn wait_for_rescan(&self) {
        let store = &self.store;
        let selection = store.select_published_roots();
        let budget = WaitBudget::new(Some(RESCAN_TIMEOUT));
        let view = store.view(&selection, ConsistencyLevel::Fresh, budget);
        drop(view.await);
    }
}

/// Returns what callers and the service manager see of errors.
fn rejected_reload(errors: &[ConfigError]) -> RejectedReload {
    let first = errors.first().map(ToString::to_string).unwrap_or_default();
    let positions = errors.iter().filter_map(error_location);
    RejectedReload {
        rejected_at: unix_time(),
        error_positions: positions.take(MAX_REPORTED_ERRORS).collect(),
        first_error: truncate_with_ellipsis(&first, MAX_FIRST_ERROR_BYTES),
    }
}

/// Logs each error in a line. A single error shares its line with the consequence, so that one cause
/// is one line.
fn log_rejection(errors: &[ConfigError], needs_restart_to_read: bool) {
    let hint = if needs_restart_to_read {
        "; files outside the daemon's sandbox are readable only after a restart"
    } else {
        ""
    };
    let consequence = format!("keeping the previous configuration{hint}");

    for error in errors {
        let error = truncate_with_ellipsis(&error.to_string(), 4 * MAX_FIRST_ERROR_BYTES);
        if errors.len() == 1 {
            tracing::error!("new configuration rejected: {error}; {consequence}");
            return;
        }
        tracing::error!("new configuration rejected: {error}");
    }

    tracing::error!(errors = errors.len(), "{consequence}");
}

/// Waits until the file differs from the last one read. Never returns without a file. A missing
/// file is not a change, because programs may remove a file before they replace it.
async fn wait_for_file_change(file: Option<&ConfigFile>, changes: &mut Option<FileChanges>) {
    let Some(ConfigFile { path, stamp }) = file else {
        return pending().await;
    };
    let changes =
        changes.get_or_insert_with(|| FileChanges::start(|sentence| tracing::warn!("{sentence}")));
    let mut known = vec![*stamp];
    loop {
        let (stamps, _) = changes
            .wait_for_change(|| (vec![path.clone()], known.clone()))
            .await;
        if stamps[0].is_some() && stamps[0] != *stamp {
            return;
        }
        known = stamps;
    }
}

/// Waits until a file of the lock differs from the last one read. Never returns without a lock. A missing
/// file is a change: the operator must learn that the lock is gone.
async fn wait_for_lock_change(trust: Option<&LoadedTrust>, changes: &mut Option<FileChanges>) {
    let Some(trust) = trust else {
        return pending().await;
    };
    let changes =
        changes.get_or_insert_with(|| FileChanges::start(|sentence| tracing::warn!("{sentence}")));
    let paths = LockPaths::of(&trust.policy.lock).all();
    let change = changes.wait_for_change(|| (paths.clone(), trust.stamps.clone()));
    drop(change.await);
}

/// Lock that is not valid, and the stamps of its files from before they were read.
struct RejectedLock {
    error: ConfigError,
    stamps: FileStamps,
}

/// Reads a lock on a blocking thread. A filesystem that does not answer is an error.
async fn read_lock_in_time(
    paths: &LockPaths,
    allowed_dirs: &[PathBuf],
) -> Result<ReadLock, Box<RejectedLock>> {
    let task = {
        let paths = paths.clone();
        let allowed_dirs = allowed_dirs.to_vec();
        run_blocking(move || {
            let stamps = stamp_files(&paths.all());
            let read = paths.read(&allowed_dirs);
            read.map_err(|error| Box::new(RejectedLock { error, stamps }))
        })
    };
    let reason = match timeout(READ_TIMEOUT, task).await {
        Ok(Ok(read)) => return read,
        Ok(Err(error)) => format!("cannot be read: {error}"),
        Err(_) => "does not answer; repair its filesystem".to_owned(),
    };
    // Without stamps, the next comparison starts another attempt.
    Err(Box::new(RejectedLock {
        error: ConfigError::file(&paths.lock, reason),
        stamps: vec![None; paths.all().len()],
    }))
}

/// Returns the rules of callers with their tokens.
pub fn auth_config(config: &Config) -> AuthRules {
    let callers = config.callers.as_ref().map(|rules| {
        let names = rules.callers.rules.iter().map(|rule| rule.name.clone());
        let files = rules.token_files.iter().cloned();
        let tokens = RuleTokens::new(names.zip(files).collect(), config.socket_groups.clone());
        (rules.callers.clone(), Arc::new(tokens))
    });

    AuthRules {
        callers,
        public_health: config.open_health,
        public_reflection: config.open_reflection,
    }
}

/// Returns the policy of the catalog store under the limits in use.
pub fn policy_config(config: &Config, limits: Limits) -> PolicyConfig {
    PolicyConfig {
        environments: config.environment_ids.clone(),
        allowed_dirs: config.allowed_dirs.clone(),
        published_roots: config.published_roots.clone(),
        rules: SearchRules {
            limits,
            ..config.search_rules()
        },
        timing: config.timing.clone(),
    }
}

/// Returns the time since the Unix epoch.
pub fn unix_time() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// Formats the position of an error. Callers see it, so it contains nothing else of the file.
fn error_location(error: &ConfigError) -> Option<String> {
    let at = error.position?;
    let is_plain = error
        .key
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '[' | ']'));
    let key = if is_plain { &*error.key } else { "" };
    let location = format!("{}:{} {key}", at.line, at.column);
    Some(truncate_with_ellipsis(
        location.trim_end(),
        MAX_LOCATION_BYTES,
    ))
}
