//! Walk over the files of a package, as a state machine over plain names. The walk visits files in
//! the byte order of their handles, so that a page can continue after a file that no longer exists.

pub use crate::daemon::model::token::FileListToken;
use caproot_core::wire::{RelPath, handle};
use percent_encoding::percent_decode_str;
use std::collections::BTreeMap;

/// Kind of a directory entry, as `readdir` reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WalkEntryKind {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Link to a file or a directory.
    Link,
    /// Link to a directory, as of the last time that the link was resolved.
    LinkedDirectory,
}

/// Limits of a walk.
#[derive(Debug, Clone, Copy)]
pub struct WalkLimits {
    /// Maximum entries below the package.
    pub entries: usize,
    /// Maximum levels of directories below the package.
    pub depth: usize,
    /// Maximum bytes of a path below the package, as encoded in a handle.
    pub path_bytes: usize,
}

/// Walk in progress. Call [`enter_dir`](Self::enter_dir) with the package's own directory, then
/// handle each entry that [`next`](Self::next) returns, until it returns `None`. `D` is the
/// caller's data for each open directory, such as its descriptor.
#[derive(Debug)]
pub struct PackageWalk<D> {
    limits: WalkLimits,
    resume_after: Option<RelPath>,
    /// Open directories, outermost first.
    levels: Vec<WalkLevel<D>>,
    entries_seen: usize,
    truncated: bool,
}

#[derive(Debug)]
struct WalkLevel<D> {
    dir: D,
    path: RelPath,
    /// Entries to visit, by sort key: the encoded name, with a trailing `/` for a directory.
    pending: BTreeMap<Box<str>, WalkEntry>,
}

#[derive(Debug, Clone, Copy)]
struct WalkEntry {
    kind: WalkEntryKind,
    /// Whether the entry is counted in `entries_seen` already, on this page or an earlier page.
    counted: bool,
}

impl<D> PackageWalk<D> {
    /// Creates a walk from the start, or a walk that continues after a page token.
    #[must_use]
    pub fn new(limits: WalkLimits, from: Option<&FileListToken>) -> Self {
        Self {
            limits,
            resume_after: from.map(|from| from.last_file.clone()),
            levels: Vec::new(),
            entries_seen: from.map_or(0, |from| {
                usize::try_from(from.entries_seen).unwrap_or(usize::MAX)
            }),
            truncated: from.is_some_and(|from| from.truncated),
        }
    }

    /// Enters a directory with these entries, unless the directory is too deep. The kind of an
    /// entry must not be [`WalkEntryKind::LinkedDirectory`].
    pub fn enter_dir(
        &mut self,
        dir: D,
        path: RelPath,
        entries: impl IntoIterator<Item = (Box<[u8]>, WalkEntryKind)>,
    ) {
        // `next` checks the depth of plain directories. A link is known to lead to a directory only
        // here.
        if path.depth() > self.limits.depth {
            self.truncated = true;
            return;
        }

        let after = self
            .resume_after
            .as_ref()
            .and_then(|after| after.strip_prefix(&path));
        let after = after.map(|after| handle::encode_path(&after));

        let entries = entries.into_iter();
        let pending =
            entries.filter_map(|(name, kind)| pending_entry(&name, kind, after.as_deref()));

        self.levels.push(WalkLevel {
            dir,
            path,
            pending: pending.collect(),
        });
        self.drop_unreachable_entries();
    }

    /// Drops the entries that the entry limit makes unreachable, so that memory is bounded too.
    fn drop_unreachable_entries(&mut self) {
        let pending: usize = self.levels.iter().map(|level| level.pending.len()).sum();
        // One more entry shows that the list is truncated. Entries that are counted already are
        // fewer than a path has bytes.
        let max_pending = self
            .remaining_entries()
            .saturating_add(1 + self.limits.path_bytes);
        let mut excess = pending.saturating_sub(max_pending);
        for level in &mut self.levels {
            while excess > 0 && level.pending.pop_last().is_some() {
                excess -= 1;
            }
        }
    }

    fn remaining_entries(&self) -> usize {
        self.limits.entries.saturating_sub(self.entries_seen)
    }

