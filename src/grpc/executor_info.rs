//! Messages of `GetExecutor`: limits, change detection, sandbox, configuration and catalog counts.

use crate::catalog::WatchStats;
use crate::domain::limits::{
    DEFAULT_READ_BYTES, Limits, MAX_DIAGNOSTICS, MAX_FRONTMATTER_BYTES, MAX_HANDLE_BYTES,
    MAX_MANIFEST_BYTES, MAX_PAGE_BYTES, MAX_PAGE_SIZE, MAX_READ_BYTES,
};
use crate::domain::{LandlockState, SandboxStatus};
use crate::proto::caproot::v1 as pb;

pub(super) fn limits_message(limits: &Limits) -> pb::Limits {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let Limits {
        max_roots,
        max_depth,
        max_directories,
        max_entries,
        max_skills,
        max_file_bytes,
        max_cached_roots,
        max_reads_per_root,
        max_streams,
        max_history,
        max_diagnostics,
        max_connections,
        max_connections_per_caller,
        max_streams_per_caller,
        max_calls,
        max_calls_per_caller,
    } = *limits;
    pb::Limits {
        max_roots: number(max_roots),
        max_depth: number(max_depth),
        max_directories: number(max_directories),
        max_entries: number(max_entries),
        max_skills: number(max_skills),
        max_file_bytes,
        max_read_bytes: number(MAX_READ_BYTES),
        default_read_bytes: number(DEFAULT_READ_BYTES),
        max_page_size: number(MAX_PAGE_SIZE),
        max_page_bytes: number(MAX_PAGE_BYTES),
        max_diagnostics: number(max_diagnostics.min(MAX_DIAGNOSTICS)),
        max_frontmatter_bytes: number(MAX_FRONTMATTER_BYTES),
        max_manifest_bytes: number(MAX_MANIFEST_BYTES),
        max_handle_bytes: number(MAX_HANDLE_BYTES),
        max_cached_roots: number(max_cached_roots),
        max_reads_per_root: number(max_reads_per_root),
        max_streams: number(max_streams),
        max_history: number(max_history),
        max_connections: number(max_connections),
        max_connections_per_caller: number(max_connections_per_caller),
        max_streams_per_caller: number(max_streams_per_caller),
        max_calls: number(max_calls),
        max_calls_per_caller: number(max_calls_per_caller),
        max_request_bytes: number(limits.max_request_bytes()),
    }
}

/// Builds the state of change detection.
pub(super) fn watch_status(watching: WatchStats) -> pb::WatchStatus {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let backend = if watching.has_inotify { "inotify" } else { "polling" };
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
pub(super) fn sandbox_status(sandbox: &SandboxStatus) -> pb::SandboxStatus {
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
