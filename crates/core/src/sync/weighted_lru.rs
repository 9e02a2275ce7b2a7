//! Least recently used entries, limited by the sum of their weights.

use lru::LruCache;
use std::hash::Hash;

/// Entries up to a maximum weight and number. The entries that were not used for the longest time go first.
#[derive(Debug)]
pub struct WeightedLru<K: Hash + Eq, V> {
    entries: LruCache<K, (V, usize)>,
    weight: usize,
    max_weight: usize,
    max_len: usize,
}

impl<K: Hash + Eq, V> WeightedLru<K, V> {
    /// Creates an empty cache. The unit of a weight is that of the caller, such as bytes.
    #[must_use]
    pub fn new(max_weight: usize, max_len: usize) -> Self {
        Self {
            entries: LruCache::unbounded(),
            weight: 0,
            max_weight,
            max_len,
        }
    }

    /// Returns a value, and marks it as used.
    pub fn get(&mut self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(value, _)| value)
    }

    /// Adds a value. Returns the values that had to go: an earlier one of the key, the least recently used
    /// ones, and a value that alone is over the maximum.
    pub fn put(&mut self, key: K, value: V, weight: usize) -> Vec<V> {
        let replaced = self.entries.push(key, (value, weight));
        self.weight += weight;

        let mut removed = Vec::new();
        let mut next = replaced;
        loop {
            if let Some((_, (value, weight))) = next {
                self.weight -= weight;
                removed.push(value);
            }
            if self.weight <= self.max_weight && self.entries.len() <= self.max_len {
                return removed;
            }
            next = self.entries.pop_lru();
        }
    }

    /// Removes all entries, and their memory.
    pub fn clear(&mut self) {
        self.entries = LruCache::unbounded();
        self.weight = 0;
    }

    /// Returns the sum of the weights.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::WeightedLru;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_entries_that_were_used_last_stay(steps in vec((0..6_u8, 0..9_usize, any::<bool>()), 0..60)) {
            let mut cache = WeightedLru::new(20, 4);
            // The most recently used entry is the last one.
            let mut model: Vec<(u8, usize)> = Vec::new();
            for (key, weight, is_put) in steps {
                let at = model.iter().position(|(known, _)| *known == key);
                let known = at.map(|at| model.remove(at));
                if is_put {
                    let mut removed = cache.put(key, (key, weight), weight);
                    model.push((key, weight));
                    let mut expected: Vec<_> = known.into_iter().collect();
                    while model.len() > 4 || model.iter().map(|(_, weight)| weight).sum::<usize>() > 20 {
                        expected.push(model.remove(0));
                    }
                    removed.sort_unstable();
                    expected.sort_unstable();
                    prop_assert_eq!(removed, expected);
                } else {
                    prop_assert_eq!(cache.get(&key).copied(), known);
                    model.extend(known);
                }
                prop_assert_eq!(cache.len(), model.len());
                prop_assert_eq!(cache.weight(), model.iter().map(|(_, weight)| weight).sum::<usize>());
            }
        }
    }

    #[test]
    fn a_value_over_the_maximum_is_not_kept() {
        let mut cache = WeightedLru::new(10, usize::MAX);
        assert!(cache.put(1, "small", 5).is_empty());
        assert_eq!(cache.put(2, "large", 11), ["small", "large"]);
        assert!(cache.is_empty());
        assert_eq!(cache.weight(), 0);
    }
}
