//! One scanned directory: its listing, which is the input of [`SkillSearch`], and the difference
//! between two listings.
//!
//! [`SkillSearch`]: super::search::SkillSearch

use super::root_index::HeldSkill;
use super::watches::WatchGuard;
use crate::daemon::fs::dirs_snapshot::AllowedDirsSnapshot;
use crate::daemon::fs::open_file::FileFingerprint;
use crate::daemon::model::skill::SkillFile;
use crate::daemon::model::{DirIdentity, FileProblem, ResolvedPath, sidecar_path, skill_file_name};
use caproot_core::wire::RelPath;
use indexmap::IndexMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a SKILL.md that only a repair can read must be unchanged until it replaces a version that
/// needed no repair.
pub const REPAIR_DELAY: Duration = Duration::from_secs(2);

/// Directory that the scan has to list.
#[derive(Debug, Clone)]
pub struct DirToScan {
    /// Path below the root, with links unresolved. The path names the skills in the directory.
    pub path: RelPath,
    /// Resolved path, which is opened.
    pub resolved: ResolvedPath,
    /// Whether the path goes through a link.
    pub via_link: bool,
}

/// Content of a directory, in byte order of the names.
#[derive(Debug, PartialEq)]
pub struct DirListing {
    /// Identity of the directory itself.
    pub identity: DirIdentity,
    /// How many entries the directory has, including entries that the scan ignores.
    pub total_entries: usize,
    /// Relevant entries: directories, links, special files, and `SKILL.md` in any letter case.
    pub entries: Vec<ListingEntry>,
    /// Whether the directory may contain a plugin manifest.
    pub may_hold_manifest: bool,
    /// Whether the directory is a Git worktree of a repository that is below the root, too.
    pub is_worktree: bool,
}

/// Relevant entry of a directory.
#[derive(Debug, PartialEq)]
pub struct ListingEntry {
    /// Name in raw bytes.
    pub name: Box<[u8]>,
    /// Index among all entries of the directory, in byte order.
    pub ordinal: usize,
    /// Kind of the entry.
    pub kind: ListingEntryKind,
}

/// Content of a SKILL.md, or the problem of reading it.
pub type SkillFileRead = Result<Arc<SkillFile>, FileProblem>;

/// Kind of a directory entry.
#[derive(Debug, PartialEq)]
pub enum ListingEntryKind {
    /// Directory.
    Directory,
    /// Regular file, with its content if the file is a `SKILL.md`.
    File(Option<SkillFileRead>),
    /// Link to a directory.
    LinkedDirectory(ResolvedPath, DirIdentity),
    /// Link to a regular file, with the content if the link is a `SKILL.md`.
    LinkedFile(ResolvedPath, Option<SkillFileRead>),
    /// Link that leads out of the allowed directories, to nothing or in a cycle, with the problem.
    BrokenLink(FileProblem),
    /// FIFO, socket or device, or a link to one. Never opened.
    SpecialFile,
}

/// Fingerprints of the SKILL.md and the sidecar of one directory at the time of reading.
#[derive(Debug, Clone, Copy, Default)]
pub struct SkillFileFingerprints {
    pub skill_file: Option<FileFingerprint>,
    pub sidecar: Option<FileFingerprint>,
    /// Whether a file in the directory has hard links.
    pub has_hard_links: bool,
}

/// A listing, with its watches and fingerprints.
#[derive(Debug)]
pub struct ListedDir {
    pub listing: Result<DirListing, FileProblem>,
    pub guards: Box<[WatchGuard]>,
    pub fingerprints: SkillFileFingerprints,
}

/// Scanned directories. The values are large, and unlike a `HashMap`, an `IndexMap` has no empty
/// slots of their size.
pub type ScannedDirs = IndexMap<ResolvedPath, ScannedDir>;

/// State of one scanned directory.
#[derive(Debug)]
pub struct ScannedDir {
    /// Path from the root as walked, links included.
    pub walked_path: RelPath,
    /// Whether the walked path has a link.
    via_link: bool,
    pub token: u64,
    pub listing: Result<Arc<DirListing>, FileProblem>,
    /// Whether the directory must be listed again, because it or a directory above it may have been
    /// replaced.
    pub is_stale: bool,
    #[allow(dead_code)] // Held for its `Drop`.
    guards: Box<[WatchGuard]>,
    pub fingerprints: SkillFileFingerprints,
    held_file: Option<HeldFile>,
}

