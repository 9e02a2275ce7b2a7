//! Returns free memory to the system. glibc allocates large blocks with mmap and unmaps them when
//! they are freed, but raises the threshold each time: after a few pages of a megabyte, glibc would
//! keep hundreds of them. Setting the threshold keeps it fixed: mallopt(3). glibc does not return
//! small free blocks between used ones, so the daemon trims the heap after connections were closed.
#![cfg_attr(target_env = "gnu", allow(unsafe_code))]

use caproot_core::sync::run_blocking;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::sleep;

/// Smallest block that glibc allocates with mmap: the initial threshold of glibc.
#[cfg(target_env = "gnu")]
const MMAP_THRESHOLD_BYTES: libc::c_int = 128 << 10;

/// Pause between the end of a connection and trimming. More connections may end meanwhile.
const TRIM_DELAY: Duration = Duration::from_secs(1);

/// Pause before trimming again. Calls end after their connection, on a busy machine by seconds.
const LATE_TRIM_DELAY: Duration = Duration::from_secs(10);

/// Trimmer of the heap. Counts the closed connections since the last trim.
/// Clones share their state.
#[derive(Debug, Default, Clone)]
pub struct HeapTrimmer(Arc<AtomicUsize>);

impl HeapTrimmer {
    /// Trims the heap after [`TRIM_DELAY`], and again after [`LATE_TRIM_DELAY`].
    pub fn schedule_trim(&self) {
        if self.0.fetch_add(1, Ordering::Relaxed) == 0 {
            tokio::spawn(trim_until_quiet(self.0.clone()));
        }
    }
}

/// Trims the heap until no connection was closed meanwhile.
async fn trim_until_quiet(closed: Arc<AtomicUsize>) {
    loop {
        let before = closed.load(Ordering::Relaxed);
        trim_after(TRIM_DELAY).await;
        if closed.load(Ordering::Relaxed) != before {
            continue;
        }

        trim_after(LATE_TRIM_DELAY).await;
        let reset = closed.compare_exchange(before, 0, Ordering::Relaxed, Ordering::Relaxed);
        if reset.is_ok() {
            return;
        }
    }
}

async fn trim_after(delay: Duration) {
    sleep(delay).await;
    // Takes some milliseconds per hundred megabytes.
    drop(run_blocking(trim).await);
}

fn trim() {
    // SAFETY: takes no pointers, and is thread-safe: malloc_trim(3).
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Sets the mmap threshold of glibc, once per process.
pub fn set_mmap_threshold() {
    #[cfg(target_env = "gnu")]
    {
        static ONCE: std::sync::Once = std::sync::Once::new();
        // SAFETY: takes no pointers. Another thread that allocates meanwhile reads the old or the
        // new threshold, and both are valid.
        ONCE.call_once(|| {
            let is_set =
                unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES) } == 1;
            if !is_set {
                tracing::debug!("setting the mmap threshold failed");
            }
        });
    }
}
