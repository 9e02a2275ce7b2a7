//! One page of one version of a file. Blocks.

use super::allowed_dirs::ResolvedRootDir;
use super::approved_page::{ApprovedPage, BlockDigestCache};
use super::content;
use super::digest_cache::{DigestCache, KnownDigest};
use super::dirs_snapshot::ResolveError;
use super::open_file::{OpenError, OpenFile};
use super::package::{ReadRules, ResolvedPackage};
use super::page_bytes::PageBytes;
use crate::daemon::model::FileVersion;
use caproot_core::wire::{ContentDigest, RelPath};
use rustix::io::Errno;
use std::io;
use tokio_util::sync::CancellationToken;

/// Request for a page of a file.
#[derive(Debug)]
pub struct FilePageRequest<'a> {
    /// Package, as walked from the root.
    pub package: &'a RelPath,
    /// File, as walked from the package.
    pub resource: &'a RelPath,
    /// Version of the earlier pages and offset of the page; `None` for the first page.
    pub from: Option<(FileVersion, u64)>,
    /// Maximum size of the page, at least 4 bytes.
    pub max_bytes: usize,
    /// Digest for which the first page is returned without content.
    pub unless_digest: Option<&'a str>,
    /// Rules for reading files.
    pub rules: ReadRules<'a>,
    /// Maximum size of the file.
    pub max_file_bytes: u64,
}

/// Caches of reads.
#[derive(Debug, Default)]
pub struct ReadCaches {
    /// Digests of files.
    pub digests: DigestCache,
    /// Digests of the blocks of approved files.
    pub blocks: BlockDigestCache,
}

/// Page of a file.
#[derive(Debug)]
pub struct FilePage {
    /// Version of the file for a cursor, mixed with the digest.
    pub version: FileVersion,
    /// Digest of the whole file. If the page is the whole file, the digest of the page.
    pub digest: ContentDigest,
    /// Content; `None` if the caller has it already.
    pub body: Option<PageBody>,
    /// Offset of the next page; `None` at the end.
    pub next: Option<u64>,
}

/// Content of a page.
#[derive(Debug)]
pub enum PageBody {
    /// Content of a file that is UTF-8 as a whole.
    Text(PageBytes),
    /// Content of another file.
    Bytes(PageBytes),
}

/// Reason why a file was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileReadError {
    /// The package has no such regular file.
    NotFound,
    /// A link leads outside the allowed directories.
    Outside,
    /// The file exceeds the size limit.
    TooLarge {
        /// Size of the file in bytes.
        size: u64,
    },
    /// The file is not the version of the cursor, or changed during the read; with its current
    /// digest.
    Changed(Option<ContentDigest>),
    /// The content is not the approved content.
    NotApproved {
        /// Digest of the approved content.
        approved: ContentDigest,
        /// Digest of the current content, if its size is the approved size.
        current: Option<ContentDigest>,
    },
    /// The daemon's user has no read permission.
    Denied,
    /// The file may hold keys or passwords, and is never served.
    Secret,
    /// The limit of open files is reached.
    TooManyOpenFiles,
    /// The filesystem failed.
    Failed,
}

/// Maximum number of attempts to read a file that changes in the meantime.
const TRIES: usize = 3;

/// Reads a page of a file below a root. Ends early if canceled.
pub fn read_page(
    root: &ResolvedRootDir,
    page: &FilePageRequest<'_>,
    caches: &ReadCaches,
    cancel_token: &CancellationToken,
) -> Result<FilePage, FileReadError> {
    if cancel_token.is_cancelled() {
        return Err(FileReadError::Failed);
    }
    let package = ResolvedPackage::resolve(root, page.package, page.rules)?;
    let digests = &caches.digests;
    if let Some(approved) = page.approved_page()? {
        return approved.read(&package, digests, &caches.blocks, cancel_token);
    }

    for _ in 0..TRIES {
        let opened = package.open(page.resource)?;
        let version = opened.version;
        if version.size > page.max_file_bytes {
            return Err(FileReadError::TooLarge { size: version.size });
        }

        let Some(known) = digests.get_or_digest(&opened, cancel_token)? else {
            // The file did not change, so its reported size is wrong.
            if opened.is_unchanged()? {
                return read_page_of_unknown_size(&opened, page, cancel_token);
            }
            continue;
        };

        let Some(offset) = page.start_offset(&version, &known.digest)? else {
            return Ok(FilePage::not_modified(version, known.digest));
        };
        let len = usize::try_from(version.size - offset)
            .unwrap_or(usize::MAX)
            .min(page.max_bytes);
        let bytes = content::read_range(&opened.file, offset, len)?;
        // A file that changes during the read may give bytes of two versions.
        if !opened.is_unchanged()? || bytes.len() < len {
            continue;
        }
        return FilePage::new(version, known, offset, bytes, digests);
    }
    Err(FileReadError::Changed(None))
}

