//! A map that several owners share.

use super::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// Map that several owners share, and that is only replaced as a whole.
#[derive(Debug)]
pub struct SharedMap<K, V>(Arc<Mutex<HashMap<K, V>>>);

impl<K: Hash + Eq, V: Copy> SharedMap<K, V> {
    /// Replaces all entries for all owners.
    pub fn replace(&self, entries: HashMap<K, V>) {
        *self.0.lock() = entries;
    }

    /// Returns the value of a key.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<V> {
        self.0.lock().get(key).copied()
    }
}

impl<K, V> Clone for SharedMap<K, V> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K, V> Default for SharedMap<K, V> {
    fn default() -> Self {
        Self(Arc::default())
    }
}
