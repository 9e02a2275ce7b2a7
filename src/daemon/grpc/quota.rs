//! Quotas with two limits: a total, and a limit for each caller, so that a single caller cannot use
//! up the total.

use crate::daemon::model::{Limits, QuotaKey};
use caproot_core::sync::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Name and value of a limit. Errors report the name.
pub type QuotaLimit = (&'static str, usize);

/// Quota of one resource. All clones share the same usage.
#[derive(Debug, Clone)]
pub struct Quota(Arc<QuotaInner>);

/// Permits of one caller. Drop returns the permits to the quota.
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
    total_limit: QuotaLimit,
    per_caller_limit: QuotaLimit,
    usage: Mutex<QuotaUsage>,
}

/// Usage of a quota. The map contains only keys with permits, so the total limits its size.
#[derive(Debug, Default)]
struct QuotaUsage {
    total: usize,
    by_key: HashMap<QuotaKey, usize>,
}

impl Quota {
    /// Creates an unused quota.
    #[must_use]
    pub fn new(total: QuotaLimit, per_caller: QuotaLimit) -> Self {
        Self(Arc::new(QuotaInner {
            total_limit: total,
            per_caller_limit: per_caller,
            usage: Mutex::default(),
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

    /// Acquires `amount` permits, or none.
    pub fn acquire(&self, key: &QuotaKey, amount: usize) -> Result<QuotaPermit, QuotaExceeded> {
        let mut permit = QuotaPermit {
            quota: self.clone(),
            key: key.clone(),
            amount: 0,
        };
        permit.acquire_more(amount)?;
        Ok(permit)
    }
}

impl QuotaPermit {
    /// Acquires a permit of its own for the same caller.
    pub fn acquire_another(&self, amount: usize) -> Result<Self, QuotaExceeded> {
        self.quota.acquire(&self.key, amount)
    }

    /// Acquires `amount` further permits, or none.
    pub fn acquire_more(&mut self, amount: usize) -> Result<(), QuotaExceeded> {
        let quota = &self.quota.0;
        let mut usage = quota.usage.lock();
        let used = usage.by_key.get(&self.key).copied().unwrap_or(0);

        // The per-caller limit comes first because it is the more specific cause.
        let limits = [
            (quota.per_caller_limit, used),
            (quota.total_limit, usage.total),
        ];
        for ((limit_name, limit), used) in limits {
            if used.checked_add(amount).is_none_or(|after| after > limit) {
                return Err(QuotaExceeded { limit_name, limit });
            }
        }

        usage.total += amount;
        *usage.by_key.entry(self.key.clone()).or_default() += amount;
        self.amount += amount;
        Ok(())
    }
}

impl Drop for QuotaPermit {
    fn drop(&mut self) {
        let mut usage = self.quota.0.usage.lock();
        usage.total -= self.amount;
        if let Some(used) = usage.by_key.get_mut(&self.key) {
            *used -= self.amount;
            if *used == 0 {
                usage.by_key.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Quota, QuotaExceeded};
    use crate::daemon::model::QuotaKey;

    #[test]
    fn permits_are_limited_and_returned() {
        let quota = Quota::new(("all", 5), ("each", 3));
        let [a, b] = [1, 2].map(QuotaKey::User);
        let mut permit = quota.acquire(&a, 2).expect("permits are available");
        permit.acquire_more(1).expect("permits are available");
        assert_eq!(
            permit.acquire_more(1),
            Err(QuotaExceeded {
                limit_name: "each",
                limit: 3
            })
        );
        let other = quota.acquire(&b, 2).expect("permits are available");
        assert_eq!(
            quota.acquire(&b, 1).err(),
            Some(QuotaExceeded {
                limit_name: "all",
                limit: 5
            })
        );
        assert_eq!(
            quota.acquire(&b, usize::MAX).err(),
            Some(QuotaExceeded {
                limit_name: "each",
                limit: 3
            })
        );
        drop(permit);
        assert!(quota.acquire(&a, 3).is_ok());
        drop(other);
        let usage = quota.0.usage.lock();
        assert_eq!((usage.total, usage.by_key.len()), (0, 0));
    }
}
