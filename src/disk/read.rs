//! One page of one file, from one version of it. Blocking.

use super::allowed::{Blocked, Resolved};
use super::content;
use super::package::{Package, Rule};
use super::resource::Unopened;
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
    /// The whole file is UTF-8.
    Text(String),
    /// It is not.
    Bytes(Vec<u8>),
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
        let Some((digest, utf8)) = versions.digest(&opened, wanted)? else { continue };
        let offset = match page.from {
            Some((expected, _)) if expected != version => {
                return Err(Unread::Changed(Some(digest)));
            }
            Some((_, offset)) => offset,
            None if page.unless.is_some_and(|d| d == digest.to_string()) => {
                return Ok(Read { version, digest, body: None, next: None });
            }
            None => 0,
        };
        let len = usize::try_from(version.size - offset).unwrap_or(usize::MAX).min(page.max_bytes);
        let bytes = content::page(&opened.file, offset, len).map_err(|_| Unread::Failed)?;
        if !opened.is_still()? || bytes.len() < len {
            continue;
        }
        let (body, taken) = if utf8 { text(bytes)? } else { (Body::Bytes(bytes), len) };
        let end = offset + taken as u64;
        return Ok(Read {
            version,
            digest,
            body: Some(body),
            next: (end < version.size).then_some(end),
        });
    }
    Err(Unread::Changed(None))
}

/// Cuts a page of text between characters. A page begins between characters too, unless its cursor
/// was forged, which is then no better than a changed file.
fn text(mut bytes: Vec<u8>) -> Result<(Body, usize), Unread> {
    if let Err(e) = std::str::from_utf8(&bytes) {
        if e.error_len().is_some() {
            return Err(Unread::Changed(None));
        }
        bytes.truncate(e.valid_up_to());
    }
    let text = String::from_utf8(bytes).map_err(|_| Unread::Changed(None))?;
    let taken = text.len();
    Ok((Body::Text(text), taken))
}

impl From<Unopened> for Unread {
    fn from(error: Unopened) -> Self {
        match error {
            Unopened::NotRegular => Self::NotFound,
            Unopened::Blocked(why) => match why {
                Blocked::Outside => Self::Outside,
                Blocked::Missing | Blocked::NotADirectory | Blocked::Loop => Self::NotFound,
                Blocked::Denied => Self::Denied,
                Blocked::Failed => Self::Failed,
            },
        }
    }
}
