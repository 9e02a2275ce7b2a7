//! Bounded cache of file digests by version.

use super::content;
use super::file_page::FileReadError;
use super::filesystem_types::is_on_local_disk;
use super::open_file::OpenFile;
use crate::daemon::model::FileVersion;
use caproot_core::sync::Mutex;
use caproot_core::wire::ContentDigest;
use lru::LruCache;
use std::num::NonZero;
use tokio_util::sync::CancellationToken;

/// Maximum number of digests, of about 100 bytes each.
const MAX_CACHED_DIGESTS: NonZero<usize> = NonZero::new(16_384).expect("not zero");

/// Digests by file version.
#[derive(Debug)]
pub struct DigestCache(Mutex<LruCache<FileVersion, KnownDigest>>);

/// Digest of a file version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownDigest {
    pub digest: ContentDigest,
    pub utf8: bool,
    /// Whether the file is on a local disk.
    pub is_on_local_disk: bool,
}

impl Default for DigestCache {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(MAX_CACHED_DIGESTS)))
    }
}

impl DigestCache {
    pub(super) fn get(&self, version: &FileVersion) -> Option<KnownDigest> {
        self.0.lock().get(version).copied()
    }

    /// Returns the digest of a page that is a whole file. If the digest differs from the known one,
    /// the file was changed by a write through a shared mapping, which may change no time: the known
    /// digest is replaced.
    pub(super) fn verify_whole_file(
        &self,
        version: &FileVersion,
        known: KnownDigest,
        bytes: &[u8],
    ) -> KnownDigest {
        let digest = ContentDigest::of(bytes);
        if digest == known.digest {
            return known;
        }
        let changed = KnownDigest {
            digest,
            utf8: std::str::from_utf8(bytes).is_ok(),
            ..known
        };
        self.0.lock().put(*version, changed);
        changed
    }

    /// Stores the digest of an open file.
    pub(super) fn record_digest(
        &self,
        opened: &OpenFile,
        digest: ContentDigest,
        utf8: bool,
    ) -> KnownDigest {
        let known = KnownDigest {
            digest,
            utf8,
            is_on_local_disk: is_on_local_disk(&opened.file),
        };
        self.0.lock().put(opened.version, known);
        known
    }

    /// Returns the digest of an open file. Reads the file if its digest is not cached. Returns
    /// `None` if the file changed in the meantime or its size is not the reported size.
    pub(super) fn get_or_digest(
        &self,
        opened: &OpenFile,
        cancel_token: &CancellationToken,
    ) -> Result<Option<KnownDigest>, FileReadError> {
        if let Some(known) = self.get(&opened.version) {
            return Ok(Some(known));
        }

        match content::digest_file(&opened.file, opened.version.size, cancel_token)? {
            Some((digest, utf8)) if opened.is_unchanged()? => {
                Ok(Some(self.record_digest(opened, digest, utf8)))
            }
            _ => Ok(None),
        }
    }
}
