//! One scanned directory, and the difference between two listings of it.

use super::dir_lister::{ListedDir, is_transient, vanished_problem};
use super::dir_watcher::DirWatches;
use super::fingerprint::SkillFileFingerprints;
use super::listing::{DirListing, DirToScan, ListingEntry, ListingEntryKind};
use super::scan_progress::ScanProgress;
use super::search::SkillSearch;
use crate::fs::dirs_snapshot::{AllowedDirsSnapshot, identity};
use crate::fs::open_file;
use crate::model::skill::SkillFile;
use crate::model::{FileProblem, RelPath, ResolvedPath};
use indexmap::IndexMap;
use std::sync::Arc;

/// Scanned directories. The values are large, and unlike a `HashMap`, an `IndexMap` has no empty
/// slots of their size.
pub type ScannedDirs = IndexMap<ResolvedPath, ScannedDir>;

/// State of one scanned directory.
#[derive(Debug)]
pub struct ScannedDir {
    /// Path from the root as walked, links included.
    walked_path: RelPath,
    /// Whether the walked path has a link.
    via_link: bool,
    token: u64,
    listing: Result<Arc<DirListing>, FileProblem>,
    /// Whether the directory must be listed again, because it or a directory above it may have been
    /// replaced.
    is_stale: bool,
    #[allow(dead_code)] // Held for its `Drop`.
    guards: DirWatches,
    fingerprints: SkillFileFingerprints,
}

/// Difference between two listings of a directory.
pub enum DirChange {
    /// No difference for a scan.
    None,
    /// Only the content of the SKILL.md differs: old and new file.
    SkillFileOnly(Arc<SkillFile>, Arc<SkillFile>),
    /// Another difference, with the directories that were replaced under the same name.
    Structure(Vec<ResolvedPath>),
}

/// Directories of the last scan and of the scan in progress.
pub struct DirReuse {
    /// Directories of the last scan that were not reached yet.
    pub previous: ScannedDirs,
    pub current: ScannedDirs,
}

impl DirReuse {
    /// Whether the last scan listed the directory, and its listing is still good.
    pub fn can_reuse(&self, dir: &DirToScan) -> bool {
        let previous = self.previous.get(&dir.resolved);
        previous.is_some_and(|last| !last.is_stale && last.walked_path == dir.path)
    }

    /// Passes the last listing of a directory to the search.
    pub fn keep_dir(&mut self, dir: DirToScan, search: &mut SkillSearch) {
        if let Some(last) = self.previous.swap_remove(&dir.resolved) {
            self.current.insert(dir.resolved.clone(), last);
        }
        let listing = self.current.get(&dir.resolved).map(|dir| dir.listing.clone());
        search.add_listing(dir, listing.unwrap_or_else(|| Err(vanished_problem())));
    }
}

impl ScannedDir {
    /// Takes a new listing. If the listing is equal to the last one, reuses its memory. If the
    /// SKILL.md no longer parses, keeps its last good version.
    pub fn new(dir: DirToScan, token: u64, listed: ListedDir, last: Option<Self>) -> Self {
        let last = last.and_then(|last| last.listing.ok());
        let listing = listed.listing.map(|new| reuse_unchanged(new, last));
        let ListedDir { guards, fingerprints, .. } = listed;
        Self {
            walked_path: dir.path,
            via_link: dir.via_link,
            token,
            listing,
            is_stale: false,
            guards,
            fingerprints,
        }
    }

    pub fn token(&self) -> u64 {
        self.token
    }

    pub fn walked_path(&self) -> &RelPath {
        &self.walked_path
    }

    pub fn listing(&self) -> &Result<Arc<DirListing>, FileProblem> {
        &self.listing
    }

    pub fn fingerprints(&self) -> &SkillFileFingerprints {
        &self.fingerprints
    }

    pub fn mark_stale(&mut self) {
        self.is_stale = true;
    }

    /// Returns the directory for a new listing of it.
    pub fn to_scan(&self, path: &ResolvedPath) -> DirToScan {
        DirToScan {
            path: self.walked_path.clone(),
            resolved: path.clone(),
            via_link: self.via_link,
        }
    }

    /// Replaces the listing. If `settled` is false, a SKILL.md that no longer parses keeps its last
    /// version. Returns the difference, and whether the new listing was used as it is.
    pub fn replace_listing(
        &mut self,
        path: &ResolvedPath,
        listed: ListedDir,
        settled: bool,
        truncated: bool,
    ) -> (DirChange, bool) {
        let mut is_stable = true;
        let listing = listed.listing.map(|new| {
            let last = self.listing.as_deref().ok();
            let (new, stable) = keep_last_good_skill(new, last, settled);
            is_stable = stable;
            new
        });
        let change = DirChange::between(path, &listing, &self.listing, truncated);
        self.listing = listing.map(Arc::new);
        (self.guards, self.fingerprints) = (listed.guards, listed.fingerprints);
        (change, is_stable)
    }

