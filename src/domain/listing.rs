//! What `disk` tells a search of one directory. Leaves what to do with it to `search`.

use super::diagnostic::Problem;
use super::skill::MainFile;
use super::{RelPath, Spot};

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
#[derive(Debug)]
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

/// An entry that matters.
#[derive(Debug)]
pub struct Entry {
    /// Raw bytes.
    pub name: Box<[u8]>,
    /// Its index among all entries of the directory, in byte order.
    pub ordinal: usize,
    /// What it is.
    pub what: What,
}

/// What an entry is.
#[derive(Debug)]
pub enum What {
    /// A directory.
    Directory,
    /// A regular file; what it holds where it is a `SKILL.md`.
    File(Option<Result<Box<MainFile>, Problem>>),
    /// A link to a directory.
    LinkedDirectory(Spot, Identity),
    /// A link to a regular file; what it holds where it is a `SKILL.md`.
    LinkedFile(Spot, Option<Result<Box<MainFile>, Problem>>),
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
