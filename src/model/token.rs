//! Cursors and page tokens: opaque to callers and validated in full when a caller sends one back.
//! Tokens are not secret and not signed: the daemon verifies all contents again, so that a forged
//! token gains nothing.

use super::{FileVersion, RelPath, RootId, handle};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

const CHECKSUM_BYTES: usize = 8;
const READ_CURSOR_TAG: u8 = 1;
const PAGE_TOKEN_TAG: u8 = 2;
const RESUME_TOKEN_TAG: u8 = 3;
const FILE_LIST_TOKEN_TAG: u8 = 4;
/// Maximum characters of a token that holds only numbers.
const MAX_TOKEN_CHARS: usize = 256;
/// Maximum characters of a token that holds a path. A path is shorter than its handle.
const MAX_PATH_TOKEN_CHARS: usize = 4_096;

/// Position in a paged read: a file version and a byte offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadCursor {
    /// Version of the file that the earlier pages were read from.
    pub version: FileVersion,
    /// Offset of the first byte of the next page.
    pub offset: u64,
}

impl ReadCursor {
    /// Encodes the cursor for the caller, bound to the resource.
    #[must_use]
    pub fn encode(&self, root: &RootId, resource: &RelPath) -> String {
        let v = &self.version;
        let mut body = vec![READ_CURSOR_TAG];
        for n in [v.device, v.inode, v.size, self.offset] {
            body.extend(n.to_be_bytes());
        }
        for (seconds, nanos) in [v.mtime, v.ctime] {
            body.extend(seconds.to_be_bytes());
            body.extend(nanos.to_be_bytes());
        }
        encode_with_checksum(body, handle::format_handle(root, resource).as_bytes())
    }

    /// Decodes a cursor. Returns `None` if the text is invalid or belongs to another resource.
    #[must_use]
    pub fn decode(text: &str, root: &RootId, resource: &RelPath) -> Option<Self> {
        let body = decode_checked(
            text,
            handle::format_handle(root, resource).as_bytes(),
            MAX_TOKEN_CHARS,
        )?;
        let mut fields = TokenReader(&body);
        if fields.take_bytes::<1>()? != [READ_CURSOR_TAG] {
            return None;
        }
        let mut number = || Some(u64::from_be_bytes(fields.take_bytes()?));
        let (device, inode, size, offset) = (number()?, number()?, number()?, number()?);
        let mut time = || {
            Some((
                i64::from_be_bytes(fields.take_bytes()?),
                u32::from_be_bytes(fields.take_bytes()?),
            ))
        };
        let (mtime, ctime) = (time()?, time()?);
        let version = FileVersion { device, inode, size, mtime, ctime };
        (fields.0.is_empty() && offset <= size).then_some(Self { version, offset })
    }
}

/// Position in a paged list: a revision of one daemon and an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageToken {
    /// Epoch of the daemon.
    pub epoch: u64,
    /// Revision that all pages show.
    pub revision: u64,
    /// Index of the next root in the request.
    pub root: u32,
    /// Index of the next item in the root's catalog.
    pub item: u32,
}

impl PageToken {
    /// Returns a token for the index of a root in the request and the index of an item of that
    /// root.
    #[must_use]
    pub fn at_item(epoch: u64, revision: u64, (root, item): (usize, usize)) -> Self {
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Self { epoch, revision, root: number(root), item: number(item) }
    }

    /// Encodes the token for the caller, bound to the bytes of the request's query.
    #[must_use]
    pub fn encode(&self, query: &[u8]) -> String {
        let mut body = vec![PAGE_TOKEN_TAG];
        body.extend(self.epoch.to_be_bytes());
        body.extend(self.revision.to_be_bytes());
        body.extend(self.root.to_be_bytes());
        body.extend(self.item.to_be_bytes());
        encode_with_checksum(body, query)
    }

