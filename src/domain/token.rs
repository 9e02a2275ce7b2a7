//! Cursors and page tokens: opaque to callers, checked in full when they come back. No secret:
//! whatever is in one is verified again, so a forged one gains nothing.

use super::files::Bookmark;
use super::{RelPath, RootId, Version, handle};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

const CHECK_BYTES: usize = 8;
const CURSOR_TAG: u8 = 1;
const PAGE_TAG: u8 = 2;
const RESUME_TAG: u8 = 3;
const BOOKMARK_TAG: u8 = 4;
/// Those that hold only numbers.
const MAX_CHARS: usize = 256;
/// Those that hold a path, which is shorter than its handle.
const MAX_CHARS_WITH_PATH: usize = 4_096;

/// Where a paged read goes on: which version of which resource, and from which byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    /// The version that the pages before came from.
    pub version: Version,
    /// The first byte of the next page.
    pub offset: u64,
}

impl Cursor {
    /// The text for the caller, bound to the resource.
    #[must_use]
    pub fn print(&self, root: &RootId, resource: &RelPath) -> String {
        let v = &self.version;
        let mut body = vec![CURSOR_TAG];
        for n in [v.device, v.inode, v.size, self.offset] {
            body.extend(n.to_be_bytes());
        }
        for (seconds, nanos) in [v.mtime, v.ctime] {
            body.extend(seconds.to_be_bytes());
            body.extend(nanos.to_be_bytes());
        }
        seal(body, handle::print(root, resource).as_bytes())
    }

    /// `None` for a text that no caproot made, or that it made for another resource.
    #[must_use]
    pub fn parse(text: &str, root: &RootId, resource: &RelPath) -> Option<Self> {
        let body = open(text, handle::print(root, resource).as_bytes(), MAX_CHARS)?;
        let mut fields = Fields(&body);
        if fields.take::<1>()? != [CURSOR_TAG] {
            return None;
        }
        let mut number = || Some(u64::from_be_bytes(fields.take()?));
        let (device, inode, size, offset) = (number()?, number()?, number()?, number()?);
        let mut time =
            || Some((i64::from_be_bytes(fields.take()?), u32::from_be_bytes(fields.take()?)));
        let (mtime, ctime) = (time()?, time()?);
        let version = Version { device, inode, size, mtime, ctime };
        (fields.0.is_empty() && offset <= size).then_some(Self { version, offset })
    }
}

/// Where a paged list goes on: which revision of which daemon, and from which skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageToken {
    /// The daemon's epoch.
    pub epoch: u64,
    /// The revision that all pages show.
    pub revision: u64,
    /// The index in the request of the root to go on with.
    pub root: u32,
    /// The index of the skill in that root's catalog.
    pub skill: u32,
}

impl PageToken {
    /// Goes on at an index of a root in the request, and one of what that root has.
    #[must_use]
    pub fn at(epoch: u64, revision: u64, (root, item): (usize, usize)) -> Self {
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Self { epoch, revision, root: number(root), skill: number(item) }
    }

    /// The text for the caller, bound to the request by its `question` bytes.
    #[must_use]
    pub fn print(&self, question: &[u8]) -> String {
        let mut body = vec![PAGE_TAG];
        body.extend(self.epoch.to_be_bytes());
        body.extend(self.revision.to_be_bytes());
        body.extend(self.root.to_be_bytes());
        body.extend(self.skill.to_be_bytes());
        seal(body, question)
    }

    /// `None` for a text that no caproot made, or that it made for another question.
    #[must_use]
    pub fn parse(text: &str, question: &[u8]) -> Option<Self> {
        let body = open(text, question, MAX_CHARS)?;
        let mut fields = Fields(&body);
        if fields.take::<1>()? != [PAGE_TAG] {
            return None;
        }
        let token = Self {
            epoch: u64::from_be_bytes(fields.take()?),
            revision: u64::from_be_bytes(fields.take()?),
            root: u32::from_be_bytes(fields.take()?),
            skill: u32::from_be_bytes(fields.take()?),
        };
        fields.0.is_empty().then_some(token)
    }
}

/// Where a stream goes on: which revision of which daemon, of which question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResumeToken {
    /// The daemon's epoch.
    pub epoch: u64,
    /// The revision that the caller holds.
    pub revision: u64,
    /// Of the question: the caller may have another by now, which is no mistake.
    pub question: [u8; CHECK_BYTES],
}

impl ResumeToken {
    /// A token for a question, by its bytes.
    #[must_use]
    pub fn new(epoch: u64, revision: u64, question: &[u8]) -> Self {
        Self { epoch, revision, question: check(question, b"question") }
    }

    /// The text for the caller.
    #[must_use]
    pub fn print(&self) -> String {
        let mut body = vec![RESUME_TAG];
        body.extend(self.epoch.to_be_bytes());
        body.extend(self.revision.to_be_bytes());
        body.extend(self.question);
        seal(body, b"")
    }