/// SKILL.md that is not published yet, because only a repair can read it.
#[derive(Debug, Clone, Copy)]
struct HeldFile {
    fingerprint: Option<FileFingerprint>,
    until: Instant,
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

impl DirListing {
    /// Returns the SKILL.md, if the directory has one and the read succeeded.
    #[must_use]
    pub fn skill_file(&self) -> Option<&Arc<SkillFile>> {
        let mut read = self
            .entries
            .iter()
            .filter_map(ListingEntry::read_skill_file);
        read.find_map(|read| read.as_ref().ok())
    }

    /// Returns a mutable reference to the SKILL.md, if the read succeeded.
    fn skill_file_mut(&mut self) -> Option<&mut Arc<SkillFile>> {
        self.entries
            .iter_mut()
            .find_map(|entry| match &mut entry.kind {
                ListingEntryKind::File(Some(Ok(file)))
                | ListingEntryKind::LinkedFile(_, Some(Ok(file))) => Some(file),
                _ => None,
            })
    }

    /// Whether the listings differ in nothing but the content of the SKILL.md. The number of
    /// irrelevant entries is ignored, so the caller must know that `max_entries` is not near.
    fn is_same_except_skill_file(&self, other: &Self) -> bool {
        self.identity == other.identity
            && self.may_hold_manifest == other.may_hold_manifest
            && self.is_worktree == other.is_worktree
            && self.entries.len() == other.entries.len()
            && self
                .entries
                .iter()
                .zip(&other.entries)
                .all(|(entry, other)| entry.is_same_except_skill_file(other))
    }
}

impl ListingEntry {
    /// Returns the SKILL.md or the problem of reading it, if the entry is one.
    pub(super) fn read_skill_file(&self) -> Option<&SkillFileRead> {
        match &self.kind {
            ListingEntryKind::File(read) | ListingEntryKind::LinkedFile(_, read) => read.as_ref(),
            _ => None,
        }
    }

    /// Whether the entries differ in nothing but the content of a SKILL.md.
    fn is_same_except_skill_file(&self, other: &Self) -> bool {
        let is_same_kind = match (&self.kind, &other.kind) {
            (ListingEntryKind::File(Some(Ok(_))), ListingEntryKind::File(Some(Ok(_)))) => true,
            (
                ListingEntryKind::LinkedFile(path, Some(Ok(_))),
                ListingEntryKind::LinkedFile(other_path, Some(Ok(_))),
            ) => path == other_path,
            (kind, other_kind) => kind == other_kind,
        };
        is_same_kind && self.name == other.name
    }

    /// Whether the entry is a file named `SKILL.md` in any letter case.
    #[must_use]
    pub fn is_skill_file_in_any_case(&self) -> bool {
        self.name.eq_ignore_ascii_case(b"SKILL.md")
            && matches!(
                self.kind,
                ListingEntryKind::File(_) | ListingEntryKind::LinkedFile(..)
            )
    }
}

impl SkillFileFingerprints {
    pub fn is_outdated(&self, snapshot: &AllowedDirsSnapshot, dir: &ResolvedPath) -> bool {
        let mut files = [
            (self.skill_file, skill_file_name()),
            (self.sidecar, sidecar_path()),
        ]
        .into_iter();
        files.any(|(read, path)| read.is_some_and(|read| read.is_outdated(snapshot, dir, &path)))
    }
}

impl ScannedDir {
    /// Takes a new listing. If the listing is equal to the last one, reuses its memory. If the
    /// SKILL.md no longer parses, keeps its last good version. If only a repair can read it, keeps
    /// its last version for [`REPAIR_DELAY`].
    pub fn new(
        dir: DirToScan,
        token: u64,
        listed: ListedDir,
        last: Option<Self>,
        now: Instant,
    ) -> Self {
        let mut held_file = last.as_ref().and_then(|last| last.held_file);
        let last = last.and_then(|last| last.listing.ok());
        let listing = listed.listing.map(|mut new| {
            let file = listed.fingerprints.skill_file;
            held_file = hold_repaired_skill(&mut new, last.as_deref(), file, held_file, now);
            keep_last_good_skill(&mut new, last.as_deref(), true);

            // A full scan without changes allocates nothing that stays.
            last.filter(|last| **last == new)
                .unwrap_or_else(|| Arc::new(new))
        });

        Self {
            walked_path: dir.path,
            via_link: dir.via_link,
            token,
            listing,
            is_stale: false,
            guards: listed.guards,
            fingerprints: listed.fingerprints,
            held_file,
        }
    }