/// Reads a page of a file with an unknown or wrong reported size, such as a file in /proc. Reads
/// the whole file for each page. The version is built from the content, because the times of such a
/// file do not identify it.
fn read_page_of_unknown_size(
    opened: &OpenFile,
    page: &FilePageRequest<'_>,
    cancel_token: &CancellationToken,
) -> Result<FilePage, FileReadError> {
    // The version of the cursor is checked after the read, because the content determines it.
    let offset = page.from.map_or(0, |(_, offset)| offset);

    let page_read = content::read_digested_page(
        &opened.file,
        offset,
        page.max_bytes,
        page.max_file_bytes,
        cancel_token,
    )?;

    if page_read.size > page.max_file_bytes {
        return Err(FileReadError::TooLarge {
            size: page_read.size,
        });
    }

    let version = opened
        .version
        .with_content_digest(page_read.size, &page_read.digest);
    match page.start_offset(&version, &page_read.digest)? {
        Some(offset) => FilePage::with_digest(
            version,
            page_read.digest,
            page_read.utf8,
            offset,
            page_read.page.into(),
        ),
        None => Ok(FilePage::not_modified(version, page_read.digest)),
    }
}

impl FilePageRequest<'_> {
    /// Returns the page of the approved file, if the package is readable only as approved. A file that
    /// is not approved does not exist for callers.
    pub(super) fn approved_page(&self) -> Result<Option<ApprovedPage<'_>>, FileReadError> {
        let Some(files) = self.rules.approved_files else {
            return Ok(None);
        };
        let approved = files.get(self.resource).ok_or(FileReadError::NotFound)?;
        Ok(Some(ApprovedPage {
            request: self,
            approved: *approved,
        }))
    }

    /// Returns the offset of the page in this version; `None` if no content is needed.
    pub(super) fn start_offset(
        &self,
        version: &FileVersion,
        digest: &ContentDigest,
    ) -> Result<Option<u64>, FileReadError> {
        match self.from {
            Some((expected, _)) if expected != version.with_mixed_digest(digest) => {
                Err(FileReadError::Changed(Some(*digest)))
            }
            Some((_, offset)) => Ok(Some(offset)),
            None if self
                .unless_digest
                .is_some_and(|known| known == digest.to_string()) =>
            {
                Ok(None)
            }
            None => Ok(Some(0)),
        }
    }
}

impl FilePage {
    /// Creates a page of a file with a known digest. If the page is the whole file, the bytes decide
    /// on the digest.
    pub(super) fn new(
        version: FileVersion,
        known: KnownDigest,
        offset: u64,
        bytes: PageBytes,
        digests: &DigestCache,
    ) -> Result<Self, FileReadError> {
        let is_whole = offset == 0 && bytes.len() as u64 == version.size;
        let KnownDigest { digest, utf8, .. } = if is_whole {
            digests.verify_whole_file(&version, known, bytes.as_ref())
        } else {
            known
        };
        Self::with_digest(version, digest, utf8, offset, bytes)
    }

    /// Creates a page without content.
    pub(super) fn not_modified(version: FileVersion, digest: ContentDigest) -> Self {
        Self {
            version: version.with_mixed_digest(&digest),
            digest,
            body: None,
            next: None,
        }
    }

    pub(super) fn with_digest(
        version: FileVersion,
        digest: ContentDigest,
        utf8: bool,
        offset: u64,
        mut bytes: PageBytes,
    ) -> Result<Self, FileReadError> {
        // A page of text ends at a character boundary. A page that does not start at a boundary has a
        // forged cursor, and is rejected like a changed file.
        if utf8 && let Err(error) = std::str::from_utf8(bytes.as_ref()) {
            if error.error_len().is_some() {
                return Err(FileReadError::Changed(None));
            }
            bytes.truncate(error.valid_up_to());
        }

        let end = offset + bytes.len() as u64;
        let body = if utf8 {
            PageBody::Text(bytes)
        } else {
            PageBody::Bytes(bytes)
        };
        Ok(Self {
            version: version.with_mixed_digest(&digest),
            digest,
            body: Some(body),
            next: (end < version.size).then_some(end),
        })
    }
}

impl From<Errno> for FileReadError {
    fn from(errno: Errno) -> Self {
        OpenError::from(errno).into()
    }
}

/// Error of a read from an open file.
impl From<io::Error> for FileReadError {
    fn from(_: io::Error) -> Self {
        Self::Failed
    }
}

impl From<OpenError> for FileReadError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::NotRegular => Self::NotFound,
            OpenError::Resolve(error) => match error {
                ResolveError::Outside => Self::Outside,
                ResolveError::Missing | ResolveError::NotADirectory | ResolveError::Loop => {
                    Self::NotFound
                }
                ResolveError::Denied => Self::Denied,
                ResolveError::TooManyOpenFiles => Self::TooManyOpenFiles,
                ResolveError::Failed => Self::Failed,
            },
        }
    }
}
