//! Response of `GetExecutor`: limits, change detection, sandbox, configuration and catalog counts.

use super::list_pages::format_epoch;
use super::skill_message::text_or_empty;
use crate::daemon::catalog::{CatalogStore, RootStateCounts, ScopeStats, WatchStats};
use crate::daemon::model::limits::{
    Limits, MAX_DIAGNOSTICS, MAX_FRONTMATTER_BYTES, MAX_MANIFEST_BYTES, limit_table,
};
use crate::daemon::model::{
    AccessScope, ConfigState, LandlockState, RejectedReload, SandboxStatus, TrustCounts, TrustMode,
    TrustPolicy,
};
use caproot_core::proto::caproot::v1 as pb;
use caproot_core::wire::limits::{
    DEFAULT_READ_BYTES, MAX_HANDLE_BYTES, MAX_PAGE_BYTES, MAX_PAGE_SIZE, MAX_READ_BYTES,
};
use prost_types::Timestamp;
use std::time::{Duration, SystemTime};
use tokio::sync::watch;

/// Features that a client may rely on.
const FEATURES: [&str; 8] = [
    "fresh",
    "file-uri",
    "published",
    "plugins",
    "gzip",
    "catalog-digests",
    "trust",
    "readiness",
];

/// Facts about the daemon, for `GetExecutor`.
#[derive(Debug)]
pub struct DaemonInfo {
    /// Start time of the daemon.
    pub start_time: SystemTime,
    /// Commit, profile and target of the build.
    pub build: &'static str,
    /// Sandbox of the daemon.
    pub sandbox: SandboxStatus,
    /// State of the config file. A watch channel keeps only the latest value, so it is never full.
    pub config_state: watch::Receiver<ConfigState>,
}

impl DaemonInfo {
    /// Builds the response for a caller with this access scope.
    pub(super) fn executor_response(
        &self,
        store: &CatalogStore,
        access_scope: &AccessScope,
    ) -> pb::GetExecutorResponse {
        let config_state = self.config_state.borrow();
        let stats = store.scope_stats(access_scope);
        pb::GetExecutorResponse {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            environment_ids: store.environments().to_vec(),
            start_time: Some(self.start_time.into()),
            limits: Some(limits_message(&store.limits())),
            features: FEATURES.map(str::to_owned).to_vec(),
            epoch: format_epoch(store.epoch()),
            revision: store.revision(),
            watch: Some(watch_status(store.watch_stats(access_scope))),
            sandbox: Some(sandbox_status(&self.sandbox)),
            resolver: store.opener().name().to_owned(),
            build: self.build.to_owned(),
            config: Some(config_status(&config_state)),
            catalog_stats: Some(catalog_stats(&stats)),
            trust: store
                .trust()
                .map(|trust| trust_status(&trust, &config_state, stats.trust)),
        }
    }
}

/// Converts a limit to the type of its field.
macro_rules! wire_value {
    (Count, $value:expr) => {
        number($value)
    };
    (Size, $value:expr) => {
        $value
    };
}

macro_rules! define_limits_message {
    (
        configurable { $($name:ident: $unit:ident = $default:expr, $bounds:tt;)* }
        fixed { $($fixed:ident = $value:expr;)* }
    ) => {
        fn limits_message(limits: &Limits) -> pb::Limits {
            let mut message = pb::Limits {
                $($name: wire_value!($unit, limits.$name),)*
                $($fixed: number($value),)*
                max_request_bytes: number(limits.max_request_bytes()),
            };
            // A program with its own daemon may keep more than a response can have.
            message.max_diagnostics = message.max_diagnostics.min(number(MAX_DIAGNOSTICS));
            message
        }
    };
}

limit_table!(define_limits_message);

