//! What is held of a root that can be used, and what a second look at a directory means for it.

use super::allowed_dirs::{AllowedDirsSnapshot, identity};
use super::catalog_builder::CatalogBuilder;
use super::dir_lister::is_transient;
use super::dir_watcher::DirWatches;
use super::filesystem_types::FilesystemTypes;
use super::fingerprint::SkillFileFingerprints;
use super::namespaces::{self, ManifestsByDir};
use super::open_file;
use super::plugin_dir::PluginDir;
use super::plugin_set::PluginDirs;
use super::scan_progress::ScanProgress;
use crate::domain::listing::{DirListing, DirToScan, ListingEntry, ListingEntryKind};
use crate::domain::search::SearchRules;
use crate::domain::skill::SkillFile;
use crate::domain::{Catalog, FileProblem, RelPath, ResolvedPath, RootScope};
use indexmap::IndexMap;
use rustix::fs::{OFlags, fstat};
use std::collections::HashSet;
use std::sync::Arc;

/// What the last search of a root that can be used found.
#[derive(Debug)]
pub(super) struct ScannedRoot {
    pub(super) snapshot: Arc<AllowedDirsSnapshot>,
    pub(super) path: ResolvedPath,
    pub(super) identity: (u64, u64),
    pub(super) rules: SearchRules,
    pub(super) scope: Option<RootScope>,
    pub(super) dirs: ScannedDirs,
    pub(super) manifests: ManifestsByDir,
    pub(super) plugin_dirs: PluginDirs,
    pub(super) catalog_builder: CatalogBuilder,
    pub(super) filesystems: FilesystemTypes,
    /// What was found last.
    pub(super) catalog: Option<Arc<Catalog>>,
    /// Whether a directory with a file that has other names was listed since [`Found::outdated`]
    /// was asked for that reason.
    pub(super) has_new_hard_links: bool,
}

/// The directories that the search entered. Unlike a table of the standard library, it has no room for
/// entries that are not there, and they are large.
pub(super) type ScannedDirs = IndexMap<ResolvedPath, ScannedDir>;

/// One directory that the search entered.
#[derive(Debug)]
pub(super) struct ScannedDir {
    /// As walked from the root.
    pub(super) walked_path: RelPath,
    /// Whether a link was followed on the way.
    pub(super) via_link: bool,
    pub(super) token: u64,
    pub(super) listing: Result<Arc<DirListing>, FileProblem>,
    /// Another directory may have taken its place with the one above it, so it must be listed again.
    pub(super) is_stale: bool,
    /// Watch over it while it is held.
    #[allow(dead_code)] // held, and never looked at
    pub(super) guards: DirWatches,
    pub(super) fingerprints: SkillFileFingerprints,
}

/// What a second look at a directory found.
pub(super) enum DirChange {
    /// Nothing that a search would see.
    None,
    /// What its SKILL.md holds, and nothing else: before and now.
    SkillFileOnly(Arc<SkillFile>, Arc<SkillFile>),
    /// Something else; and where other directories are now under the same names.
    Structure(Vec<ResolvedPath>),
}

