//! Remembers the digest of each version of a file, so that it is computed once. Bounded.

use crate::domain::{Digest, Version};
use lru::LruCache;
use std::num::NonZero;
use std::sync::{Mutex, PoisonError};

/// About 100 bytes each.
const MAX_VERSIONS: NonZero<usize> = NonZero::new(16_384).expect("not zero");

/// Digests by version, and whether that version is UTF-8.
#[derive(Debug)]
pub struct Versions(Mutex<LruCache<Version, (Digest, bool)>>);

impl Default for Versions {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(MAX_VERSIONS)))
    }
}

impl Versions {
    pub(super) fn get(&self, version: &Version) -> Option<(Digest, bool)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(version).copied()
    }

    pub(super) fn put(&self, version: Version, found: (Digest, bool)) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).put(version, found);
    }
}