/// Builds the state of change detection.
fn watch_status(watching: WatchStats) -> pb::WatchStatus {
    let backend = if watching.has_inotify {
        "inotify"
    } else {
        "polling"
    };
    pb::WatchStatus {
        backend: backend.to_owned(),
        watches_used: watching.watches_used as u64,
        watches_limit: watching.watches_limit,
        overflows: watching.overflows,
        missed_changes: watching.missed_changes,
        roots: number(watching.roots),
        polling_roots: number(watching.polling_roots),
    }
}

/// Builds the state of the sandbox.
fn sandbox_status(sandbox: &SandboxStatus) -> pb::SandboxStatus {
    let landlock = match sandbox.landlock {
        LandlockState::Enforced => pb::LandlockState::Enforced,
        LandlockState::Partial => pb::LandlockState::Partial,
        LandlockState::Off => pb::LandlockState::Off,
        LandlockState::Unavailable => pb::LandlockState::Unavailable,
    };
    pb::SandboxStatus {
        landlock: landlock.into(),
        landlock_abi: sandbox.landlock_abi,
        no_new_privs: sandbox.no_new_privs,
        readable_dirs: sandbox.readable_dirs,
    }
}

/// Builds the state of the configuration.
fn config_status(state: &ConfigState) -> pb::ConfigStatus {
    pb::ConfigStatus {
        load_time: Some(timestamp(state.read_at)),
        applied_reloads: state.applied_reloads,
        rejected_reloads: state.rejected_reloads,
        last_rejection: state.last_rejection.as_ref().map(config_rejection),
        restart_required: state
            .restart_required
            .iter()
            .copied()
            .map(str::to_owned)
            .collect(),
    }
}

/// Builds the last rejection, without the text of the error: it may quote the file.
fn config_rejection(rejection: &RejectedReload) -> pb::ConfigRejection {
    pb::ConfigRejection {
        time: Some(timestamp(rejection.rejected_at)),
        errors: rejection.error_positions.clone(),
    }
}

/// Builds the state of the lock, without the paths of its files.
fn trust_status(
    trust: &TrustPolicy,
    config_state: &ConfigState,
    counts: TrustCounts,
) -> pb::TrustStatus {
    let mode = match trust.mode {
        TrustMode::Warn => pb::TrustMode::Warn,
        TrustMode::Hide => pb::TrustMode::Hide,
    };
    let lock = &trust.lock;
    pb::TrustStatus {
        mode: mode.into(),
        lock_digest: lock.digest.to_string(),
        lock_skills: number(lock.lock.skills().len()),
        load_time: Some(timestamp(lock.loaded_at)),
        signer: text_or_empty(lock.signer.as_deref()),
        last_rejection: config_state.lock_rejection.as_ref().map(config_rejection),
        approved: number(counts.skills.approved),
        changed: number(counts.skills.changed),
        unknown: number(counts.skills.unknown),
        lock_plugins: number(lock.lock.plugins().len()),
        approved_plugins: number(counts.plugins.approved),
        changed_plugins: number(counts.plugins.changed),
        unknown_plugins: number(counts.plugins.unknown),
    }
}

/// Builds the counts of roots, skills and diagnostics.
fn catalog_stats(stats: &ScopeStats) -> pb::CatalogStats {
    pb::CatalogStats {
        published_roots: Some(root_state_counts(&stats.published)),
        selected_roots: Some(root_state_counts(&stats.selected)),
        skills: number(stats.skills),
        errors: number(stats.errors),
        warnings: number(stats.warnings),
        unrequested_roots: number(stats.unrequested),
    }
}

fn root_state_counts(counts: &RootStateCounts) -> pb::RootStateCounts {
    pb::RootStateCounts {
        ready: number(counts.ready),
        pending: number(counts.pending),
        unavailable: number(counts.unavailable_count()),
    }
}

/// Converts a number to the type of the message, saturating.
fn number(n: impl TryInto<u32>) -> u32 {
    n.try_into().unwrap_or(u32::MAX)
}

fn timestamp(since_epoch: Duration) -> Timestamp {
    Timestamp {
        seconds: i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(since_epoch.subsec_nanos()).unwrap_or_default(),
    }
}
