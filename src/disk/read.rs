//! One page of one file, from one version of it. Blocking.

use super::allowed::{Blocked, Resolved};
use super::content;
use super::off::Off;
use super::resource::{self, Unopened};
use super::versions::Versions;
use crate::domain::{Digest, RelPath, Spot, Version, permit};
use rustix::fs::fstat;

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
    /// Directories that are never read in.
    pub passed_over: &'a [Box<[u8]>],
    /// Skills that are switched off.
    pub off: Off<'a>,
    /// Whether links are followed.
    pub follow_links: bool,
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

/// Reads a page of a file below a root.
pub fn read(root: &Resolved, page: &Page<'_>, versions: &Versions) -> Result<Read, Unread> {
    let Resolved { ground, spot: root_spot } = root;
    let package = resource::find(ground, root_spot, page.package)?.spot;
    if !permit::may_read(page.resource, page.passed_over) {
        return Err(Unread::NotFound);
    }
    let off = page.off.seen_from(ground, root_spot, page.package, &package);
    for _ in 0..TRIES {
        let opened = resource::open(ground, &package, page.resource)?;
        let walked = root_spot.rel.join_all(page.package).join_all(page.resource);
        let linked = opened.spot != Spot { base: root_spot.base, rel: walked };
        if linked && !page.follow_links {
            return Err(Unread::Outside);
        }
        let is_main = *page.resource == crate::domain::main_file();
        let below = place_to_judge(&opened.spot, &package, root_spot);
        if !is_main && !permit::may_read(&below, page.passed_over) {
            return Err(Unread::NotFound);
        }
        if off.covers(page.resource, &opened.spot) {
            return Err(Unread::NotFound);
        }
        let version = opened.version;
        if version.size > page.max_file_bytes {
            return Err(Unread::TooLarge { size: version.size });
        }
        let still = || -> Result<bool, Unread> {
            let now = fstat(&opened.file).map_err(|_| Unread::Failed)?;
            Ok(resource::version(&now) == version)
        };
        let known = versions.get(&version);
        let (digest, utf8) = match known {
            Some(known) => known,
            None => match content::digest(&opened.file, version.size) {
                Ok(found) if still()? => {
                    versions.put(version, found);
                    found
                }
                Ok(_) => continue,
                Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => continue,
                Err(_) => return Err(Unread::Failed),
            },
        };
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
        if !still()? || bytes.len() < len {
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

/// The part of a resolved place that decides whether it may be read: what a link adds counts too.
fn place_to_judge(spot: &Spot, package: &Spot, root: &Spot) -> RelPath {
    let below = |dir: &Spot| (dir.base == spot.base).then(|| spot.rel.below(&dir.rel)).flatten();
    below(package).or_else(|| below(root)).unwrap_or_else(|| spot.rel.clone())
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
