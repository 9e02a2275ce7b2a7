//! One page of a package's files, found by walking it now. Blocking.

use super::allowed::{Resolved, identity};
use super::list::read_names;
use super::package::{Package, Rule};
use super::read::Unread;
use super::resource::{self, Unopened, blocked};
use super::versions::Versions;
use super::wanted::Wanted;
use crate::domain::files::{Bookmark, Bounds, Kind, Walk};
use crate::domain::listing::Identity;
use crate::domain::{Digest, RelPath, Spot, handle, permit};
use rustix::fs::{FileType, OFlags, fstat};

/// How often a file that changes while it is digested is tried again.
const TRIES: usize = 3;

/// Which page of which package's files.
#[derive(Debug)]
pub struct FilesPage<'a> {
    /// The package, as walked below the root.
    pub package: &'a RelPath,
    /// Where the page before ended.
    pub from: Option<&'a Bookmark>,
    /// How far the walk goes.
    pub bounds: Bounds,
    /// The most files.
    pub max_files: usize,
    /// The most bytes of all paths as they are spelled in handles, and `file_bytes` for each.
    pub max_bytes: usize,
    /// What a file takes of `max_bytes` beside its path below the package.
    pub file_bytes: usize,
    /// Whether files are digested, those of at most so many bytes. A page ends early once it has
    /// digested so many bytes that no digest was known of.
    pub digest: Option<u64>,
    /// What may be read.
    pub rule: Rule<'a>,
}

/// The files of a page.
#[derive(Debug)]
pub struct FilesFound {
    /// By the bytes of their handles.
    pub files: Vec<FileFound>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<Bookmark>,
    /// Whether a limit left something out, here or before.
    pub truncated: bool,
}

/// One file that may be read.
#[derive(Debug)]
pub struct FileFound {
    /// Below the package.
    pub path: RelPath,
    /// In bytes.
    pub size: u64,
    /// Whether anybody may execute it.
    pub executable: bool,
    /// Of the whole file, and whether that is UTF-8; `None` where it was not digested.
    pub digest: Option<(Digest, bool)>,
}

/// Lists a page of a package's files; a list for nobody ends early. `NotFound` is the package itself.
pub fn list_files(
    root: &Resolved,
    page: &FilesPage<'_>,
    versions: &Versions,
    wanted: &Wanted,
) -> Result<FilesFound, Unread> {
    let package = Package::find(root, page.package, page.rule)?;
    let mut listing = Listing {
        package: &package,
        page,
        versions,
        wanted,
        walk: Walk::new(page.bounds, page.from),
        files: Vec::new(),
        room: page.max_bytes,
        digested: 0,
        last: None,
    };
    listing.enter(package.spot.clone(), RelPath::root())?;
    let next = listing.run()?;
    let truncated = match &next {
        Some(next) => next.truncated,
        None => listing.walk.is_truncated(),
    };
    Ok(FilesFound { files: listing.files, next, truncated })
}

/// A page under way.
struct Listing<'a> {
    package: &'a Package<'a>,
    page: &'a FilesPage<'a>,
    versions: &'a Versions,
    wanted: &'a Wanted,
    walk: Walk<(Spot, Identity)>,
    files: Vec<FileFound>,
    /// What is left of `max_bytes`.
    room: usize,
    /// Bytes that were read for digests.
    digested: u64,
    /// Behind the last of `files`.
    last: Option<Bookmark>,
}

