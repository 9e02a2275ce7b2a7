//! Has memory that was needed once go back to the system. glibc takes large blocks from the system and
//! gives them back, but keeps those of a size of which one came back before: after a few pages of a
//! megabyte it would keep hundreds of them. A bound that is set stays as it is: mallopt(3). Of small
//! blocks it gives nothing back that lies between others: that is asked for, once connections that had
//! many of them have ended.
#![cfg_attr(target_env = "gnu", allow(unsafe_code))]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// The size from which on a block is the system's own: what glibc begins with.
#[cfg(target_env = "gnu")]
const MMAP_THRESHOLD_BYTES: libc::c_int = 128 << 10;

/// How long after a connection ended: more may end with it, and its calls end after it.
const TRIM_DELAY: Duration = Duration::from_secs(1);

/// What ended connections left: how many ended since the last one whose memory went back. Cheap to
/// clone; all clones are one.
#[derive(Debug, Default, Clone)]
pub(super) struct HeapTrimmer(Arc<AtomicUsize>);

impl HeapTrimmer {
    /// Has it go back to the system soon.
    pub(super) fn schedule_trim(&self) {
        if self.0.fetch_add(1, Ordering::Relaxed) > 0 {
            return;
        }
        let ended = self.0.clone();
        tokio::spawn(async move {
            loop {
                let before = ended.load(Ordering::Relaxed);
                sleep(TRIM_DELAY).await;
                // Some milliseconds for each hundred megabytes.
                drop(spawn_blocking(trim).await);
                // Whatever ended in the pause has a pause of its own.
                let all = ended.compare_exchange(before, 0, Ordering::Relaxed, Ordering::Relaxed);
                if all.is_ok() {
                    return;
                }
            }
        });
    }
}

fn trim() {
    // SAFETY: no memory is handed over, and any thread may ask for this at any time: malloc_trim(3).
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Sets it, once for the process.
pub(super) fn set_mmap_threshold() {
    #[cfg(target_env = "gnu")]
    {
        static ONCE: std::sync::Once = std::sync::Once::new();
        // SAFETY: no memory is handed over. Another thread that asks for memory meanwhile reads the
        // bound as it was or as it is, and both are good.
        ONCE.call_once(|| {
            let is_set =
                unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES) } == 1;
            if !is_set {
                tracing::debug!("the heap keeps what was freed");
            }
        });
    }
}
