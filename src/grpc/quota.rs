//! Quotas with two limits: a total, and a limit for each caller, so that a single caller cannot use
//! up the total.

use crate::domain::{Limits, QuotaKey};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Name and value of a limit. Errors report the name.
pub type QuotaLimit = (&'static str, usize);

/// Quota of one resource. All clones share the same usage.
#[derive(Debug, Clone)]
pub struct Quota(Arc<QuotaInner>);

/// Permits of one caller. Dropping them returns them to the quota.
#[derive(Debug)]
pub struct QuotaPermit {
    quota: Quota,
    key: QuotaKey,
    amount: usize,
}

/// Limit that a request for permits exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaExceeded {
    /// Name of the limit.
    pub limit_name: &'static str,
    /// Value of the limit.
    pub limit: usize,
}

#[derive(Debug)]
struct QuotaInner {
    /// Names of the total limit and the per-caller limit.
    limit_names: [&'static str; 2],
    usage: Mutex<QuotaUsage>,
}

/// Usage of a quota. The map contains only keys with permits, so the total limits its size.
#[derive(Debug, Default)]
struct QuotaUsage {
    /// Total limit and per-caller limit.
    limits: [usize; 2],
    total: usize,
    by_key: HashMap<QuotaKey, usize>,
}

impl Quota {
    /// Creates an unused quota.
    #[must_use]
    pub fn new(in_all: QuotaLimit, per_caller: QuotaLimit) -> Self {
        let taken = QuotaUsage { limits: [in_all.1, per_caller.1], ..QuotaUsage::default() };
        Self(Arc::new(QuotaInner {
            limit_names: [in_all.0, per_caller.0],
            usage: Mutex::new(taken),
        }))
    }

    /// Creates the quota of open streams.
    #[must_use]
    pub fn for_streams(limits: &Limits) -> Self {
        Self::new(
            ("max_streams", limits.max_streams),
            ("max_streams_per_caller", limits.max_streams_per_caller),
        )
    }

    /// Changes the limits. Permits beyond a lower limit stay valid.
    pub fn set_limits(&self, in_all: usize, per_caller: usize) {
        self.lock_usage().limits = [in_all, per_caller];
    }

    /// Acquires `amount` permits, or none.
    pub fn acquire(&self, caller: &QuotaKey, amount: usize) -> Result<QuotaPermit, QuotaExceeded> {
        let mut place = QuotaPermit { quota: self.clone(), key: caller.clone(), amount: 0 };
        place.acquire_more(amount)?;
        Ok(place)
    }

    fn lock_usage(&self) -> MutexGuard<'_, QuotaUsage> {
        self.0.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QuotaPermit {
    /// Acquires `amount` further permits, or none.
    pub fn acquire_more(&mut self, amount: usize) -> Result<(), QuotaExceeded> {
        let [in_all, per_caller] = self.quota.0.limit_names;
        let mut taken = self.quota.lock_usage();
        let own = taken.by_key.get(&self.key).copied().unwrap_or(0);
        // The per-caller limit comes first because it is the more specific cause.
        let [most_in_all, most_per_caller] = taken.limits;
        let bounds = [(per_caller, most_per_caller, own), (in_all, most_in_all, taken.total)];
        for (name, limit, now) in bounds {
            if now.checked_add(amount).is_none_or(|after| after > limit) {
                return Err(QuotaExceeded { limit_name: name, limit });
            }
        }
        taken.total += amount;
        *taken.by_key.entry(self.key.clone()).or_default() += amount;
        self.amount += amount;
        Ok(())
    }
}

impl Drop for QuotaPermit {
    fn drop(&mut self) {
        let mut taken = self.quota.lock_usage();
        taken.total -= self.amount;
        if let Some(own) = taken.by_key.get_mut(&self.key) {
            *own -= self.amount;
            if *own == 0 {
                taken.by_key.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Quota, QuotaExceeded};
    use crate::domain::QuotaKey;

    #[test]
    fn nobody_takes_all_and_all_comes_back() {
        let places = Quota::new(("all", 5), ("each", 3));
        let [a, b] = [1, 2].map(QuotaKey::User);
        let mut held = places.acquire(&a, 2).expect("room");
        held.acquire_more(1).expect("room");
        assert_eq!(held.acquire_more(1), Err(QuotaExceeded { limit_name: "each", limit: 3 }));
        let other = places.acquire(&b, 2).expect("room for another");
        assert_eq!(
            places.acquire(&b, 1).err(),
            Some(QuotaExceeded { limit_name: "all", limit: 5 })
        );
        assert_eq!(
            places.acquire(&b, usize::MAX).err(),
            Some(QuotaExceeded { limit_name: "each", limit: 3 })
        );
        drop(held);
        assert!(places.acquire(&a, 3).is_ok());
        places.set_limits(2, 1);
        assert_eq!(
            places.acquire(&a, 1).err(),
            Some(QuotaExceeded { limit_name: "all", limit: 2 })
        );
        drop(other);
        assert_eq!(
            places.acquire(&a, 2).err(),
            Some(QuotaExceeded { limit_name: "each", limit: 1 })
        );
        let taken = places.lock_usage();
        assert_eq!((taken.total, taken.by_key.len()), (0, 0));
    }
}
