//! Another configuration while the daemon runs. It is read and checked off the runtime's own threads,
//! and refused as a whole, or taken over by every part that goes by it. One after the other: whoever
//! asks meanwhile is served by the next. Leaves what can be taken over to `config`, signals to `cli`.

use super::accept::Gate;
use super::supervisor;
use super::tls::Tls;
use crate::bearer::Tokens;
use crate::config::{Config, Mistake, Waits};
use crate::domain::search::Rules;
use crate::domain::shown::brief;
use crate::domain::{Callers, ConfigState, Limits, Refused};
use crate::keeper::{Consistency, Keeper, Patience, Terms};
use crate::rpc::{Admission, Audit, Door, Entry, Places};
use crate::telemetry::Logs;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{Notify, watch};

/// What is waited for the searches that a new configuration makes necessary.
const SEARCHES: Duration = Duration::from_secs(5);
/// Mistakes whose places callers are told, and bytes of each.
const MAX_TOLD: usize = 20;
const MAX_PLACE_BYTES: usize = 120;
/// Bytes that the service manager is told of the first mistake.
const MAX_FIRST_BYTES: usize = 400;

/// Reads the configuration again. Blocks.
pub type Load = Arc<dyn Fn() -> Result<Config, Vec<Mistake>> + Send + Sync>;
/// Whether the process may read below a directory. Blocks.
pub type MayRead = Arc<dyn Fn(&Path) -> bool + Send + Sync>;

/// Where another configuration comes from. The default is nowhere.
#[derive(Clone, Default)]
pub struct Reloads {
    /// Rung to have it read.
    pub asked: Arc<Notify>,
    /// None where there is no file to read.
    pub load: Option<Load>,
    /// None where nothing keeps the process from anything.
    pub may_read: Option<MayRead>,
    /// Whose filter may change.
    pub logs: Option<Arc<Logs>>,
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

    /// Serves whoever asks. Never ends.
    pub(super) async fn serve(mut self, reloads: Reloads) {
        loop {
            reloads.asked.notified().await;
            supervisor::reloading();
            match &reloads.load {
                None => tracing::warn!("there is nothing to reload: no --config names a file"),
                Some(load) => self.reload(load.clone(), &reloads).await,
            }
            supervisor::reloaded(&self.parts.keeper, &self.state.borrow());
        }
    }

    async fn reload(&mut self, load: Load, reloads: &Reloads) {
        let (old, tls) = (self.config.clone(), self.parts.tls.clone());
        let may_read = reloads.may_read.clone();
        let is_walled = may_read.is_some();
        let read = tokio::task::spawn_blocking(move || {
            let may_read = |dir: &Path| may_read.as_ref().is_none_or(|may_read| may_read(dir));
            let (config, waits) = load()?.taken_over(&old, may_read);
            // The last that can fail, so that nothing is taken over before.
            if let Some((tls, files)) = tls.zip(config.tls.clone()) {
                tls.adopt(files).map_err(|unusable| vec![mistake("tls", unusable)])?;
            }
            Ok((config, waits))
        });
        let read = read.await.unwrap_or_else(|panic| {
            tracing::error!(%panic, "reading the configuration ended by a defect");
            Err(vec![mistake("the configuration", "cannot be read by a defect in the daemon")])
        });
        match read {
            Ok((config, waits)) => self.take_over(config, waits, reloads).await,
            Err(mistakes) => self.refuse(&mistakes, is_walled),
        }
    }

    fn refuse(&self, mistakes: &[Mistake], is_walled: bool) {
        for mistake in mistakes {
            let mistake = brief(&mistake.to_string(), 4 * MAX_FIRST_BYTES);
            tracing::error!("the new configuration is refused: {mistake}");
        }
        let hint = if is_walled {
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
