//! The walk through a package's files, as a state machine over plain names: in the byte order of
//! handles, so that a page can go on after any name, whether that still exists or not. Leaves
//! opening directories, following links and judging files to `disk`.

use super::{RelPath, handle};
use percent_encoding::percent_decode_str;
use std::collections::BTreeMap;

/// Where a list goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileListToken {
    /// The last file that was listed, below the package.
    pub last_file: RelPath,
    /// The entries that were looked at up to it.
    pub entries_seen: u64,
    /// Whether a limit left something out up to it.
    pub truncated: bool,
}

/// What an entry is, as its directory says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WalkEntryKind {
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
pub struct WalkLimits {
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
pub struct PackageWalk<D> {
    limits: WalkLimits,
    resume_after: Option<RelPath>,
    /// The directories on the way, outermost first.
    levels: Vec<WalkLevel<D>>,
    entries_seen: usize,
    truncated: bool,
}

#[derive(Debug)]
struct WalkLevel<D> {
    dir: D,
    path: RelPath,
    /// By what decides the order: the name in its handle, with a `/` behind a directory's.
    pending: BTreeMap<Box<str>, WalkEntry>,
}

#[derive(Debug, Clone, Copy)]
struct WalkEntry {
    kind: WalkEntryKind,
    /// Whether it is among those seen, on this page or before it.
    counted: bool,
}

impl<D> PackageWalk<D> {
    /// A walk that begins at the beginning, or goes on behind a bookmark.
    #[must_use]
    pub fn new(bounds: WalkLimits, from: Option<&FileListToken>) -> Self {
        Self {
            limits: bounds,
            resume_after: from.map(|from| from.last_file.clone()),
            levels: Vec::new(),
            entries_seen: from
                .map_or(0, |from| usize::try_from(from.entries_seen).unwrap_or(usize::MAX)),
            truncated: from.is_some_and(|from| from.truncated),
        }
    }

    /// Goes into a directory, which holds these entries. Their kind may be any but
    /// [`Kind::LinkedDirectory`]. One that is too deep is not entered.
    pub fn enter_dir(
        &mut self,
        dir: D,
        path: RelPath,
        entries: impl IntoIterator<Item = (Box<[u8]>, WalkEntryKind)>,
    ) {
        // Of a link it is only known here that it leads to a directory.
        if path.depth() > self.limits.depth {
            self.truncated = true;
            return;
        }
        let after = self.resume_after.as_ref().and_then(|after| after.strip_prefix(&path));
        let after = after.map(|after| handle::encode_path(&after));
        let entries = entries.into_iter();
        let pending =
            entries.filter_map(|(name, kind)| pending_entry(&name, kind, after.as_deref()));
        self.levels.push(WalkLevel { dir, path, pending: pending.collect() });
        self.drop_unreachable_entries();
    }

    /// Forgets what the bound on entries keeps from being reached, so that memory is bounded too.
    fn drop_unreachable_entries(&mut self) {
        let held: usize = self.levels.iter().map(|level| level.pending.len()).sum();
        // One to show that there are more, and those that count no more: less than a path has bytes.
        let most = self.remaining_entries().saturating_add(1 + self.limits.path_bytes);
        let mut excess = held.saturating_sub(most);
        for level in &mut self.levels {
            while excess > 0 && level.pending.pop_last().is_some() {
                excess -= 1;
            }
        }
    }

    fn remaining_entries(&self) -> usize {
        self.limits.entries.saturating_sub(self.entries_seen)
    }

    /// What to look at next, below the package: a file to judge; a link to follow, and to hand back
    /// to [`Walk::leads_to_directory`] or to treat as a file; a directory to enter.
    #[allow(clippy::should_implement_trait)] // needs the walk itself between two steps
    pub fn next(&mut self) -> Option<(RelPath, WalkEntryKind)> {
        loop {
            let level = self.levels.last_mut()?;
            let Some((key, entry)) = level.pending.pop_first() else {
                self.levels.pop();
                continue;
            };
            let name: Vec<u8> = percent_decode_str(key.trim_end_matches('/')).collect();
            let Some(path) = level.path.join(&name) else { continue };
            if !entry.counted {
                if self.remaining_entries() == 0 {
                    self.truncated = true;
                    self.levels.clear();
                    return None;
                }
                self.entries_seen += 1;
            }
            let is_too_deep =
                entry.kind == WalkEntryKind::Directory && path.depth() > self.limits.depth;
            if is_too_deep || handle::encoded_path_len(&path) > self.limits.path_bytes {
                self.truncated = true;
                continue;
            }
            return Some((path, entry.kind));
        }
    }

    /// The link that came last leads to a directory: it comes again in its turn.
    pub fn requeue_link_as_dir(&mut self, link: &RelPath) {
        let (Some(level), Some(name)) = (self.levels.last_mut(), link.file_name()) else { return };
        let entry = WalkEntry { kind: WalkEntryKind::LinkedDirectory, counted: true };
        level.pending.insert(with_trailing_slash(&encode_name(name)), entry);
    }

    /// The directories on the way to what came last, outermost first.
    #[must_use]
    pub fn ancestor_dirs(&self) -> impl DoubleEndedIterator<Item = &D> {
        self.levels.iter().map(|level| &level.dir)
    }

    /// Where a list goes on whose last file is the one that came last.
    #[must_use]
    pub fn token_after(&self, last: RelPath) -> FileListToken {
        FileListToken {
            last_file: last,
            entries_seen: self.entries_seen as u64,
            truncated: self.truncated,
        }
    }

    /// Whether a limit has left something out so far.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.truncated
    }
}

/// An entry's key, unless all of it comes before `after`, a path below the same directory.
fn pending_entry(
    name: &[u8],
    kind: WalkEntryKind,
    after: Option<&str>,
) -> Option<(Box<str>, WalkEntry)> {
    let bare = encode_name(name);
    let is_on_the_way = |key: &str| after.is_some_and(|after| after.starts_with(key));
    let comes = |key: &str| after.is_none_or(|after| key > after);
    let entry = |kind, counted| WalkEntry { kind, counted };
    match kind {
        WalkEntryKind::File => comes(&bare).then(|| (bare, entry(kind, false))),
        WalkEntryKind::Directory | WalkEntryKind::LinkedDirectory => {
            let key = with_trailing_slash(&bare);
            let on_the_way = is_on_the_way(&key);
            (on_the_way || comes(&key)).then(|| (key, entry(kind, on_the_way)))
        }
        WalkEntryKind::Link if comes(&bare) => Some((bare, entry(kind, false))),
        // As a file it came already; as a directory it is on the way, or its turn is yet to come.
        WalkEntryKind::Link => {
            let key = with_trailing_slash(&bare);
            let due = is_on_the_way(&key) || comes(&key);
            due.then(|| (key, entry(WalkEntryKind::LinkedDirectory, true)))
        }
    }
}

fn encode_name(name: &[u8]) -> Box<str> {
    RelPath::root().join(name).map(|path| handle::encode_path(&path)).unwrap_or_default().into()
}

fn with_trailing_slash(name: &str) -> Box<str> {
    format!("{name}/").into()
}

#[cfg(test)]
mod tests;
