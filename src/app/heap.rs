//! Has memory that was needed once go back to the system. glibc takes large blocks from the system and
//! gives them back, but keeps those of a size of which one came back before: after a few pages of a
//! megabyte it would keep hundreds of them. A bound that is set stays as it is: mallopt(3).
#![cfg_attr(target_env = "gnu", allow(unsafe_code))]

/// The size from which on a block is the system's own: what glibc begins with.
#[cfg(target_env = "gnu")]
const LARGE_BYTES: libc::c_int = 128 << 10;

/// Sets it, once for the process.
pub(super) fn settle() {
    #[cfg(target_env = "gnu")]
    {
        static ONCE: std::sync::Once = std::sync::Once::new();
        // SAFETY: no memory is handed over. Another thread that asks for memory meanwhile reads the
        // bound as it was or as it is, and both are good.
        ONCE.call_once(|| {
            let is_set = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES) } == 1;
            if !is_set {
                tracing::debug!("the heap keeps what was freed");
            }
        });
    }
}
