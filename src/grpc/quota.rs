//! Bounds that callers share: so many in all, and so many of one caller, so that nobody takes all of
//! them. Leaves what is counted, and what is done beyond, to whoever asks for places.

use crate::domain::{Limits, QuotaKey};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A bound by the name under which it is told.
pub type QuotaLimit = (&'static str, usize);

/// Places of one kind. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub struct Quota(Arc<QuotaInner>);

/// Places that one caller has taken. Dropped, it gives them back.
#[derive(Debug)]
pub struct QuotaPermit {
    quota: Quota,
    key: QuotaKey,
    amount: usize,
}

/// No place is left: the bound that was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaExceeded {
    /// Its name.
    pub limit_name: &'static str,
    /// How many there are.
    pub limit: usize,
}

#[derive(Debug)]
struct QuotaInner {
    /// Those under which the bounds are told.
    limit_names: [&'static str; 2],
    usage: Mutex<QuotaUsage>,
}

/// A caller is in the map only while it has a place, so that the map is no larger than the bound.
#[derive(Debug, Default)]
struct QuotaUsage {
    /// How many there are in all, and how many of one caller.
    limits: [usize; 2],
    total: usize,
    by_key: HashMap<QuotaKey, usize>,
}

impl Quota {
    /// None is taken yet.
    #[must_use]
    pub fn new(in_all: QuotaLimit, per_caller: QuotaLimit) -> Self {
        let taken = QuotaUsage { limits: [in_all.1, per_caller.1], ..QuotaUsage::default() };
        Self(Arc::new(QuotaInner {
            limit_names: [in_all.0, per_caller.0],
            usage: Mutex::new(taken),
        }))
    }

    /// Of streams that are open.
    #[must_use]
    pub fn for_streams(limits: &Limits) -> Self {
        Self::new(
            ("max_streams", limits.max_streams),
            ("max_streams_per_caller", limits.max_streams_per_caller),
        )
    }

    /// There are so many from now on, in all and of one caller. Those beyond that are taken stay taken.
    pub fn set_limits(&self, in_all: usize, per_caller: usize) {
        self.lock_usage().limits = [in_all, per_caller];
    }

    /// Takes so many places, or none.
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
    /// Takes so many more, or none.
    pub fn acquire_more(&mut self, amount: usize) -> Result<(), QuotaExceeded> {
        let [in_all, per_caller] = self.quota.0.limit_names;
        let mut taken = self.quota.lock_usage();
        let own = taken.by_key.get(&self.key).copied().unwrap_or(0);
        // What one caller may have is looked at first: it is the nearer cause.
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
