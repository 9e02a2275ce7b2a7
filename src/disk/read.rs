//! One page of one file, from one version of it. Blocking.

use super::allowed::{Blocked, Resolved};
use super::content;
use super::package::{Package, Rule};
use super::page_bytes::PageBytes;
use super::resource::{Regular, Unopened};
use super::versions::Versions;
use super::wanted::Wanted;
use crate::domain::{Digest, RelPath, Version};

/// Which page.
#[derive(Debug)]
pub struct Page<'a> {
    /// The package, as walked below the root.
    pub package: &'a RelPath,
    /// The file, as walked below the package.
    pub resource: &'a RelPath,
    /// The version and offset of a page that goes on, else the first page.
    pub from: Option<(Version, u64)>,
    /// The most bytes, at least 4.
    pub max_bytes: usize,
    /// A digest for which no content is wanted on the first page.
    pub unless: Option<&'a str>,
    /// What may be read.
    pub rule: Rule<'a>,
    /// The most bytes of a file.
    pub max_file_bytes: u64,
}

/// What was read.
#[derive(Debug)]
pub struct Read {
    /// The version that it is a page of.
    pub version: Version,
    /// Of the whole file.
    pub digest: Digest,
    /// The page; `None` where it is not wanted.
    pub body: Option<Body>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<u64>,
}

/// A page's content.
#[derive(Debug)]
pub enum Body {
    /// The whole file is UTF-8, and so is this.
    Text(PageBytes),
    /// It is not.
    Bytes(PageBytes),
}

/// Why nothing was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
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
    Changed(Option<Digest>),
    /// The daemon's user may not read it.
    Denied,
    /// There is no file descriptor left to read it with.
    Exhausted,
    /// The filesystem failed.
    Failed,
}

/// How often a file that changes while it is digested is tried again.
const TRIES: usize = 3;

/// Reads a page of a file below a root; what is read for nobody ends early.
pub fn read(
    root: &Resolved,
    page: &Page<'_>,
    versions: &Versions,
    wanted: &Wanted,
) -> Result<Read, Unread> {
    wanted.check().map_err(|_| Unread::Failed)?;
    let package = Package::find(root, page.package, page.rule)?;
    for _ in 0..TRIES {
        let opened = package.open(page.resource)?;
        let version = opened.version;
        if version.size > page.max_file_bytes {
            return Err(Unread::TooLarge { size: version.size });
        }
        let Some((digest, utf8)) = versions.digest(&opened, wanted)? else {
            // It is not as long as its size says, though nobody changes it.
            if opened.is_still()? {
                return of_unknown_size(&opened, page, wanted);
            }
            continue;
        };
        let Some(offset) = page.begin(&version, &digest)? else {
            return Ok(Read { version, digest, body: None, next: None });
        };
        let len = usize::try_from(version.size - offset).unwrap_or(usize::MAX).min(page.max_bytes);
        let bytes = content::page(&opened.file, offset, len).map_err(|_| Unread::Failed)?;
        if !opened.is_still()? || bytes.len() < len {
            continue;
        }
        return Read::new(version, digest, utf8, offset, bytes);
    }
    Err(Unread::Changed(None))
}

/// Reads a page of a file whose size its filesystem does not tell, or tells wrong, as in /proc: all
/// of it is read for each page, and its content stands for the times that such a file has not.
fn of_unknown_size(opened: &Regular, page: &Page<'_>, wanted: &Wanted) -> Result<Read, Unread> {
    let offset = page.from.map_or(0, |(_, offset)| offset);
    let whole = content::whole(&opened.file, offset, page.max_bytes, page.max_file_bytes, wanted);
    let whole = whole.map_err(|_| Unread::Failed)?;
    if whole.size > page.max_file_bytes {
        return Err(Unread::TooLarge { size: whole.size });
    }
    let version = opened.version.by_content(whole.size, &whole.digest);
    match page.begin(&version, &whole.digest)? {
        Some(offset) => Read::new(version, whole.digest, whole.utf8, offset, whole.page.into()),
        None => Ok(Read { version, digest: whole.digest, body: None, next: None }),
    }
}

impl Page<'_> {
    /// Where the page begins in this version; `None` where no content is wanted.
    pub(super) fn begin(&self, version: &Version, digest: &Digest) -> Result<Option<u64>, Unread> {
        match self.from {
            Some((expected, _)) if expected != *version => Err(Unread::Changed(Some(*digest))),
            Some((_, offset)) => Ok(Some(offset)),
            None if self.unless.is_some_and(|held| held == digest.to_string()) => Ok(None),
            None => Ok(Some(0)),
        }
    }
}

impl Read {
    pub(super) fn new(
        version: Version,
        digest: Digest,
        utf8: bool,
        offset: u64,
        bytes: PageBytes,
    ) -> Result<Self, Unread> {
        let (body, taken) = if utf8 {
            text(bytes)?
        } else {
            let len = bytes.len();
            (Body::Bytes(bytes), len)
        };
        let end = offset + taken as u64;
        Ok(Self { version, digest, body: Some(body), next: (end < version.size).then_some(end) })
    }
}

/// Cuts a page of text between characters. A page begins between characters too, unless its cursor
/// was forged, which is then no better than a changed file.
fn text(mut bytes: PageBytes) -> Result<(Body, usize), Unread> {
    if let Err(e) = std::str::from_utf8(bytes.as_ref()) {
        if e.error_len().is_some() {
            return Err(Unread::Changed(None));
        }
        bytes.truncate(e.valid_up_to());
    }
    let taken = bytes.len();
    Ok((Body::Text(bytes), taken))
}

impl From<Unopened> for Unread {
    fn from(error: Unopened) -> Self {
        match error {
            Unopened::NotRegular => Self::NotFound,
            Unopened::Blocked(why) => match why {
                Blocked::Outside => Self::Outside,
                Blocked::Missing | Blocked::NotADirectory | Blocked::Loop => Self::NotFound,
                Blocked::Denied => Self::Denied,
                Blocked::Exhausted => Self::Exhausted,
                Blocked::Failed => Self::Failed,
            },
        }
    }
}