    /// `None` for a text that no caproot made.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let body = open(text, b"", MAX_CHARS)?;
        let mut fields = Fields(&body);
        if fields.take::<1>()? != [RESUME_TAG] {
            return None;
        }
        let token = Self {
            epoch: u64::from_be_bytes(fields.take()?),
            revision: u64::from_be_bytes(fields.take()?),
            question: fields.take()?,
        };
        fields.0.is_empty().then_some(token)
    }
}

impl Bookmark {
    /// The text for the caller, bound to the request by its `question` bytes.
    #[must_use]
    pub fn print(&self, question: &[u8]) -> String {
        let mut body = vec![BOOKMARK_TAG, u8::from(self.truncated)];
        body.extend(self.seen.to_be_bytes());
        body.extend(self.last.as_bytes());
        seal(body, question)
    }

    /// `None` for a text that no caproot made, or that it made for another question.
    #[must_use]
    pub fn parse(text: &str, question: &[u8]) -> Option<Self> {
        let body = open(text, question, MAX_CHARS_WITH_PATH)?;
        let mut fields = Fields(&body);
        let [tag, truncated @ (0 | 1)] = fields.take()? else { return None };
        let seen = u64::from_be_bytes(fields.take()?);
        let last = RelPath::new(fields.0).filter(|last| !last.is_root())?;
        (tag == BOOKMARK_TAG).then_some(Self { last, seen, truncated: truncated == 1 })
    }
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }
}

fn seal(mut body: Vec<u8>, bound_to: &[u8]) -> String {
    let check = check(&body, bound_to);
    body.extend(check);
    URL_SAFE_NO_PAD.encode(body)
}

fn open(text: &str, bound_to: &[u8], max_chars: usize) -> Option<Vec<u8>> {
    if text.len() > max_chars {
        return None;
    }
    let mut body = URL_SAFE_NO_PAD.decode(text).ok()?;
    let stated = body.split_off(body.len().checked_sub(CHECK_BYTES)?);
    (stated == check(&body, bound_to)).then_some(body)
}

/// Tells a slip from a token; not a signature.
fn check(body: &[u8], bound_to: &[u8]) -> [u8; CHECK_BYTES] {
    let whole = Sha256::new().chain_update(body).chain_update(bound_to).finalize();
    let mut check = [0; CHECK_BYTES];
    check.copy_from_slice(&whole[..CHECK_BYTES]);
    check
}

#[cfg(test)]
mod tests {
    use super::{Bookmark, Cursor, PageToken, ResumeToken};
    use crate::domain::{RelPath, RootId, Version};
    use proptest::prelude::*;

    fn place(text: &str) -> (RootId, RelPath) {
        (RootId::new("r").expect("id"), RelPath::new(text.as_bytes()).expect("path"))
    }

    proptest! {
        #[test]
        fn cursors_come_back(device: u64, inode: u64, size: u64, cut: u64, s: i64, n: u32) {
            let version = Version { device, inode, size, mtime: (s, n), ctime: (!s, !n) };
            let cursor = Cursor { version, offset: cut.min(size) };
            let (root, path) = place("a/b");
            let text = cursor.print(&root, &path);
            prop_assert_eq!(Cursor::parse(&text, &root, &path), Some(cursor));
            let (root, other) = place("a/c");
            prop_assert_eq!(Cursor::parse(&text, &root, &other), None);
        }

        #[test]
        fn slips_are_told(at in 0usize..80, flip in 1u8..128) {
            let version = Version { device: 1, inode: 2, size: 3, mtime: (4, 5), ctime: (6, 7) };
            let (root, path) = place("a");
            let mut text = Cursor { version, offset: 1 }.print(&root, &path).into_bytes();
            let at = at % text.len();
            text[at] = (text[at] ^ flip) & 0x7f;
            let text = String::from_utf8(text).expect("ASCII");
            prop_assert_eq!(Cursor::parse(&text, &root, &path), None);
        }

        #[test]
        fn bookmarks_come_back(
            raw in proptest::collection::vec(any::<u8>(), 1..2_048), seen: u64, truncated: bool
        ) {
            if let Some(last) = RelPath::new(&raw) {
                let bookmark = Bookmark { last, seen, truncated };
                let text = bookmark.print(b"q");
                prop_assert_eq!(Bookmark::parse(&text, b"p"), None);
                prop_assert_eq!(PageToken::parse(&text, b"q"), None);
                prop_assert_eq!(Bookmark::parse(&text, b"q"), Some(bookmark));
            }
        }

        #[test]
        fn pages_come_back(epoch: u64, revision: u64, root: u32, skill: u32, garbage: String) {
            let token = PageToken { epoch, revision, root, skill };
            prop_assert_eq!(PageToken::parse(&token.print(b"q"), b"q"), Some(token));
            prop_assert_eq!(PageToken::parse(&token.print(b"q"), b"p"), None);
            prop_assert_eq!(PageToken::parse(&garbage, b"q"), None);
            let token = ResumeToken::new(epoch, revision, garbage.as_bytes());
            prop_assert_eq!(ResumeToken::parse(&token.print()), Some(token));
            prop_assert_eq!(ResumeToken::parse(&garbage), None);
        }
    }
}
