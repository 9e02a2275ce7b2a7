//! The walk through a package's files, as a state machine over plain names: in the byte order of
//! handles, so that a page can go on after any name, whether that still exists or not. Leaves
//! opening directories, following links and judging files to `disk`.

use super::{RelPath, handle};
use percent_encoding::percent_decode_str;
use std::collections::BTreeMap;

/// Where a list goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bookmark {
    /// The last file that was listed, below the package.
    pub last: RelPath,
    /// The entries that were looked at up to it.
    pub seen: u64,
    /// Whether a limit left something out up to it.
    pub truncated: bool,
}

/// What an entry is, as its directory says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A link, which may lead to either.
    Link,
    /// A link that leads to a directory, or did when it was last looked at.
    LinkedDirectory,
}

/// How far a walk goes.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Entries below the package.
    pub entries: usize,
    /// Levels of directories below the package.
    pub depth: usize,
    /// Bytes of a path below the package as it is spelled in a handle.
    pub path_bytes: usize,
}

/// A walk under way. [`Walk::enter`] the package's own directory, then do what [`Walk::next`] asks
/// until it asks no more. `D` is what the caller keeps of each directory on the way.
#[derive(Debug)]
pub struct Walk<D> {
    bounds: Bounds,
    after: Option<RelPath>,
    /// The directories on the way, outermost first.
    levels: Vec<Level<D>>,
    seen: usize,
    truncated: bool,
}

#[derive(Debug)]
struct Level<D> {
    dir: D,
    path: RelPath,
    /// By what decides the order: the name in its handle, with a `/` behind a directory's.
    pending: BTreeMap<Box<str>, Entry>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    kind: Kind,
    /// Whether it is among those seen, on this page or before it.
    counted: bool,
}

impl<D> Walk<D> {
    /// A walk that begins at the beginning, or goes on behind a bookmark.
    #[must_use]
    pub fn new(bounds: Bounds, from: Option<&Bookmark>) -> Self {
        Self {
            bounds,
            after: from.map(|from| from.last.clone()),
            levels: Vec::new(),
            seen: from.map_or(0, |from| usize::try_from(from.seen).unwrap_or(usize::MAX)),
            truncated: from.is_some_and(|from| from.truncated),
        }
    }

    /// Goes into a directory, which holds these entries. Their kind may be any but
    /// [`Kind::LinkedDirectory`]. One that is too deep is not entered.
    pub fn enter(
        &mut self,
        dir: D,
        path: RelPath,
        entries: impl IntoIterator<Item = (Box<[u8]>, Kind)>,
    ) {
        // Of a link it is only known here that it leads to a directory.
        if path.depth() > self.bounds.depth {
            self.truncated = true;
            return;
        }
        let after = self.after.as_ref().and_then(|after| after.below(&path));
        let after = after.map(|after| handle::encode(&after));
        let entries = entries.into_iter();
        let pending = entries.filter_map(|(name, kind)| place(&name, kind, after.as_deref()));
        self.levels.push(Level { dir, path, pending: pending.collect() });
        self.trim();
    }

    /// Forgets what the bound on entries keeps from being reached, so that memory is bounded too.
    fn trim(&mut self) {
        let held: usize = self.levels.iter().map(|level| level.pending.len()).sum();
        // One to show that there are more, and those that count no more: less than a path has bytes.
        let most = self.room().saturating_add(1 + self.bounds.path_bytes);
        let mut excess = held.saturating_sub(most);
        for level in &mut self.levels {
            while excess > 0 && level.pending.pop_last().is_some() {
                excess -= 1;
            }
        }
    }

    fn room(&self) -> usize {
        self.bounds.entries.saturating_sub(self.seen)
    }

    /// What to look at next, below the package: a file to judge; a link to follow, and to hand back
    /// to [`Walk::leads_to_directory`] or to treat as a file; a directory to enter.
    #[allow(clippy::should_implement_trait)] // needs the walk itself between two steps
    pub fn next(&mut self) -> Option<(RelPath, Kind)> {
        loop {
            let level = self.levels.last_mut()?;
            let Some((key, entry)) = level.pending.pop_first() else {
                self.levels.pop();
                continue;
            };
            let name: Vec<u8> = percent_decode_str(key.trim_end_matches('/')).collect();
            let Some(path) = level.path.join(&name) else { continue };
            if !entry.counted {
                if self.room() == 0 {
                    self.truncated = true;
                    self.levels.clear();
                    return None;
                }
                self.seen += 1;
            }
            let is_too_deep = entry.kind == Kind::Directory && path.depth() > self.bounds.depth;
            if is_too_deep || handle::encoded_len(&path) > self.bounds.path_bytes {
                self.truncated = true;
                continue;
            }
            return Some((path, entry.kind));
        }
    }

    /// The link that came last leads to a directory: it comes again in its turn.
    pub fn leads_to_directory(&mut self, link: &RelPath) {
        let (Some(level), Some(name)) = (self.levels.last_mut(), link.file_name()) else { return };
        let entry = Entry { kind: Kind::LinkedDirectory, counted: true };
        level.pending.insert(slashed(&encode_name(name)), entry);
    }

    /// The directories on the way to what came last, outermost first.
    #[must_use]
    pub fn way(&self) -> impl DoubleEndedIterator<Item = &D> {
        self.levels.iter().map(|level| &level.dir)
    }

    /// Where a list goes on whose last file is the one that came last.
    #[must_use]
    pub fn bookmark(&self, last: RelPath) -> Bookmark {
        Bookmark { last, seen: self.seen as u64, truncated: self.truncated }
    }

    /// Whether a limit has left something out so far.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.truncated
    }
}

/// An entry's key, unless all of it comes before `after`, a path below the same directory.
fn place(name: &[u8], kind: Kind, after: Option<&str>) -> Option<(Box<str>, Entry)> {
    let bare = encode_name(name);
    let is_on_the_way = |key: &str| after.is_some_and(|after| after.starts_with(key));
    let comes = |key: &str| after.is_none_or(|after| key > after);
    let entry = |kind, counted| Entry { kind, counted };
    match kind {
        Kind::File => comes(&bare).then(|| (bare, entry(kind, false))),
        Kind::Directory | Kind::LinkedDirectory => {
            let key = slashed(&bare);
            let on_the_way = is_on_the_way(&key);
            (on_the_way || comes(&key)).then(|| (key, entry(kind, on_the_way)))
        }
        Kind::Link if comes(&bare) => Some((bare, entry(kind, false))),
        // As a file it came already; as a directory it is on the way, or its turn is yet to come.
        Kind::Link => {
            let key = slashed(&bare);
            let due = is_on_the_way(&key) || comes(&key);
            due.then(|| (key, entry(Kind::LinkedDirectory, true)))
        }
    }
}

fn encode_name(name: &[u8]) -> Box<str> {
    RelPath::root().join(name).map(|path| handle::encode(&path)).unwrap_or_default().into()
}

fn slashed(name: &str) -> Box<str> {
    format!("{name}/").into()
}

#[cfg(test)]
mod tests;