    /// Returns the relevant entries; none if the directory could not be listed.
    pub fn entries(&self) -> &[ListingEntry] {
        let listing = self.listing.as_ref();
        listing.map_or(&[], |listing| &listing.entries)
    }

    /// Returns the SKILL.md of the directory that is not published yet, if there is one.
    pub fn held_skill(&self) -> Option<HeldSkill> {
        Some(HeldSkill {
            token: self.token,
            until: self.held_file?.until,
        })
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
    /// version. A SKILL.md that only a repair can read keeps its last version for [`REPAIR_DELAY`].
    /// Returns the difference, and whether the new listing was used as it is.
    pub fn replace_listing(
        &mut self,
        path: &ResolvedPath,
        listed: ListedDir,
        settled: bool,
        truncated: bool,
        now: Instant,
    ) -> (DirChange, bool) {
        let mut is_stable = true;
        let mut held_file = self.held_file;

        let listing = listed.listing.map(|mut new| {
            let last = self.listing.as_deref().ok();
            let file = listed.fingerprints.skill_file;
            held_file = hold_repaired_skill(&mut new, last, file, held_file, now);
            is_stable = keep_last_good_skill(&mut new, last, settled);
            new
        });

        let change = DirChange::between(path, &listing, &self.listing, truncated);
        self.listing = listing.map(Arc::new);
        self.guards = listed.guards;
        self.fingerprints = listed.fingerprints;
        self.held_file = held_file;
        (change, is_stable)
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
            (Ok(new), Ok(old)) if truncated || !new.is_same_except_skill_file(old) => {
                Self::Structure(replaced_dirs(dir, new, old))
            }
            (Ok(new), Ok(old)) => match (old.skill_file(), new.skill_file()) {
                (Some(old), Some(new)) if old != new => {
                    Self::SkillFileOnly(old.clone(), new.clone())
                }
                _ => Self::None,
            },
            (Err(new), Err(old)) if new == old => Self::None,
            _ => Self::Structure(Vec::new()),
        }
    }
}

/// Returns the directories that were replaced under the same path: the directory itself, or targets
/// of its links.
fn replaced_dirs(dir: &ResolvedPath, new: &DirListing, old: &DirListing) -> Vec<ResolvedPath> {
    if new.identity != old.identity {
        return vec![dir.clone()];
    }

    let replaced = new.entries.iter().filter_map(|entry| {
        let last = old.entries.iter().find(|last| last.name == entry.name)?;
        match (&entry.kind, &last.kind) {
            (
                ListingEntryKind::LinkedDirectory(now, id),
                ListingEntryKind::LinkedDirectory(before, last_id),
            ) => (now == before && id != last_id).then(|| now.clone()),
            _ => None,
        }
    });
    replaced.collect()
}

/// Replaces a SKILL.md that only a repair can read by its last version if that needed no repair. An
/// editor may be in the middle of writing the file. Returns until when the file is held, or `None`
/// if the listing is used as it is. `file` is the file that was read, and `held` the file that was
/// held before.
fn hold_repaired_skill(
    new: &mut DirListing,
    last: Option<&DirListing>,
    file: Option<FileFingerprint>,
    held: Option<HeldFile>,
    now: Instant,
) -> Option<HeldFile> {
    let last = last?.skill_file()?;
    let skill_file = new.skill_file_mut()?;
    let was_good = last.frontmatter.is_some() && !last.is_repaired();
    if !skill_file.is_repaired() || !was_good {
        return None;
    }

    let same = held.filter(|held| held.fingerprint == file);
    let held = same.unwrap_or(HeldFile {
        fingerprint: file,
        until: now + REPAIR_DELAY,
    });
    if now >= held.until {
        return None;
    }
    *skill_file = last.clone();
    Some(held)
}

/// Replaces a SKILL.md that does not parse by its last good version. If `settled` is false,
/// replaces it by its last version without reporting a problem. A file with the same content as
/// before shares its memory. Returns whether the listing was used as it is.
fn keep_last_good_skill(new: &mut DirListing, last: Option<&DirListing>, settled: bool) -> bool {
    let last = last.and_then(DirListing::skill_file);
    let (Some(last), Some(file)) = (last, new.skill_file_mut()) else {
        return true;
    };

    let is_same = last == file;
    let is_unstable = !is_same && file.frontmatter.is_none() && !settled;
    if is_same || is_unstable {
        *file = last.clone();
    } else if file.frontmatter.is_none() {
        *file = Arc::new(file.as_ref().clone().or_last_good(last));
    }
    !is_unstable
}

#[cfg(test)]
mod tests {
    use super::{
        DirChange, DirListing, FileFingerprint, HeldFile, ListingEntry, ListingEntryKind,
        REPAIR_DELAY, hold_repaired_skill,
    };
    use crate::daemon::model::skill::SkillFile;
    use crate::daemon::model::{FileProblem, FileVersion, ResolvedPath};
    use crate::daemon::parse::frontmatter;
    use crate::daemon::scan::file_problem::vanished_problem;
    use caproot_core::wire::{ContentDigest, RelPath};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    fn resolved(path: &str) -> ResolvedPath {
        let rel_path = RelPath::new(path.as_bytes()).expect("a path");
        ResolvedPath {
            dir_index: 0,
            rel_path,
        }
    }