    /// Returns the path below the package and the kind of the next entry. The caller:
    /// - lists a file,
    /// - resolves a link, and passes the link to
    ///   [`requeue_link_as_dir`](Self::requeue_link_as_dir) or treats the link as a file,
    /// - enters a directory or a linked directory.
    #[allow(clippy::should_implement_trait)] // the caller needs `&mut self` between two steps
    pub fn next(&mut self) -> Option<(RelPath, WalkEntryKind)> {
        loop {
            let level = self.levels.last_mut()?;
            let Some((key, entry)) = level.pending.pop_first() else {
                self.levels.pop();
                continue;
            };

            let name: Vec<u8> = percent_decode_str(key.trim_end_matches('/')).collect();
            let Some(path) = level.path.join(&name) else {
                continue;
            };

            // An entry of an earlier page, or a link that is queued again, counts once.
            if !entry.counted {
                if self.remaining_entries() == 0 {
                    self.truncated = true;
                    self.levels.clear();
                    return None;
                }
                self.entries_seen += 1;
            }

            // `enter_dir` checks the depth of a link, which may still lead to a file here.
            let is_too_deep =
                entry.kind == WalkEntryKind::Directory && path.depth() > self.limits.depth;
            if is_too_deep || handle::encoded_path_len(&path) > self.limits.path_bytes {
                self.truncated = true;
                continue;
            }

            return Some((path, entry.kind));
        }
    }

    /// Queues the last returned link again as a directory, because the two sort differently.
    pub fn requeue_link_as_dir(&mut self, link: &RelPath) {
        let (Some(level), Some(name)) = (self.levels.last_mut(), link.file_name()) else {
            return;
        };
        let entry = WalkEntry {
            kind: WalkEntryKind::LinkedDirectory,
            counted: true,
        };
        level
            .pending
            .insert(with_trailing_slash(&encode_name(name)), entry);
    }

    /// Iterates over the open directories that contain the last returned entry, outermost first.
    #[must_use]
    pub fn ancestor_dirs(&self) -> impl DoubleEndedIterator<Item = &D> {
        self.levels.iter().map(|level| &level.dir)
    }

    /// Returns the token for a page that ends with `last_file`, the last returned entry.
    #[must_use]
    pub fn token_after(&self, last_file: RelPath) -> FileListToken {
        FileListToken {
            last_file,
            entries_seen: self.entries_seen as u64,
            truncated: self.truncated,
        }
    }

    /// Whether a limit has omitted an entry so far.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.truncated
    }
}

/// Returns the entry with its sort key, or `None` if the entry and all files below the entry sort
/// before `after`, an encoded path below the same directory.
fn pending_entry(
    name: &[u8],
    kind: WalkEntryKind,
    after: Option<&str>,
) -> Option<(Box<str>, WalkEntry)> {
    let encoded = encode_name(name);
    let contains_after = |key: &str| after.is_some_and(|after| after.starts_with(key));
    let is_after = |key: &str| after.is_none_or(|after| key > after);
    let mut entry = WalkEntry {
        kind,
        counted: false,
    };

    match kind {
        WalkEntryKind::File => is_after(&encoded).then_some((encoded, entry)),
        WalkEntryKind::Directory | WalkEntryKind::LinkedDirectory => {
            let key = with_trailing_slash(&encoded);
            entry.counted = contains_after(&key);
            (entry.counted || is_after(&key)).then_some((key, entry))
        }
        WalkEntryKind::Link if is_after(&encoded) => Some((encoded, entry)),
        // Listed already if the link leads to a file. If the link leads to a directory, `after` is
        // below the directory or the directory sorts after `after`.
        WalkEntryKind::Link => {
            let key = with_trailing_slash(&encoded);
            let is_pending = contains_after(&key) || is_after(&key);
            entry = WalkEntry {
                kind: WalkEntryKind::LinkedDirectory,
                counted: true,
            };
            is_pending.then_some((key, entry))
        }
    }
}

fn encode_name(name: &[u8]) -> Box<str> {
    RelPath::root()
        .join(name)
        .map(|path| handle::encode_path(&path))
        .unwrap_or_default()
        .into()
}

fn with_trailing_slash(name: &str) -> Box<str> {
    format!("{name}/").into()
}

#[cfg(test)]
mod tests;
