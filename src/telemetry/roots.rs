//! Tells the log what becomes of the published roots: that one cannot be used, or is polled, and that
//! it is well again. Leaves roots that callers select to what these are answered, and to the metrics.

use crate::catalog::{Degraded, Keeper, RootState, WatchMode};
use crate::domain::{Reason, RootId};
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::sleep;

/// The least time between two looks, so that a root that comes and goes fills no log.
const PAUSE: Duration = Duration::from_secs(1);

/// How a root is, as far as an operator need know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    Well,
    Polled(Degraded),
    Lost(Reason),
}

/// Tells each change from now on. Ends with the keeper.
pub async fn tell_of_roots(keeper: Keeper) {
    let mut revisions = keeper.revisions();
    let mut known = HashMap::new();
    loop {
        for root in keeper.view_now(&keeper.offered()).roots {
            let Some(now) = health(&root.state) else { continue };
            let before = known.insert(root.id.clone(), now);
            if before.unwrap_or(Health::Well) != now {
                say(&root.id, now);
            }
        }
        if revisions.changed().await.is_err() {
            return;
        }
        sleep(PAUSE).await;
    }
}

/// `None` where that is not known yet.
fn health(state: &RootState) -> Option<Health> {
    match (state.reason(), state) {
        (Some(reason), _) => Some(Health::Lost(reason)),
        (None, RootState::Held(held)) => Some(match held.watch {
            WatchMode::Events => Health::Well,
            WatchMode::Polling(why) => Health::Polled(why),
        }),
        (None, RootState::Pending | RootState::Unavailable(_)) => None,
    }
}

fn say(root: &RootId, now: Health) {
    let root = root.as_str();
    match now {
        Health::Well => tracing::info!(root, "a published root is well again"),
        Health::Lost(reason) => {
            tracing::warn!(root, reason = reason.name(), "a published root cannot be used");
        }
        Health::Polled(why) => {
            let why = match why {
                Degraded::WatchLimit => "the limit of inotify watches is reached",
                Degraded::NoInstance => "no inotify instance can be had",
                Degraded::Refused => "the kernel does not let a directory be watched",
                Degraded::Eventless(_) => "its filesystem tells no events",
            };
            tracing::warn!(root, why, "a published root is polled, so that changes come late");
        }
    }
}
