//! Directory listings: the input of [`SkillSearch`](super::search::SkillSearch), one for each
//! scanned directory.

use crate::model::diagnostic::FileProblem;
use crate::model::skill::SkillFile;
use crate::model::{DirIdentity, RelPath, ResolvedPath};
use std::sync::Arc;

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
}

impl DirListing {
    /// Whether a scan would produce the same result from both. The number of irrelevant entries is
    /// ignored, so the caller must know that `max_entries` is not near.
    #[must_use]
    pub fn is_equivalent(&self, other: &Self) -> bool {
        let same = |(a, b): (&ListingEntry, &ListingEntry)| a.name == b.name && a.kind == b.kind;
        self.identity == other.identity
            && self.may_hold_manifest == other.may_hold_manifest
            && self.entries.len() == other.entries.len()
            && self.entries.iter().zip(&other.entries).all(same)
    }

    /// Returns the SKILL.md of `old` and of `self`, if the listings differ in nothing else.
    #[must_use]
    pub fn skill_file_only_change(&self, old: &Self) -> Option<(Arc<SkillFile>, Arc<SkillFile>)> {
        let is_same = |(a, b): (&ListingEntry, &ListingEntry)| {
            let is_same_kind = match (&a.kind, &b.kind) {
                (ListingEntryKind::File(Some(Ok(_))), ListingEntryKind::File(Some(Ok(_)))) => true,
                (
                    ListingEntryKind::LinkedFile(a, Some(Ok(_))),
                    ListingEntryKind::LinkedFile(b, Some(Ok(_))),
                ) => a == b,
                (a, b) => a == b,
            };
            is_same_kind && a.name == b.name
        };
        let is_only_change = self.identity == old.identity
            && self.may_hold_manifest == old.may_hold_manifest
            && self.entries.len() == old.entries.len()
            && self.entries.iter().zip(&old.entries).all(is_same);
        is_only_change
            .then(|| Some((old.skill_file()?.clone(), self.skill_file()?.clone())))
            .flatten()
    }

    /// Returns the SKILL.md, if the directory has one and the read succeeded.
    #[must_use]
    pub fn skill_file(&self) -> Option<&Arc<SkillFile>> {
        self.entries.iter().find_map(|entry| match &entry.kind {
            ListingEntryKind::File(Some(Ok(file)))
            | ListingEntryKind::LinkedFile(_, Some(Ok(file))) => Some(file),
            _ => None,
        })
    }

    /// Returns a mutable reference to the SKILL.md, if the read succeeded.
    pub fn skill_file_mut(&mut self) -> Option<&mut Arc<SkillFile>> {
        self.entries.iter_mut().find_map(|entry| match &mut entry.kind {
            ListingEntryKind::File(Some(Ok(file)))
            | ListingEntryKind::LinkedFile(_, Some(Ok(file))) => Some(file),
            _ => None,
        })
    }
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

/// Kind of a directory entry.
#[derive(Debug, PartialEq)]
pub enum ListingEntryKind {
    /// Directory.
    Directory,
    /// Regular file, with its content if the file is a `SKILL.md`.
    File(Option<Result<Arc<SkillFile>, FileProblem>>),
    /// Link to a directory.
    LinkedDirectory(ResolvedPath, DirIdentity),
    /// Link to a regular file, with the content if the link is a `SKILL.md`.
    LinkedFile(ResolvedPath, Option<Result<Arc<SkillFile>, FileProblem>>),
    /// Link that leads out of the allowed directories, to nothing or in a cycle, with the problem.
    BrokenLink(FileProblem),
    /// FIFO, socket or device, or a link to one. Never opened.
    SpecialFile,
}

impl ListingEntry {
    /// Whether the entry is a file named `SKILL.md` in any letter case.
    #[must_use]
    pub fn is_skill_file_in_any_case(&self) -> bool {
        self.name.eq_ignore_ascii_case(b"SKILL.md")
            && matches!(self.kind, ListingEntryKind::File(_) | ListingEntryKind::LinkedFile(..))
    }
}
