//! Logs when a published root becomes unavailable or polled, and when it recovers. Callers and
//! metrics show the states of other roots.

use crate::daemon::catalog::{CatalogStore, PollReason, RootState, WatchMode};
use crate::daemon::model::{AccessScope, RootReason};
use caproot_core::wire::RootId;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::sleep;

/// Minimum time between two checks, so that a root that changes often does not flood the log.
const MIN_LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Health of a root, as logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RootHealth {
    Healthy,
    Polling(PollReason),
    Unavailable(RootReason),
}

/// Logs each change of the health of a published root. Ends when the store is dropped.
pub async fn log_root_health(store: CatalogStore) {
    let mut revisions = store.subscribe_revisions();
    let mut known = HashMap::new();
    loop {
        let published = store.published_roots(&AccessScope::All);
        let view = store.current_view(&store.select_published_roots());
        for (root, published) in view.roots.into_iter().zip(published.iter()) {
            if published.is_hidden(root.state.reason()) {
                known.remove(&root.id);
                continue;
            }
            let Some(health) = root_health(&root.state) else {
                continue;
            };
            let before = known.insert(root.id.clone(), health);
            if before.unwrap_or(RootHealth::Healthy) != health {
                log_health(&root.id, health);
            }
        }
        if revisions.changed().await.is_err() {
            return;
        }
        sleep(MIN_LOG_INTERVAL).await;
    }
}

/// Returns the health of a root; `None` before the first scan.
fn root_health(state: &RootState) -> Option<RootHealth> {
    match (state.reason(), state) {
        (Some(reason), _) => Some(RootHealth::Unavailable(reason)),
        (None, RootState::Snapshot(snapshot)) => Some(match snapshot.watch_mode {
            WatchMode::Events => RootHealth::Healthy,
            WatchMode::Polling(reason) => RootHealth::Polling(reason),
        }),
        (None, RootState::Pending | RootState::Unavailable(_)) => None,
    }
}

fn log_health(root: &RootId, health: RootHealth) {
    let root = root.as_str();
    match health {
        RootHealth::Healthy => tracing::info!(root, "{root}: published root recovered"),
        RootHealth::Unavailable(reason) => {
            let reason = reason.name();
            tracing::warn!(root, reason, "{root}: published root unavailable");
        }
        RootHealth::Polling(reason) => {
            let reason = reason.to_string();
            tracing::warn!(
                root,
                reason,
                "{root}: published root is polled; changes appear late"
            );
        }
    }
}