impl Listing<'_> {
    /// Walks until the page is full, or there is no more.
    fn run(&mut self) -> Result<Option<Bookmark>, Unread> {
        while let Some((path, kind)) = self.walk.next() {
            self.wanted.check().map_err(|_| Unread::Failed)?;
            let is_full = match kind {
                Kind::File => self.file(path)?,
                Kind::Link | Kind::LinkedDirectory => self.link(path, kind)?,
                Kind::Directory => {
                    let dir = self.walk.way().next_back().map(|(spot, _)| spot);
                    let name = path.file_name().unwrap_or_default();
                    if let Some(spot) = dir.and_then(|dir| dir.join(name)) {
                        unless_gone(self.enter(spot, path))?;
                    }
                    false
                }
            };
            if is_full {
                return Ok(self.last.take());
            }
        }
        Ok(None)
    }

    /// Follows a link; gives whether it leads to a file for which the page has no room.
    fn link(&mut self, path: RelPath, kind: Kind) -> Result<bool, Unread> {
        let found = resource::find(self.package.ground, &self.package.spot, &path);
        let Some(target) = unless_gone(found.map_err(Unread::from))? else { return Ok(false) };
        match (FileType::from_raw_mode(target.stat.st_mode), kind) {
            (FileType::RegularFile, Kind::Link) => return self.file(path),
            (FileType::Directory, Kind::Link) if self.package.may_enter(&target.spot) => {
                self.walk.leads_to_directory(&path);
            }
            (FileType::Directory, Kind::LinkedDirectory)
                if self.package.may_enter(&target.spot) =>
            {
                unless_gone(self.enter(target.spot, path))?;
            }
            _ => {}
        }
        Ok(false)
    }

    /// Goes into a directory, unless it is on the way already: then links go round in a circle.
    fn enter(&mut self, spot: Spot, path: RelPath) -> Result<(), Unread> {
        let Rule { passed_over, follow_links, .. } = self.page.rule;
        let failed = |errno| Unread::from(Unopened::from(blocked(errno)));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let fd = self.package.ground.open(&spot, flags).map_err(failed)?;
        let identity = identity(&fstat(&fd).map_err(failed)?);
        if self.walk.way().any(|(_, on_the_way)| *on_the_way == identity) {
            return Ok(());
        }
        let names = read_names(&fd, self.page.bounds.entries, &mut Vec::new()).map_err(failed)?;
        let entries = names.into_iter().filter_map(|(name, kind)| {
            let kind = match kind {
                FileType::RegularFile => Kind::File,
                FileType::Directory => Kind::Directory,
                FileType::Symlink if follow_links => Kind::Link,
                _ => return None,
            };
            permit::may_read(&RelPath::new(&name)?, passed_over).then_some((name, kind))
        });
        self.walk.enter((spot, identity), path, entries);
        Ok(())
    }

    /// Takes a file if it may be read; gives whether it is one too many.
    fn file(&mut self, path: RelPath) -> Result<bool, Unread> {
        let Some(mut opened) = unless_gone(self.package.open(&path))? else { return Ok(false) };
        let bytes = handle::encoded_len(&path) + self.page.file_bytes;
        let is_tired = self.page.digest.is_some_and(|most| self.digested > most);
        if self.files.len() == self.page.max_files || bytes > self.room || is_tired {
            return Ok(true);
        }
        let mut digest = None;
        for _ in 0..TRIES {
            let version = opened.version;
            if self.page.digest.is_none_or(|most| version.size > most) {
                break;
            }
            if self.versions.get(&version).is_none() {
                self.digested += version.size;
            }
            digest = self.versions.digest(&opened, self.wanted)?;
            if digest.is_some() {
                break;
            }
            // It changed meanwhile.
            let Some(again) = unless_gone(self.package.open(&path))? else { return Ok(false) };
            opened = again;
        }
        self.room -= bytes;
        self.last = Some(self.walk.bookmark(path.clone()));
        let (size, executable) = (opened.version.size, opened.executable);
        self.files.push(FileFound { path, size, executable, digest });
        Ok(false)
    }
}

/// `None` for what is not there, may not be read, or is no file. That the filesystem fails is an
/// error: a list that it cuts short would look like a whole one.
fn unless_gone<T>(done: Result<T, Unread>) -> Result<Option<T>, Unread> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(failed @ (Unread::Failed | Unread::Exhausted)) => Err(failed),
        Err(
            Unread::NotFound
            | Unread::Outside
            | Unread::TooLarge { .. }
            | Unread::Changed(_)
            | Unread::Denied,
        ) => Ok(None),
    }
}