    /// Decodes a token. Returns `None` if the text is invalid or belongs to another query.
    #[must_use]
    pub fn decode(text: &str, query: &[u8]) -> Option<Self> {
        let body = decode_checked(text, query, MAX_TOKEN_CHARS)?;
        let mut fields = TokenReader(&body);
        if fields.take_bytes::<1>()? != [PAGE_TOKEN_TAG] {
            return None;
        }
        let token = Self {
            epoch: u64::from_be_bytes(fields.take_bytes()?),
            revision: u64::from_be_bytes(fields.take_bytes()?),
            root: u32::from_be_bytes(fields.take_bytes()?),
            item: u32::from_be_bytes(fields.take_bytes()?),
        };
        fields.0.is_empty().then_some(token)
    }
}

/// Position in a stream: a revision of one daemon and a checksum of the query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResumeToken {
    /// Epoch of the daemon.
    pub epoch: u64,
    /// Revision that the caller has.
    pub revision: u64,
    /// Checksum of the request's query. The caller may resume with a different query, which is no
    /// error.
    pub query_checksum: [u8; CHECKSUM_BYTES],
}

impl ResumeToken {
    /// Creates a token for a query, given the bytes that identify the query.
    #[must_use]
    pub fn new(epoch: u64, revision: u64, query: &[u8]) -> Self {
        Self { epoch, revision, query_checksum: checksum(query, b"question") }
    }

    /// Encodes the token for the caller.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut body = vec![RESUME_TOKEN_TAG];
        body.extend(self.epoch.to_be_bytes());
        body.extend(self.revision.to_be_bytes());
        body.extend(self.query_checksum);
        encode_with_checksum(body, b"")
    }

    /// Decodes a token. Returns `None` if the text is invalid.
    #[must_use]
    pub fn decode(text: &str) -> Option<Self> {
        let body = decode_checked(text, b"", MAX_TOKEN_CHARS)?;
        let mut fields = TokenReader(&body);
        if fields.take_bytes::<1>()? != [RESUME_TOKEN_TAG] {
            return None;
        }
        let token = Self {
            epoch: u64::from_be_bytes(fields.take_bytes()?),
            revision: u64::from_be_bytes(fields.take_bytes()?),
            query_checksum: fields.take_bytes()?,
        };
        fields.0.is_empty().then_some(token)
    }
}

/// Position in a paged list of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileListToken {
    /// Last listed file, below the package.
    pub last_file: RelPath,
    /// How many entries were visited up to the last file.
    pub entries_seen: u64,
    /// Whether a limit omitted an entry up to the last file.
    pub truncated: bool,
}

impl FileListToken {
    /// Encodes the token for the caller, bound to the bytes of the request's query.
    #[must_use]
    pub fn encode(&self, query: &[u8]) -> String {
        let mut body = vec![FILE_LIST_TOKEN_TAG, u8::from(self.truncated)];
        body.extend(self.entries_seen.to_be_bytes());
        body.extend(self.last_file.as_bytes());
        encode_with_checksum(body, query)
    }

    /// Decodes a token. Returns `None` if the text is invalid or belongs to another query.
    #[must_use]
    pub fn decode(text: &str, query: &[u8]) -> Option<Self> {
        let body = decode_checked(text, query, MAX_PATH_TOKEN_CHARS)?;
        let mut fields = TokenReader(&body);
        let [tag, truncated @ (0 | 1)] = fields.take_bytes()? else { return None };
        let seen = u64::from_be_bytes(fields.take_bytes()?);
        let last = RelPath::new(fields.0).filter(|last| !last.is_root())?;
        (tag == FILE_LIST_TOKEN_TAG).then_some(Self {
            last_file: last,
            entries_seen: seen,
            truncated: truncated == 1,
        })
    }
}

/// Reader of a token's fixed-size fields.
struct TokenReader<'a>(&'a [u8]);

impl TokenReader<'_> {
    fn take_bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }
}

