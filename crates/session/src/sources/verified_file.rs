//! Text file that was fetched whole and passed verification, its pages, and the cache of such files.

use super::TextPage;
use crate::{ToolError, ToolErrorCode};
use caproot_core::sync::{Mutex, WeightedLru};
use caproot_core::wire::ContentDigest;
use caproot_core::wire::cursor::{Cursor, CursorKind, CursorReader, CursorWriter, checksum};
use std::sync::Arc;

/// Bytes that an entry of a cache takes next to its text.
const ENTRY_BYTES: usize = 256;

/// Text file that passed verification.
#[derive(Debug, Clone)]
pub struct VerifiedFile {
    pub digest: ContentDigest,
    pub text: Arc<str>,
}

/// Position in a version of a file where a page begins. Bound to the handle of the file.
#[derive(Debug)]
pub struct VerifiedFileCursor {
    offset: usize,
    /// Checksum of the digest of the file.
    version: u64,
}

impl Cursor for VerifiedFileCursor {
    const KIND: CursorKind = CursorKind::VerifiedFile;

    fn write_fields(&self, fields: &mut CursorWriter) {
        fields.write_number(self.offset as u64);
        fields.write_hash(self.version);
    }

    fn read_fields(fields: &mut CursorReader<'_>) -> Option<Self> {
        Some(Self {
            offset: fields.read_small()?,
            version: fields.read_hash()?,
        })
    }
}

/// Decodes the cursor of a file; `None` for an empty text, which is the beginning.
pub fn parse_cursor(text: &str, resource: &str) -> Result<Option<VerifiedFileCursor>, ToolError> {
    if text.is_empty() {
        return Ok(None);
    }
    VerifiedFileCursor::decode(text, resource.as_bytes())
        .map(Some)
        .ok_or_else(invalid_cursor)
}

fn invalid_cursor() -> ToolError {
    ToolError::from_code(
        ToolErrorCode::InvalidCursor,
        "the cursor is not of this file",
    )
}

impl VerifiedFile {
    /// Returns the page at a cursor; `None` is the beginning.
    pub fn cut_page(
        &self,
        cursor: Option<VerifiedFileCursor>,
        resource: &str,
        max_bytes: usize,
    ) -> Result<TextPage, ToolError> {
        let version = checksum([&self.digest.0[..]]);
        let begin = cursor.unwrap_or(VerifiedFileCursor { offset: 0, version });
        if begin.version != version {
            return Err(ToolError::from_code(
                ToolErrorCode::ResourceChanged,
                "the file changed since the cursor was made",
            ));
        }

        let rest = self.text.get(begin.offset..).ok_or_else(invalid_cursor)?;
        let contents = &rest[..rest.floor_char_boundary(max_bytes)];
        Ok(TextPage {
            resource: resource.to_owned(),
            contents: contents.to_owned(),
            next_cursor: if contents.len() == rest.len() {
                String::new()
            } else {
                let offset = begin.offset + contents.len();
                VerifiedFileCursor { offset, version }.encode(resource.as_bytes())
            },
            digest: self.digest.to_string(),
        })
    }
}

/// Verified contents by digest, bounded by their bytes.
#[derive(Debug)]
pub struct ContentCache(Mutex<WeightedLru<ContentDigest, Arc<str>>>);

impl ContentCache {
    pub fn new(max_bytes: usize) -> Self {
        Self(Mutex::new(WeightedLru::new(max_bytes, usize::MAX)))
    }

    pub fn get(&self, digest: ContentDigest) -> Option<VerifiedFile> {
        let text = self.0.lock().get(&digest)?.clone();
        Some(VerifiedFile { digest, text })
    }

    pub fn put(&self, file: &VerifiedFile) {
        self.0.lock().put(
            file.digest,
            file.text.clone(),
            file.text.len() + ENTRY_BYTES,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::{VerifiedFile, VerifiedFileCursor, parse_cursor};
    use crate::ToolErrorCode;
    use caproot_core::wire::ContentDigest;
    use caproot_core::wire::cursor::Cursor as _;
    use proptest::prelude::*;

    const URI: &str = "skill://a/SKILL.md";

    fn file(text: &str) -> VerifiedFile {
        VerifiedFile {
            digest: ContentDigest::of(text),
            text: text.into(),
        }
    }

    #[test]
    fn a_cursor_of_another_file_or_version_is_rejected() {
        let text = file("äbcdefgh");
        let first = text.cut_page(None, URI, 4).expect("a page");
        assert_eq!(first.contents, "äbc");
        for (cursor, uri) in [(&*first.next_cursor, "skill://b/SKILL.md"), ("x", URI)] {
            let error = parse_cursor(cursor, uri).expect_err("another file");
            assert_eq!(error.code(), ToolErrorCode::InvalidCursor);
        }
        let begin = parse_cursor(&first.next_cursor, URI).expect("a cursor of this file");
        let changed = file("another").cut_page(begin, URI, 4);
        assert_eq!(
            changed.expect_err("changed").code(),
            ToolErrorCode::ResourceChanged
        );
        // The offset is inside a character, or after the end.
        let next =
            VerifiedFileCursor::decode(&first.next_cursor, URI.as_bytes()).expect("a cursor");
        for offset in [1, 100] {
            let forged = VerifiedFileCursor {
                offset,
                version: next.version,
            };
            let result = text.cut_page(Some(forged), URI, 4);
            let error = result.expect_err("an invalid offset");
            assert_eq!(error.code(), ToolErrorCode::InvalidCursor);
        }
    }

    proptest! {
        #[test]
        fn pages_join_to_the_file(text in "(?s).{0,200}", bytes in 4_usize..40) {
            let file = file(&text);
            let (mut joined, mut cursor) = (String::new(), String::new());
            loop {
                let begin = parse_cursor(&cursor, URI).expect("a cursor of this file");
                let page = file.cut_page(begin, URI, bytes).expect("a page");
                prop_assert!(page.contents.len() <= bytes);
                joined.push_str(&page.contents);
                cursor = page.next_cursor;
                if cursor.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(joined, text);
        }
    }
}
