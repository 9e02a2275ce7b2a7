//! What `disk` tells a search of one directory. Leaves what to do with it to `search`.

use super::diagnostic::Problem;
use super::skill::MainFile;
use super::{RelPath, Spot};
use std::sync::Arc;

/// Device and inode: two paths with the same are one directory.
pub type Identity = (u64, u64);

/// One directory to list.
#[derive(Debug, Clone)]
pub struct Visit {
    /// As walked from the root: what it is called.
    pub walked: RelPath,
    /// Where it really is: what is opened.
    pub spot: Spot,
    /// Whether a link was followed on the way.
    pub linked: bool,
}

/// What a directory holds, names in byte order.
#[derive(Debug, PartialEq)]
pub struct Listing {
    /// Of the directory itself.
    pub identity: Identity,
    /// How many entries it has, those that do not matter here included.
    pub total: usize,
    /// Those that matter: directories, links, special files and spellings of `SKILL.md`.
    pub entries: Vec<Entry>,
    /// Whether one of the places for a plugin manifest may be in it.
    pub may_hold_manifest: bool,
}

impl Listing {
    /// Whether a search would make the same of both: how many unrelated entries there are does not
    /// count, as long as no limit is near.
    #[must_use]
    pub fn means_the_same(&self, other: &Self) -> bool {
        let same = |(a, b): (&Entry, &Entry)| a.name == b.name && a.what == b.what;
        self.identity == other.identity
            && self.may_hold_manifest == other.may_hold_manifest
            && self.entries.len() == other.entries.len()
            && self.entries.iter().zip(&other.entries).all(same)
    }

    /// The SKILL.md of `old` and of this, where that is all that is not the same.
    #[must_use]
    pub fn differs_in_main_only(&self, old: &Self) -> Option<(Arc<MainFile>, Arc<MainFile>)> {
        let is_same = |(a, b): (&Entry, &Entry)| {
            let what = match (&a.what, &b.what) {
                (What::File(Some(Ok(_))), What::File(Some(Ok(_)))) => true,
                (What::LinkedFile(a, Some(Ok(_))), What::LinkedFile(b, Some(Ok(_)))) => a == b,
                (a, b) => a == b,
            };
            what && a.name == b.name
        };
        let alike = self.identity == old.identity
            && self.may_hold_manifest == old.may_hold_manifest
            && self.entries.len() == old.entries.len()
            && self.entries.iter().zip(&old.entries).all(is_same);
        alike.then(|| Some((old.main()?.clone(), self.main()?.clone()))).flatten()
    }

    /// The SKILL.md, if there is one that could be read.
    #[must_use]
    pub fn main(&self) -> Option<&Arc<MainFile>> {
        self.entries.iter().find_map(|entry| match &entry.what {
            What::File(Some(Ok(file))) | What::LinkedFile(_, Some(Ok(file))) => Some(file),
            _ => None,
        })
    }

    /// The same, to be replaced.
    pub fn main_mut(&mut self) -> Option<&mut Arc<MainFile>> {
        self.entries.iter_mut().find_map(|entry| match &mut entry.what {
            What::File(Some(Ok(file))) | What::LinkedFile(_, Some(Ok(file))) => Some(file),
            _ => None,
        })
    }
}

/// An entry that matters.
#[derive(Debug, PartialEq)]
pub struct Entry {
    /// Raw bytes.
    pub name: Box<[u8]>,
    /// Its index among all entries of the directory, in byte order.
    pub ordinal: usize,
    /// What it is.
    pub what: What,
}

/// What an entry is.
#[derive(Debug, PartialEq)]
pub enum What {
    /// A directory.
    Directory,
    /// A regular file; what it holds where it is a `SKILL.md`.
    File(Option<Result<Arc<MainFile>, Problem>>),
    /// A link to a directory.
    LinkedDirectory(Spot, Identity),
    /// A link to a regular file; what it holds where it is a `SKILL.md`.
    LinkedFile(Spot, Option<Result<Arc<MainFile>, Problem>>),
    /// A link that leads outside, nowhere or in circles: the problem says which.
    BadLink(Problem),
    /// A fifo, socket or device, or a link to one. Never opened.
    Special,
}

impl Entry {
    /// Whether it is named like `SKILL.md`, letter case aside.
    #[must_use]
    pub fn is_wrong_case(&self) -> bool {
        self.name.eq_ignore_ascii_case(b"SKILL.md")
            && matches!(self.what, What::File(_) | What::LinkedFile(..))
    }
}
