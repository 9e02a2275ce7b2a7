
use crate::catalog::ScopeStats;
use crate::domain::{ConfigState, RejectedReload};
use crate::proto::caproot::v1 as pb;
use prost_types::Timestamp;
use std::time::Duration;

/// Builds the state of the configuration.
pub(super) fn config_status(state: &ConfigState) -> pb::ConfigStatus {
    let ConfigState {
        read_at,
        applied_reloads: reloads,
        rejected_reloads: refusals,
        last_rejection: refusal,
        restart_required,
    } = state;
    let refusal = refusal.as_ref().map(
        |RejectedReload { rejected_at: at, error_positions: mistakes, first_error: _ }| {
            pb::ConfigRejection { time: Some(timestamp(*at)), errors: mistakes.clone() }
        },
    );
    pb::ConfigStatus {
        load_time: Some(timestamp(*read_at)),
        applied_reloads: *reloads,
        rejected_reloads: *refusals,
        last_rejection: refusal,
        restart_required: restart_required.iter().map(|key| (*key).to_owned()).collect(),
    }
}

/// Builds the counts of roots, skills and diagnostics.
pub(super) fn catalog_stats(holdings: &ScopeStats) -> pb::CatalogStats {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let ScopeStats { ready, pending, unavailable, skills, errors, warnings } = *holdings;
    pb::CatalogStats {
        ready_roots: number(ready),
        pending_roots: number(pending),
        unavailable_roots: number(unavailable),
        skills: number(skills),
        errors: number(errors),
        warnings: number(warnings),
    }
}

fn timestamp(since_epoch: Duration) -> Timestamp {
    Timestamp {
        seconds: i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(since_epoch.subsec_nanos()).unwrap_or_default(),
    }
}