fn encode_with_checksum(mut body: Vec<u8>, bound_to: &[u8]) -> String {
    let check = checksum(&body, bound_to);
    body.extend(check);
    URL_SAFE_NO_PAD.encode(body)
}

fn decode_checked(text: &str, bound_to: &[u8], max_chars: usize) -> Option<Vec<u8>> {
    if text.len() > max_chars {
        return None;
    }
    let mut body = URL_SAFE_NO_PAD.decode(text).ok()?;
    let stated = body.split_off(body.len().checked_sub(CHECKSUM_BYTES)?);
    (stated == checksum(&body, bound_to)).then_some(body)
}

/// Returns a checksum that detects corrupted tokens. The checksum is not a signature.
fn checksum(body: &[u8], bound_to: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let whole = Sha256::new().chain_update(body).chain_update(bound_to).finalize();
    let mut check = [0; CHECKSUM_BYTES];
    check.copy_from_slice(&whole[..CHECKSUM_BYTES]);
    check
}

#[cfg(test)]
mod tests {
    use super::{FileListToken, PageToken, ReadCursor, ResumeToken};
    use crate::model::{FileVersion, RelPath, RootId};
    use proptest::prelude::*;

    fn resource(text: &str) -> (RootId, RelPath) {
        (RootId::new("r").expect("id"), RelPath::new(text.as_bytes()).expect("path"))
    }

    proptest! {
        #[test]
        fn cursors_round_trip(device: u64, inode: u64, size: u64, cut: u64, s: i64, n: u32) {
            let version = FileVersion { device, inode, size, mtime: (s, n), ctime: (!s, !n) };
            let cursor = ReadCursor { version, offset: cut.min(size) };
            let (root, path) = resource("a/b");
            let text = cursor.encode(&root, &path);
            prop_assert_eq!(ReadCursor::decode(&text, &root, &path), Some(cursor));
            let (root, other) = resource("a/c");
            prop_assert_eq!(ReadCursor::decode(&text, &root, &other), None);
        }

        #[test]
        fn corrupted_tokens_are_rejected(at in 0usize..80, flip in 1u8..128) {
            let version = FileVersion { device: 1, inode: 2, size: 3, mtime: (4, 5), ctime: (6, 7) };
            let (root, path) = resource("a");
            let mut text = ReadCursor { version, offset: 1 }.encode(&root, &path).into_bytes();
            let at = at % text.len();
            text[at] = (text[at] ^ flip) & 0x7f;
            let text = String::from_utf8(text).expect("ASCII");
            prop_assert_eq!(ReadCursor::decode(&text, &root, &path), None);
        }

        #[test]
        fn file_list_tokens_round_trip(
            raw in proptest::collection::vec(any::<u8>(), 1..2_048), seen: u64, truncated: bool
        ) {
            if let Some(last_file) = RelPath::new(&raw) {
                let token = FileListToken { last_file, entries_seen: seen, truncated };
                let text = token.encode(b"q");
                prop_assert_eq!(FileListToken::decode(&text, b"p"), None);
                prop_assert_eq!(PageToken::decode(&text, b"q"), None);
                prop_assert_eq!(FileListToken::decode(&text, b"q"), Some(token));
            }
        }

        #[test]
        fn page_and_resume_tokens_round_trip(epoch: u64, revision: u64, root: u32, skill: u32, garbage: String) {
            let token = PageToken { epoch, revision, root, item: skill };
            prop_assert_eq!(PageToken::decode(&token.encode(b"q"), b"q"), Some(token));
            prop_assert_eq!(PageToken::decode(&token.encode(b"q"), b"p"), None);
            prop_assert_eq!(PageToken::decode(&garbage, b"q"), None);
            let token = ResumeToken::new(epoch, revision, garbage.as_bytes());
            prop_assert_eq!(ResumeToken::decode(&token.encode()), Some(token));
            prop_assert_eq!(ResumeToken::decode(&garbage), None);
        }
    }
}
