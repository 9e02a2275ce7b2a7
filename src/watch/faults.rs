//! Faults to order, so that tests can show that the daemon heals from them. A daemon that nobody
//! orders faults of has none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

/// Cheap to clone; all clones are one.
#[doc(hidden)]
#[derive(Debug, Clone, Default)]
pub struct Faults(Arc<Ordered>);

#[derive(Debug, Default)]
struct Ordered {
    percent: AtomicU64,
    dropped: AtomicU64,
    /// Of a generator that needs no seed worth the name: xorshift.
    state: AtomicU64,
    death: Notify,
}

impl Faults {
    /// From now on this share of the kernel's events is told to nobody.
    pub fn drop_events(&self, percent: u64) {
        self.0.percent.store(percent, Ordering::Relaxed);
    }

    /// How many events were told to nobody.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }

    /// Ends the inotify instance, as if it could not be read any more.
    pub fn kill_instance(&self) {
        self.0.death.notify_one();
    }

    pub(super) async fn death(&self) {
        self.0.death.notified().await;
    }

    /// Whether to drop an event. Called by one task only.
    pub(super) fn drops(&self) -> bool {
        let percent = self.0.percent.load(Ordering::Relaxed);
        if percent == 0 {
            return false;
        }
        let mut state = self.0.state.load(Ordering::Relaxed).max(1);
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        self.0.state.store(state, Ordering::Relaxed);
        let drops = (state >> 32) % 100 < percent;
        self.0.dropped.fetch_add(u64::from(drops), Ordering::Relaxed);
        drops
    }
}
