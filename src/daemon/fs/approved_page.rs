//! Pages of approved files. Each page is verified in memory before it is sent, because the times of a
//! file do not tell each change: a write through a shared mapping may change none of them (mmap(2)).

use super::content;
use super::digest_cache::DigestCache;
use super::file_page::{FilePage, FilePageRequest, FileReadError};
use super::package::ResolvedPackage;
use crate::daemon::model::FileVersion;
use caproot_core::sync::{Mutex, WeightedLru};
use caproot_core::wire::{ContentDigest, FileChecksum};
use std::fs::File;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Size of a block. A page is verified in whole blocks.
pub const BLOCK_BYTES: usize = 16 << 10;
/// Maximum number of digests of blocks in the cache, which take 8 MiB.
const MAX_CACHED_BLOCKS: usize = (8 << 20) / size_of::<ContentDigest>();

/// Digests of the blocks of approved files, by the digest of the file. The weight of a file is the number of
/// its blocks.
#[derive(Debug)]
pub struct BlockDigestCache(Mutex<WeightedLru<ContentDigest, Arc<FileBlocks>>>);

/// Digests of the blocks of a file.
#[derive(Debug)]
pub struct FileBlocks {
    digests: Box<[ContentDigest]>,
    /// Whether the file is UTF-8.
    utf8: bool,
}

impl Default for BlockDigestCache {
    fn default() -> Self {
        Self(Mutex::new(WeightedLru::new(MAX_CACHED_BLOCKS, usize::MAX)))
    }
}

/// Approved file of which a page is read.
#[derive(Debug, Clone, Copy)]
pub struct ApprovedPage<'a> {
    pub request: &'a FilePageRequest<'a>,
    pub approved: FileChecksum,
}

impl ApprovedPage<'_> {
    /// Reads a page of the file in a package.
    pub fn read(
        self,
        package: &ResolvedPackage<'_>,
        digests: &DigestCache,
        blocks: &BlockDigestCache,
        cancel_token: &CancellationToken,
    ) -> Result<FilePage, FileReadError> {
        if self.approved.bytes > self.request.max_file_bytes {
            return Err(FileReadError::TooLarge {
                size: self.approved.bytes,
            });
        }

        // Only the approved content is ever sent: a caller that has it needs no look at the file.
        let Some(offset) = self.start_offset()? else {
            return Ok(self.not_modified());
        };

        let opened = package.open(self.request.resource)?;
        // Another size shows another content, without a read.
        if opened.version.size != self.approved.bytes {
            return Err(self.refusal(None));
        }

        let blocks = self.find_or_read_blocks(&opened.file, blocks, cancel_token)?;
        let read = |at, len| content::read_range(&opened.file, at, len).ok();
        let Some(page) = self.verified_page(offset, &blocks, read) else {
            let digested = content::digest_file(&opened.file, self.approved.bytes, cancel_token);
            let current = digested.ok().flatten().map(|(digest, _)| digest);
            // The approved bytes may be back.
            return Err(self.refusal(current.filter(|digest| *digest != self.approved.digest)));
        };

        // Later pages may then need no thread: `read_page_cached` needs a known digest.
        digests.record_digest(&opened, self.approved.digest, blocks.utf8);
        page
    }

    /// Returns the offset of the page; `None` if the caller has the content already. Cursors depend on
    /// the content only.
    pub fn start_offset(self) -> Result<Option<u64>, FileReadError> {
        let digest = self.approved.digest;
        let offset = self.request.start_offset(&self.version(), &digest)?;
        Ok(offset.map(|offset| offset.min(self.approved.bytes)))
    }

    pub fn not_modified(self) -> FilePage {
        FilePage::not_modified(self.version(), self.approved.digest)
    }

    /// Returns the known digests of the blocks. A file of one block needs no other digest.
    pub fn known_blocks(self, cache: &BlockDigestCache) -> Option<Arc<FileBlocks>> {
        if self.approved.bytes > BLOCK_BYTES as u64 {
            return cache.0.lock().get(&self.approved.digest).cloned();
        }
        Some(Arc::new(FileBlocks {
            digests: [self.approved.digest].into(),
            utf8: true,
        }))
    }

    /// Reads the blocks of a page with `read`, which gets an offset and a length. Returns `None` if a
    /// block is not approved. The inner error is about a forged cursor.
    pub fn verified_page<B: AsRef<[u8]>>(
        self,
        offset: u64,
        blocks: &FileBlocks,
        read: impl FnOnce(u64, usize) -> Option<B>,
    ) -> Option<Result<FilePage, FileReadError>> {
        let block = BLOCK_BYTES as u64;
        let page_len = self.approved.bytes - offset;
        let page_len = page_len.min(self.request.max_bytes as u64);
        let first = offset / block;
        let end = (offset + page_len).div_ceil(block) * block;
        let start = first * block;
        let len = usize::try_from(end.min(self.approved.bytes).max(start) - start).ok()?;

        let bytes = read(start, len)?;
        let bytes = bytes.as_ref();
        let first = usize::try_from(first).ok()?;
        if bytes.len() != len || !blocks.are_equal(first, bytes) {
            return None;
        }

        let skip = usize::try_from(offset - start).ok()?;
        let page = bytes[skip..].iter().take(usize::try_from(page_len).ok()?);
        let page: Vec<u8> = page.copied().collect();
        // A file of one block is in memory as a whole.
        let utf8 = blocks.utf8 && (blocks.digests.len() > 1 || std::str::from_utf8(bytes).is_ok());
        let digest = self.approved.digest;
        Some(FilePage::with_digest(
            self.version(),
            digest,
            utf8,
            offset,
            page.into(),
        ))
    }

    /// Returns the digests of the blocks. Reads the file if they are not known.
    fn find_or_read_blocks(
        self,
        file: &File,
        cache: &BlockDigestCache,
        cancel_token: &CancellationToken,
    ) -> Result<Arc<FileBlocks>, FileReadError> {
        if let Some(known) = self.known_blocks(cache) {
            return Ok(known);
        }
        let read = content::digest_blocks(file, self.approved.bytes, BLOCK_BYTES, cancel_token)?;
        if read.digest != self.approved.digest {
            return Err(self.refusal(Some(read.digest)));
        }

        let blocks = Arc::new(FileBlocks {
            digests: read.blocks.into(),
            utf8: read.utf8,
        });
        let weight = blocks.digests.len();
        let mut cache = cache.0.lock();
        cache.put(self.approved.digest, blocks.clone(), weight);
        Ok(blocks)
    }

    /// Returns the error for a file with other bytes.
    fn refusal(self, current: Option<ContentDigest>) -> FileReadError {
        FileReadError::NotApproved {
            approved: self.approved.digest,
            current,
        }
    }

    /// Returns the version for cursors.
    fn version(self) -> FileVersion {
        let none = FileVersion {
            device: 0,
            inode: 0,
            size: 0,
            mtime: (0, 0),
            ctime: (0, 0),
        };
        none.with_content_digest(self.approved.bytes, &self.approved.digest)
    }
}

impl FileBlocks {
    /// Whether bytes from the start of a block on have the digests of the blocks.
    fn are_equal(&self, first: usize, bytes: &[u8]) -> bool {
        // An empty file has one block, which is empty.
        let is_empty_file = bytes.is_empty() && self.digests.len() == 1 && first == 0;
        if is_empty_file {
            return ContentDigest::of(bytes) == self.digests[0];
        }
        let mut chunks = bytes.chunks(BLOCK_BYTES).enumerate();
        chunks.all(|(at, block)| self.digests.get(first + at) == Some(&ContentDigest::of(block)))
    }
}