    /// Returns a SKILL.md whose digest is the first byte of `content`.
    fn skill_file(content: &str) -> Result<Arc<SkillFile>, FileProblem> {
        let byte = *content.as_bytes().first().ok_or_else(vanished_problem)?;
        Ok(Arc::new(SkillFile {
            digest: Some(ContentDigest([byte; 32])),
            size: 1,
            frontmatter: None,
            problems: Box::default(),
            sidecar: None,
            stale: false,
        }))
    }

    /// Returns the listing of a line: the number of the directory, and entries. `a/` is a directory,
    /// `a>b#2` a link to the directory `b` with the number 2, `=x` a SKILL.md with the content `x`,
    /// and `b=x` a link to such a file.
    fn listing(line: &str) -> DirListing {
        let mut words = line.split(' ');
        let number = |text: &str| (0, text.parse().expect("a number"));
        let identity = number(words.next().expect("a word"));
        let entries = words.map(|word| {
            let (name, kind) = if let Some((name, target)) = word.split_once('>') {
                let (path, id) = target.split_once('#').expect("a target");
                (
                    name,
                    ListingEntryKind::LinkedDirectory(resolved(path), number(id)),
                )
            } else if let Some((path, content)) = word.split_once('=') {
                let read = Some(skill_file(content));
                let linked = || ListingEntryKind::LinkedFile(resolved(path), read.clone());
                let is_link = !path.is_empty();
                (
                    "SKILL.md",
                    if is_link {
                        linked()
                    } else {
                        ListingEntryKind::File(read)
                    },
                )
            } else {
                (word, ListingEntryKind::Directory)
            };
            ListingEntry {
                name: name.as_bytes().into(),
                ordinal: 0,
                kind,
            }
        });
        let entries: Vec<_> = entries.collect();
        DirListing {
            identity,
            total_entries: entries.len(),
            entries,
            may_hold_manifest: false,
            is_worktree: false,
        }
    }

    /// Returns the listing of a directory with a SKILL.md of this description.
    fn skill_listing(description: &str) -> DirListing {
        let text = format!("---\nname: a\ndescription: {description}\n---\n");
        let parsed = frontmatter::read(text.as_bytes(), true, None);
        let file = SkillFile {
            digest: None,
            size: text.len() as u64,
            frontmatter: parsed.frontmatter.map(Into::into),
            problems: parsed.problems.into(),
            sidecar: None,
            stale: false,
        };
        let entry = ListingEntry {
            name: (*b"SKILL.md").into(),
            ordinal: 0,
            kind: ListingEntryKind::File(Some(Ok(Arc::new(file)))),
        };
        DirListing {
            identity: (0, 0),
            total_entries: 1,
            entries: vec![entry],
            may_hold_manifest: false,
            is_worktree: false,
        }
    }