    /// Whether a new listing may differ although inotify reported nothing: a link target moved, or
    /// a read failed that may succeed now.
    pub fn has_unreported_change(
        &self,
        path: &ResolvedPath,
        snapshot: &AllowedDirsSnapshot,
        progress: &ScanProgress,
    ) -> bool {
        let listing = match &self.listing {
            Ok(listing) => listing,
            Err(problem) => return is_transient(problem),
        };
        listing.entries.iter().any(|entry| {
            let target = || {
                let target = open_file::follow_link_now(snapshot, path, &entry.name);
                progress.tick();
                target
            };
            match &entry.kind {
                ListingEntryKind::File(Some(file))
                | ListingEntryKind::LinkedFile(_, Some(file))
                    if has_transient_error(file) =>
                {
                    true
                }
                ListingEntryKind::LinkedDirectory(to, id) => {
                    target().is_none_or(|now| now.real_path != *to || identity(&now.stat) != *id)
                }
                ListingEntryKind::LinkedFile(to, _) => {
                    target().is_none_or(|now| now.real_path != *to)
                }
                ListingEntryKind::BrokenLink(_) => target().is_some(),
                ListingEntryKind::Directory
                | ListingEntryKind::File(_)
                | ListingEntryKind::SpecialFile => false,
            }
        })
    }
}

impl DirChange {
    /// Compares two listings of a directory. If a limit truncated the scan, every entry counts.
    fn between(
        dir: &ResolvedPath,
        new: &Result<DirListing, FileProblem>,
        old: &Result<Arc<DirListing>, FileProblem>,
        truncated: bool,
    ) -> Self {
        match (new, old) {
            (Ok(new), Ok(old)) if truncated => Self::Structure(replaced_dirs(dir, new, old)),
            (Ok(new), Ok(old)) if new.is_equivalent(old) => Self::None,
            (Ok(new), Ok(old)) => match new.skill_file_only_change(old) {
                Some((old, new)) => Self::SkillFileOnly(old, new),
                None => Self::Structure(replaced_dirs(dir, new, old)),
            },
            (Err(new), Err(old)) if new == old => Self::None,
            _ => Self::Structure(Vec::new()),
        }
    }
}

/// Whether a SKILL.md or its sidecar could not be read, and a new attempt may succeed.
fn has_transient_error(file: &Result<Arc<SkillFile>, FileProblem>) -> bool {
    match file {
        Err(problem) => is_transient(problem),
        Ok(file) => file.sidecar.as_ref().is_some_and(|read| read.1.iter().any(is_transient)),
    }
}

/// Returns the directories that were replaced under the same path: the directory itself, or targets
/// of its links.
fn replaced_dirs(dir: &ResolvedPath, new: &DirListing, old: &DirListing) -> Vec<ResolvedPath> {
    if new.identity != old.identity {
        return vec![dir.clone()];
    }
    let last =
        |entry: &ListingEntry| old.entries.iter().find(|e| e.name == entry.name).map(|e| &e.kind);
    let replaced = new.entries.iter().filter_map(|entry| match (&entry.kind, last(entry)) {
        (
            ListingEntryKind::LinkedDirectory(now, id),
            Some(ListingEntryKind::LinkedDirectory(before, last_id)),
        ) => (now == before && id != last_id).then(|| now.clone()),
        _ => None,
    });
    replaced.collect()
}

/// Returns the last listing if the new one is equal, so that a full scan without changes allocates
/// nothing that stays.
fn reuse_unchanged(new: DirListing, last: Option<Arc<DirListing>>) -> Arc<DirListing> {
    let (new, _) = keep_last_good_skill(new, last.as_deref(), true);
    last.filter(|last| **last == new).unwrap_or_else(|| Arc::new(new))
}

/// Replaces a SKILL.md that does not parse by its last good version. If `settled` is false,
/// replaces it by its last version without reporting a problem. A file with the same content as
/// before shares its memory. Returns the listing, and whether it was used as it is.
fn keep_last_good_skill(
    mut new: DirListing,
    last: Option<&DirListing>,
    settled: bool,
) -> (DirListing, bool) {
    let last = last.and_then(DirListing::skill_file);
    let Some(file) = new.skill_file_mut() else { return (new, true) };
    if let Some(last) = last.filter(|last| *last == file) {
        *file = last.clone();
        return (new, true);
    }
    let (Some(last), None) = (last, &file.frontmatter) else { return (new, true) };
    if !settled {
        *file = last.clone();
        return (new, false);
    }
    *file = Arc::new(file.as_ref().clone().or_last_good(Some(last)));
    (new, true)
}
