//! What `disk` tells a search of one directory. Leaves what to do with it to `search`.

use super::diagnostic::FileProblem;
use super::skill::SkillFile;
use super::{RelPath, ResolvedPath};
use std::sync::Arc;

/// Device and inode: two paths with the same are one directory.
pub type DirIdentity = (u64, u64);

/// One directory to list.
#[derive(Debug, Clone)]
pub struct DirToScan {
    /// As walked from the root: what it is called.
    pub path: RelPath,
    /// Where it really is: what is opened.
    pub resolved: ResolvedPath,
    /// Whether a link was followed on the way.
    pub via_link: bool,
}

/// What a directory holds, names in byte order.
#[derive(Debug, PartialEq)]
pub struct DirListing {
    /// Of the directory itself.
    pub identity: DirIdentity,
    /// How many entries it has, those that do not matter here included.
    pub total_entries: usize,
    /// Those that matter: directories, links, special files and spellings of `SKILL.md`.
    pub entries: Vec<ListingEntry>,
    /// Whether one of the places for a plugin manifest may be in it.
    pub may_hold_manifest: bool,
}

impl DirListing {
    /// Whether a search would make the same of both: how many unrelated entries there are does not
    /// count, as long as no limit is near.
    #[must_use]
    pub fn is_equivalent(&self, other: &Self) -> bool {
        let same = |(a, b): (&ListingEntry, &ListingEntry)| a.name == b.name && a.kind == b.kind;
        self.identity == other.identity
            && self.may_hold_manifest == other.may_hold_manifest
            && self.entries.len() == other.entries.len()
            && self.entries.iter().zip(&other.entries).all(same)
    }

    /// The SKILL.md of `old` and of this, where that is all that is not the same.
    #[must_use]
    pub fn skill_file_only_change(&self, old: &Self) -> Option<(Arc<SkillFile>, Arc<SkillFile>)> {
        let is_same = |(a, b): (&ListingEntry, &ListingEntry)| {
            let what = match (&a.kind, &b.kind) {
                (ListingEntryKind::File(Some(Ok(_))), ListingEntryKind::File(Some(Ok(_)))) => true,
                (
                    ListingEntryKind::LinkedFile(a, Some(Ok(_))),
                    ListingEntryKind::LinkedFile(b, Some(Ok(_))),
                ) => a == b,
                (a, b) => a == b,
            };
            what && a.name == b.name
        };
        let alike = self.identity == old.identity
            && self.may_hold_manifest == old.may_hold_manifest
            && self.entries.len() == old.entries.len()
            && self.entries.iter().zip(&old.entries).all(is_same);
        alike.then(|| Some((old.skill_file()?.clone(), self.skill_file()?.clone()))).flatten()
    }

    /// The SKILL.md, if there is one that could be read.
    #[must_use]
    pub fn skill_file(&self) -> Option<&Arc<SkillFile>> {
        self.entries.iter().find_map(|entry| match &entry.kind {
            ListingEntryKind::File(Some(Ok(file)))
            | ListingEntryKind::LinkedFile(_, Some(Ok(file))) => Some(file),
            _ => None,
        })
    }

    /// The same, to be replaced.
    pub fn skill_file_mut(&mut self) -> Option<&mut Arc<SkillFile>> {
        self.entries.iter_mut().find_map(|entry| match &mut entry.kind {
            ListingEntryKind::File(Some(Ok(file)))
            | ListingEntryKind::LinkedFile(_, Some(Ok(file))) => Some(file),
            _ => None,
        })
    }
}

/// An entry that matters.
#[derive(Debug, PartialEq)]
pub struct ListingEntry {
    /// Raw bytes.
    pub name: Box<[u8]>,
    /// Its index among all entries of the directory, in byte order.
    pub ordinal: usize,
    /// What it is.
    pub kind: ListingEntryKind,
}

/// What an entry is.
#[derive(Debug, PartialEq)]
pub enum ListingEntryKind {
    /// A directory.
    Directory,
    /// A regular file; what it holds where it is a `SKILL.md`.
    File(Option<Result<Arc<SkillFile>, FileProblem>>),
    /// A link to a directory.
    LinkedDirectory(ResolvedPath, DirIdentity),
    /// A link to a regular file; what it holds where it is a `SKILL.md`.
    LinkedFile(ResolvedPath, Option<Result<Arc<SkillFile>, FileProblem>>),
    /// A link that leads outside, nowhere or in circles: the problem says which.
    BrokenLink(FileProblem),
    /// A fifo, socket or device, or a link to one. Never opened.
    SpecialFile,
}

impl ListingEntry {
    /// Whether it is named like `SKILL.md`, letter case aside.
    #[must_use]
    pub fn is_skill_file_in_any_case(&self) -> bool {
        self.name.eq_ignore_ascii_case(b"SKILL.md")
            && matches!(self.kind, ListingEntryKind::File(_) | ListingEntryKind::LinkedFile(..))
    }
}