    fn fingerprint(size: u64) -> FileFingerprint {
        FileFingerprint::from_version(&FileVersion {
            device: 0,
            inode: 0,
            size,
            mtime: (0, 0),
            ctime: (0, 0),
        })
    }

    #[test]
    fn a_repaired_skill_replaces_a_good_one_when_it_is_unchanged() {
        let start = Instant::now();
        let (good, repaired, broken) = ("Good", "Half: written", "\"Open");
        // Versions of one file with their size and time in milliseconds, and whether each replaces
        // the last one.
        for steps in [
            &[(good, 1, 0, true), (good, 2, 1, true)][..],
            &[
                (good, 1, 0, true),
                (repaired, 2, 1, false),
                (good, 3, 2, true),
            ],
            &[
                (good, 1, 0, true),
                (repaired, 2, 1, false),
                (repaired, 2, 2_000, false),
                (repaired, 2, 2_001, true),
            ],
            // A write starts the delay again.
            &[
                (good, 1, 0, true),
                (repaired, 2, 1, false),
                (repaired, 3, 2_000, false),
                (repaired, 3, 3_999, false),
                (repaired, 3, 4_000, true),
            ],
            &[
                (good, 1, 0, true),
                (repaired, 2, 1, false),
                (broken, 3, 2, true),
                (repaired, 2, 3, true),
            ],
            &[(repaired, 1, 0, true), (repaired, 2, 1, true)],
            &[(broken, 1, 0, true), (repaired, 2, 1, true)],
        ] {
            let mut last: Option<DirListing> = None;
            let mut held: Option<HeldFile> = None;
            for (description, size, ms, replaces) in steps {
                let mut new = skill_listing(description);
                let now = start + Duration::from_millis(*ms);
                held = hold_repaired_skill(
                    &mut new,
                    last.as_ref(),
                    Some(fingerprint(*size)),
                    held,
                    now,
                );
                assert_eq!(held.is_none(), *replaces, "{steps:?} {ms}");
                assert_eq!(
                    new == skill_listing(description),
                    *replaces,
                    "{steps:?} {ms}"
                );
                assert!(held.is_none_or(|held| held.until <= now + REPAIR_DELAY));
                last = Some(new);
            }
        }
    }

    #[test]
    fn the_difference_of_listings_is_the_content_or_the_structure() {
        for (old, new, expected) in [
            ("1 a/ =x", "1 a/ =x", "none"),
            ("1 a/ =x", "1 a/ =y", "skill file"),
            ("1 a/ b=x", "1 a/ b=y", "skill file"),
            ("1 a/ b=x", "1 a/ c=y", "structure"),
            ("1 a/ =x", "1 a/ b=x", "structure"),
            ("1 a/ =x", "1 c/ =y", "structure"),
            ("1 a/ =x", "1 a/", "structure"),
            ("1 =x", "1 =", "structure"),
            ("1 =", "1 =", "none"),
            ("1 a>b#1", "1 a>b#2", "structure, b replaced"),
            ("1 a>b#1", "1 a>c#2", "structure"),
            ("1 =x", "2 =x", "structure, top replaced"),
        ] {
            let last = Ok(Arc::new(listing(old)));
            let change = |new: &str, is_truncated| match DirChange::between(
                &resolved("top"),
                &Ok(listing(new)),
                &last,
                is_truncated,
            ) {
                DirChange::None => "none".to_owned(),
                DirChange::SkillFileOnly(..) => "skill file".to_owned(),
                DirChange::Structure(replaced) => {
                    let replaced = replaced
                        .iter()
                        .map(|dir| format!(", {} replaced", dir.rel_path));
                    ["structure".to_owned()]
                        .into_iter()
                        .chain(replaced)
                        .collect()
                }
            };
            assert_eq!(change(new, false), expected, "{old:?} {new:?}");
            assert!(
                change(new, true).starts_with("structure"),
                "{old:?} {new:?}"
            );
        }
    }
}