impl DirChange {
    /// Compares two looks at a directory. Where a limit cut the search, every entry counts.
    pub(super) fn between(
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

impl ScannedRoot {
    /// Trusts nothing any more that is known of directories at and below these.
    pub(super) fn mark_stale(&mut self, replaced: &[ResolvedPath]) {
        let is_in = |spot: &ResolvedPath| {
            replaced.iter().any(|top| {
                spot.dir_index == top.dir_index
                    && spot.rel_path.strip_prefix(&top.rel_path).is_some()
            })
        };
        if replaced.is_empty() {
            return;
        }
        for (spot, node) in &mut self.dirs {
            node.is_stale |= is_in(spot);
        }
        self.manifests.retain(|spot, _| !is_in(spot));
        self.plugin_dirs.retain(|spot, _| !is_in(spot));
    }

    /// A directory, and those that its links lead to.
    pub(super) fn dirs_reached_from(&self, dir: &ResolvedPath) -> Vec<ResolvedPath> {
        let listing = self.dirs.get(dir).and_then(|node| node.listing.as_deref().ok());
        let entries = listing.map_or(&[][..], |listing| &listing.entries);
        let linked = entries.iter().filter_map(|entry| match &entry.kind {
            ListingEntryKind::LinkedDirectory(to, _) => Some(to.clone()),
            _ => None,
        });
        linked.chain([dir.clone()]).collect()
    }

    /// The directories in one, or linked from there, that could not be listed.
    pub(super) fn unlisted_dirs_in(&self, dir: &ResolvedPath) -> Vec<ResolvedPath> {
        let listing = self.dirs.get(dir).and_then(|node| node.listing.as_deref().ok());
        let entries = listing.map_or(&[][..], |listing| &listing.entries);
        let spots = entries.iter().filter_map(|entry| match &entry.kind {
            ListingEntryKind::LinkedDirectory(to, _) => Some(to.clone()),
            ListingEntryKind::Directory => dir.join(&entry.name),
            _ => None,
        });
        let missed =
            |spot: &ResolvedPath| self.dirs.get(spot).is_some_and(|node| node.listing.is_err());
        spots.filter(missed).collect()
    }

    /// Forgets the manifests that could not be read and may be by now; says whether there were some.
    pub(super) fn forget_failed_manifests(&mut self) -> bool {
        let before = self.manifests.len();
        self.manifests.retain(|_, read| !read.has_transient_error());
        self.manifests.len() < before
    }

    /// The tokens of directories to look at, though no event tells. Where it is only a manifest that
    /// could not be read, any will do. `mounts` are places at which something was mounted or taken
    /// away.
    pub(super) fn unreported_changes(
        &self,
        mounts: &HashSet<Box<[u8]>>,
        progress: &ScanProgress,
    ) -> HashSet<u64> {
        let failed = self.manifests.values().any(namespaces::ManifestLookup::has_transient_error);
        let root = self.dirs.get(&self.path).filter(|_| failed);
        let is_strayed = |(spot, node): &(&ResolvedPath, &ScannedDir)| {
            node.has_unreported_change(spot, &self.snapshot, progress)
        };
        let strayed = self.dirs.iter().filter(is_strayed).map(|(_, node)| node);
        // What is mounted on a file is seen from the directory that holds it.
        let places = mounts.iter().filter_map(|place| self.snapshot.locate_absolute(place));
        let places = places.flat_map(|spot| [spot.parent(), Some(spot)]).flatten();
        let mounted = places.filter_map(|spot| self.dirs.get(&spot));
        let nodes = strayed.chain(root).chain(mounted).map(|node| node.token);
        let plugins = self.plugin_dirs.values().filter(|plugin| plugin.has_transient_error());
        nodes.chain(plugins.map(PluginDir::token)).collect()
    }

    /// Gives away its directories, as they are called on another ground; those that are not on it are
    /// left out.
    pub(super) fn take_dirs_for(&mut self, ground: &Arc<AllowedDirsSnapshot>) -> ScannedDirs {
        let nodes = std::mem::take(&mut self.dirs);
        if Arc::ptr_eq(ground, &self.snapshot) {
            return nodes;
        }
        let moved =
            |spot: ResolvedPath| ground.locate_absolute(&self.snapshot.absolute_bytes(&spot));
        nodes.into_iter().filter_map(|(spot, node)| Some((moved(spot)?, node))).collect()
    }

    /// Whether the root's path leads elsewhere than it did, on the ground as it is now.
    pub(super) fn has_moved(&self, ground: &Arc<AllowedDirsSnapshot>, path: &[u8]) -> bool {
        let Ok(spot) = ground.resolve(path) else { return true };
        let Ok(fd) = ground.open(&spot, OFlags::PATH | OFlags::DIRECTORY) else { return true };
        let is_same = fstat(&fd).is_ok_and(|stat| identity(&stat) == self.identity);
        !is_same || !Arc::ptr_eq(ground, &self.snapshot) || spot != self.path
    }
}

impl ScannedDir {
    /// The look at it, at a place.
    pub(super) fn to_scan(&self, spot: &ResolvedPath) -> DirToScan {
        DirToScan {
            path: self.walked_path.clone(),
            resolved: spot.clone(),
            via_link: self.via_link,
        }
    }

    /// Whether a look at it may show what no event tells: a link that leads elsewhere than it did, or
    /// what could not be read and may be by now.
    pub(super) fn has_unreported_change(
        &self,
        spot: &ResolvedPath,
        ground: &AllowedDirsSnapshot,
        progress: &ScanProgress,
    ) -> bool {
        let listing = match &self.listing {
            Ok(listing) => listing,
            Err(problem) => return is_transient(problem),
        };
        listing.entries.iter().any(|entry| {
            let target = || {
                let target = open_file::follow_link_now(ground, spot, &entry.name);
                progress.tick();
                target
            };
            match &entry.kind {
                ListingEntryKind::File(Some(main))
                | ListingEntryKind::LinkedFile(_, Some(main))
                    if has_transient_error(main) =>
                {
                    true
                }
                ListingEntryKind::LinkedDirectory(to, was) => {
                    target().is_none_or(|now| now.real_path != *to || identity(&now.stat) != *was)
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

/// Whether a SKILL.md or its sidecar could not be read, and may be by now.
fn has_transient_error(main: &Result<Arc<SkillFile>, FileProblem>) -> bool {
    match main {
        Err(problem) => is_transient(problem),
        Ok(file) => file.sidecar.as_ref().is_some_and(|read| read.1.iter().any(is_transient)),
    }
}

/// Where a directory that is listed anew has other directories than before under the same name: all
/// below it, where it is another itself, and targets of its links.
fn replaced_dirs(dir: &ResolvedPath, new: &DirListing, old: &DirListing) -> Vec<ResolvedPath> {
    if new.identity != old.identity {
        return vec![dir.clone()];
    }
    let was =
        |entry: &ListingEntry| old.entries.iter().find(|e| e.name == entry.name).map(|e| &e.kind);
    let replaced = new.entries.iter().filter_map(|entry| match (&entry.kind, was(entry)) {
        (
            ListingEntryKind::LinkedDirectory(now, id),
            Some(ListingEntryKind::LinkedDirectory(before, was)),
        ) => (now == before && id != was).then(|| now.clone()),
        _ => None,
    });
    replaced.collect()
}

/// What is held of a directory that had time to settle. What is as it was is the very same, so that a
/// look at everything leaves memory as it was.
pub(super) fn reuse_unchanged(new: DirListing, last: Option<Arc<DirListing>>) -> Arc<DirListing> {
    let (new, _) = keep_last_good_skill(new, last.as_deref(), true);
    last.filter(|last| **last == new).unwrap_or_else(|| Arc::new(new))
}

/// Puts what a SKILL.md last said in the place of one that does not parse; while its directory is
/// not quiet, as if nothing had happened to it. One that says the same as before is the very same, so
/// that it is held once. Also whether it is settled.
pub(super) fn keep_last_good_skill(
    mut new: DirListing,
    last: Option<&DirListing>,
    quiet: bool,
) -> (DirListing, bool) {
    let last = last.and_then(DirListing::skill_file);
    let Some(main) = new.skill_file_mut() else { return (new, true) };
    if let Some(last) = last.filter(|last| *last == main) {
        *main = last.clone();
        return (new, true);
    }
    let (Some(last), None) = (last, &main.frontmatter) else { return (new, true) };
    if !quiet {
        *main = last.clone();
        return (new, false);
    }
    *main = Arc::new(main.as_ref().clone().or_last_good(Some(last)));
    (new, true)
}
