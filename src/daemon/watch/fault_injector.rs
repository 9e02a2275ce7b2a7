//! Faults that tests inject into the watcher, to show that the daemon recovers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

/// Injects faults on request of a test. Cheap to clone; all clones share one state.
#[doc(hidden)]
#[derive(Debug, Clone, Default)]
pub struct FaultInjector(Arc<FaultState>);

#[derive(Debug, Default)]
struct FaultState {
    drop_percent: AtomicU64,
    dropped_events: AtomicU64,
    /// State of a xorshift generator.
    random_state: AtomicU64,
    kill_request: Notify,
}

impl FaultInjector {
    /// Drops this percentage of the kernel's events from now on.
    pub fn drop_events(&self, percent: u64) {
        self.0.drop_percent.store(percent, Ordering::Relaxed);
    }

    /// How many events were dropped.
    #[must_use]
    pub fn dropped_events(&self) -> u64 {
        self.0.dropped_events.load(Ordering::Relaxed)
    }

    /// Ends the inotify instance as if reading its events failed.
    pub fn kill_instance(&self) {
        self.0.kill_request.notify_one();
    }

    pub(super) async fn instance_killed(&self) {
        self.0.kill_request.notified().await;
    }

    /// Whether to drop the next event. Only one task may call this method: the generator is not
    /// updated atomically.
    pub(super) fn should_drop_event(&self) -> bool {
        let percent = self.0.drop_percent.load(Ordering::Relaxed);
        if percent == 0 {
            return false;
        }
        let mut state = self.0.random_state.load(Ordering::Relaxed).max(1);
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        self.0.random_state.store(state, Ordering::Relaxed);
        let drops = (state >> 32) % 100 < percent;
        self.0
            .dropped_events
            .fetch_add(u64::from(drops), Ordering::Relaxed);
        drops
    }
}
