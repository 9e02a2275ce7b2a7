//! One page of one file, from one version of it. Blocking.

use super::allowed_dirs::{ResolveError, ResolvedRootDir};
use super::cancellation::CancelToken;
use super::content;
use super::digest_cache::DigestCache;
use super::open_file::{OpenError, OpenFile};
use super::package::{ReadRules, ResolvedPackage};
use super::page_bytes::PageBytes;
use crate::domain::{ContentDigest, FileVersion, RelPath};

/// Which page.
#[derive(Debug)]
pub struct FilePageRequest<'a> {
    /// The package, as walked below the root.
    pub package: &'a RelPath,
    /// The file, as walked below the package.
    pub resource: &'a RelPath,
    /// The version and offset of a page that goes on, else the first page.
    pub from: Option<(FileVersion, u64)>,
    /// The most bytes, at least 4.
    pub max_bytes: usize,
    /// A digest for which no content is wanted on the first page.
    pub unless_digest: Option<&'a str>,
    /// What may be read.
    pub rules: ReadRules<'a>,
    /// The most bytes of a file.
    pub max_file_bytes: u64,
}

/// What was read.
#[derive(Debug)]
pub struct FilePage {
    /// The version that it is a page of.
    pub version: FileVersion,
    /// Of the whole file.
    pub digest: ContentDigest,
    /// The page; `None` where it is not wanted.
    pub body: Option<PageBody>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<u64>,
}

/// A page's content.
#[derive(Debug)]
pub enum PageBody {
    /// The whole file is UTF-8, and so is this.
    Text(PageBytes),
    /// It is not.
    Bytes(PageBytes),
}

/// Why nothing was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileReadError {
    /// No such regular file in the package.
    NotFound,
    /// A link leads outside the allowed roots.
    Outside,
    /// Over the bound.
    TooLarge {
        /// Its size in bytes.
        size: u64,
    },
    /// Not the version of the cursor, or it changed while it was read; its digest now.
    Changed(Option<ContentDigest>),
    /// The daemon's user may not read it.
    Denied,
    /// There is no file descriptor left to read it with.
    TooManyOpenFiles,
    /// The filesystem failed.
    Failed,
}

/// How often a file that changes while it is digested is tried again.
const TRIES: usize = 3;

/// Reads a page of a file below a root; what is read for nobody ends early.
pub fn read_page(
    root: &ResolvedRootDir,
    page: &FilePageRequest<'_>,
    versions: &DigestCache,
    wanted: &CancelToken,
) -> Result<FilePage, FileReadError> {
    wanted.check_cancelled().map_err(|_| FileReadError::Failed)?;
    let package = ResolvedPackage::resolve(root, page.package, page.rules)?;
    for _ in 0..TRIES {
        let opened = package.open(page.resource)?;
        let version = opened.version;
        if version.size > page.max_file_bytes {
            return Err(FileReadError::TooLarge { size: version.size });
        }
        let Some((digest, utf8)) = versions.get_or_digest(&opened, wanted)? else {
            // It is not as long as its size says, though nobody changes it.
            if opened.is_unchanged()? {
                return read_page_of_unknown_size(&opened, page, wanted);
            }
            continue;
        };
        let Some(offset) = page.start_offset(&version, &digest)? else {
            return Ok(FilePage { version, digest, body: None, next: None });
        };
        let len = usize::try_from(version.size - offset).unwrap_or(usize::MAX).min(page.max_bytes);
        let bytes =
            content::read_range(&opened.file, offset, len).map_err(|_| FileReadError::Failed)?;
        if !opened.is_unchanged()? || bytes.len() < len {
            continue;
        }
        return FilePage::new(version, digest, utf8, offset, bytes);
    }
    Err(FileReadError::Changed(None))
}

/// Reads a page of a file whose size its filesystem does not tell, or tells wrong, as in /proc: all
/// of it is read for each page, and its content stands for the times that such a file has not.
fn read_page_of_unknown_size(
    opened: &OpenFile,
    page: &FilePageRequest<'_>,
    wanted: &CancelToken,
) -> Result<FilePage, FileReadError> {
    let offset = page.from.map_or(0, |(_, offset)| offset);
    let whole = content::read_digested_page(
        &opened.file,
        offset,
        page.max_bytes,
        page.max_file_bytes,
        wanted,
    );
    let whole = whole.map_err(|_| FileReadError::Failed)?;
    if whole.size > page.max_file_bytes {
        return Err(FileReadError::TooLarge { size: whole.size });
    }
    let version = opened.version.with_content_digest(whole.size, &whole.digest);
    match page.start_offset(&version, &whole.digest)? {
        Some(offset) => FilePage::new(version, whole.digest, whole.utf8, offset, whole.page.into()),
        None => Ok(FilePage { version, digest: whole.digest, body: None, next: None }),
    }
}

impl FilePageRequest<'_> {
    /// Where the page begins in this version; `None` where no content is wanted.
    pub(super) fn start_offset(
        &self,
        version: &FileVersion,
        digest: &ContentDigest,
    ) -> Result<Option<u64>, FileReadError> {
        match self.from {
            Some((expected, _)) if expected != *version => {
                Err(FileReadError::Changed(Some(*digest)))
            }
            Some((_, offset)) => Ok(Some(offset)),
            None if self.unless_digest.is_some_and(|held| held == digest.to_string()) => Ok(None),
            None => Ok(Some(0)),
        }
    }
}

impl FilePage {
    pub(super) fn new(
        version: FileVersion,
        digest: ContentDigest,
        utf8: bool,
        offset: u64,
        bytes: PageBytes,
    ) -> Result<Self, FileReadError> {
        let (body, taken) = if utf8 {
            text_body(bytes)?
        } else {
            let len = bytes.len();
            (PageBody::Bytes(bytes), len)
        };
        let end = offset + taken as u64;
        Ok(Self { version, digest, body: Some(body), next: (end < version.size).then_some(end) })
    }
}

/// Cuts a page of text between characters. A page begins between characters too, unless its cursor
/// was forged, which is then no better than a changed file.
fn text_body(mut bytes: PageBytes) -> Result<(PageBody, usize), FileReadError> {
    if let Err(e) = std::str::from_utf8(bytes.as_ref()) {
        if e.error_len().is_some() {
            return Err(FileReadError::Changed(None));
        }
        bytes.truncate(e.valid_up_to());
    }
    let taken = bytes.len();
    Ok((PageBody::Text(bytes), taken))
}

impl From<OpenError> for FileReadError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::NotRegular => Self::NotFound,
            OpenError::Resolve(why) => match why {
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
