//! Tells the log what becomes of the published roots: that one cannot be used, or is polled, and that
//! it is well again. Leaves roots that callers select to what these are answered, and to the metrics.

use crate::catalog::{CatalogStore, PollReason, RootState, WatchMode};
use crate::domain::{RootId, RootReason};
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::sleep;

/// The least time between two looks, so that a root that comes and goes fills no log.
const MIN_LOG_INTERVAL: Duration = Duration::from_secs(1);

/// How a root is, as far as an operator need know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RootHealth {
    Healthy,
    Polling(PollReason),
    Unavailable(RootReason),
}

/// Tells each change from now on. Ends with the keeper.
pub async fn log_root_health(keeper: CatalogStore) {
    let mut revisions = keeper.subscribe_revisions();
    let mut known = HashMap::new();
    loop {
        for root in keeper.current_view(&keeper.select_published_roots()).roots {
            let Some(now) = root_health(&root.state) else { continue };
            let before = known.insert(root.id.clone(), now);
            if before.unwrap_or(RootHealth::Healthy) != now {
                log_health(&root.id, now);
            }
        }
        if revisions.changed().await.is_err() {
            return;
        }
        sleep(MIN_LOG_INTERVAL).await;
    }
}

/// `None` where that is not known yet.
fn root_health(state: &RootState) -> Option<RootHealth> {
    match (state.reason(), state) {
        (Some(reason), _) => Some(RootHealth::Unavailable(reason)),
        (None, RootState::Snapshot(held)) => Some(match held.watch_mode {
            WatchMode::Events => RootHealth::Healthy,
            WatchMode::Polling(why) => RootHealth::Polling(why),
        }),
        (None, RootState::Pending | RootState::Unavailable(_)) => None,
    }
}

fn log_health(root: &RootId, now: RootHealth) {
    let root = root.as_str();
    match now {
        RootHealth::Healthy => tracing::info!(root, "a published root is well again"),
        RootHealth::Unavailable(reason) => {
            tracing::warn!(root, reason = reason.name(), "a published root cannot be used");
        }
        RootHealth::Polling(why) => {
            let why = match why {
                PollReason::WatchLimit => "the limit of inotify watches is reached",
                PollReason::NoInotifyInstance => "no inotify instance can be had",
                PollReason::WatchRejected => "the kernel does not let a directory be watched",
                PollReason::NoInotifySupport(_) => "its filesystem tells no events",
            };
            tracing::warn!(root, why, "a published root is polled, so that changes come late");
        }
    }
}
