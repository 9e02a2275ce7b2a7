//! Faults to order, so that tests can show that the daemon heals from them. A daemon that nobody
//! orders faults of has none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

/// Cheap to clone; all clones are one.
#[doc(hidden)]
#[derive(Debug, Clone, Default)]
pub struct FaultInjector(Arc<FaultState>);

#[derive(Debug, Default)]
struct FaultState {
    drop_percent: AtomicU64,
    dropped_events: AtomicU64,
    /// Of a generator that needs no seed worth the name: xorshift.
    random_state: AtomicU64,
    kill_request: Notify,
}

impl FaultInjector {
    /// From now on this share of the kernel's events is told to nobody.
    pub fn drop_events(&self, percent: u64) {
        self.0.drop_percent.store(percent, Ordering::Relaxed);
    }

    /// How many events were told to nobody.
    #[must_use]
    pub fn dropped_events(&self) -> u64 {
        self.0.dropped_events.load(Ordering::Relaxed)
    }

    /// Ends the inotify instance, as if it could not be read any more.
    pub fn kill_instance(&self) {
        self.0.kill_request.notify_one();
    }

    pub(super) async fn instance_killed(&self) {
        self.0.kill_request.notified().await;
    }

    /// Whether to drop an event. Called by one task only.
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
        self.0.dropped_events.fetch_add(u64::from(drops), Ordering::Relaxed);
        drops
    }
}
