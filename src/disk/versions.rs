//! Remembers the digest of each version of a file, so that it is computed once. Bounded.

use super::content;
use super::kinds::is_on_disk;
use super::read::Unread;
use super::resource::Regular;
use super::wanted::Wanted;
use crate::domain::{Digest, Version};
use lru::LruCache;
use std::num::NonZero;
use std::sync::{Mutex, PoisonError};

/// About 100 bytes each.
const MAX_VERSIONS: NonZero<usize> = NonZero::new(16_384).expect("not zero");

/// Digests by version, and whether that version is UTF-8.
#[derive(Debug)]
pub struct Versions(Mutex<LruCache<Version, Known>>);

/// What is known of a version.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    pub(super) digest: Digest,
    pub(super) utf8: bool,
    /// Whether it is on a disk of this machine.
    pub(super) on_disk: bool,
}

impl Default for Versions {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(MAX_VERSIONS)))
    }
}

impl Versions {
    pub(super) fn get(&self, version: &Version) -> Option<Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(version).copied()
    }

    /// The digest of an open file, read only where it is not known, and whether that version is
    /// UTF-8. `None` where the file changed meanwhile, or is not as long as its size says.
    pub(super) fn digest(
        &self,
        opened: &Regular,
        wanted: &Wanted,
    ) -> Result<Option<(Digest, bool)>, Unread> {
        if let Some(Known { digest, utf8, .. }) = self.get(&opened.version) {
            return Ok(Some((digest, utf8)));
        }
        match content::digest(&opened.file, opened.version.size, wanted) {
            Ok(Some((digest, utf8))) if opened.is_still()? => {
                let known = Known { digest, utf8, on_disk: is_on_disk(&opened.file) };
                let mut versions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                versions.put(opened.version, known);
                Ok(Some((digest, utf8)))
            }
            Ok(_) => Ok(None),
            Err(_) => Err(Unread::Failed),
        }
    }
}
