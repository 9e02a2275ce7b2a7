//! The cursor of a page of a server's file: where it begins, of which file, and of which version of it.
//! Opaque to whoever gets it, and checked. Pure.

use super::fetch::VerifiedFile;
use crate::session::source::TextPage;
use crate::session::{ToolError, ToolErrorCode};
use rmcp::model::sha256_digest;

/// Characters of a digest that stand for it, behind `sha256:`.
const TAG_RANGE: std::ops::Range<usize> = 7..31;

/// Where a page begins.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct McpFileCursor {
    offset: usize,
    /// The version that it is of; `None` at first.
    version: Option<String>,
}

/// Reads a cursor; an empty one is the beginning. `None`: it is none of this file's.
pub(super) fn parse_cursor(cursor: &str, uri: &str) -> Option<McpFileCursor> {
    if cursor.is_empty() {
        return Some(McpFileCursor { offset: 0, version: None });
    }
    let mut parts = cursor.splitn(3, '-');
    let (at, whose, version) = (parts.next()?, parts.next()?, parts.next()?);
    let plain = at.len() <= 7 && at.bytes().all(|b| b.is_ascii_digit());
    (plain && whose == digest_tag(&sha256_digest(uri.as_bytes()))).then(|| {
        Some(McpFileCursor { offset: at.parse().ok()?, version: Some(version.to_owned()) })
    })?
}

fn digest_tag(digest: &str) -> &str {
    digest.get(TAG_RANGE).unwrap_or(digest)
}

impl McpFileCursor {
    /// The page of a file that begins here.
    pub(super) fn cut_page(
        self,
        uri: &str,
        resource: String,
        file: &VerifiedFile,
        max_bytes: usize,
    ) -> Result<TextPage, ToolError> {
        if self.version.is_some_and(|version| version != digest_tag(&file.digest)) {
            let message = "the file changed since the cursor was made";
            return Err(ToolError::from_code(ToolErrorCode::ResourceChanged, message));
        }
        let text = &*file.text;
        if self.offset > text.len() || !text.is_char_boundary(self.offset) {
            return Err(ToolError::from_code(
                ToolErrorCode::InvalidCursor,
                "the cursor is none of this file",
            ));
        }
        let end = text.floor_char_boundary(self.offset.saturating_add(max_bytes));
        let next_cursor = if end < text.len() {
            format!(
                "{end}-{}-{}",
                digest_tag(&sha256_digest(uri.as_bytes())),
                digest_tag(&file.digest)
            )
        } else {
            String::new()
        };
        Ok(TextPage { resource, contents: text[self.offset..end].to_owned(), next_cursor })
    }
}

#[cfg(test)]
mod tests {
    use super::{McpFileCursor, VerifiedFile, parse_cursor};
    use crate::session::ToolErrorCode;
    use proptest::prelude::*;
    use rmcp::model::sha256_digest;

    const URI: &str = "skill://a/SKILL.md";

    fn file(text: &str) -> VerifiedFile {
        VerifiedFile { digest: sha256_digest(text.as_bytes()), text: text.into() }
    }

    #[test]
    fn a_cursor_of_something_else() {
        let text = file("äbcdefgh");
        let first =
            McpFileCursor { offset: 0, version: None }.cut_page(URI, String::new(), &text, 4);
        let first = first.expect("a page");
        assert_eq!(first.contents, "äbc");
        assert_eq!(parse_cursor(&first.next_cursor, "skill://b/SKILL.md"), None);
        for bad in ["x", "1", "1-2", "1-2-3", "-1--", "99999999999999999999-a-b"] {
            assert_eq!(parse_cursor(bad, URI), None, "{bad}");
        }
        let begin = parse_cursor(&first.next_cursor, URI).expect("its own");
        let changed = begin.cut_page(URI, String::new(), &file("another"), 4);
        assert_eq!(changed.expect_err("changed").code(), ToolErrorCode::ResourceChanged);
        // Within a character.
        let forged = first.next_cursor.replacen('4', "1", 1);
        let begin = parse_cursor(&forged, URI).expect("of this file");
        let refused = begin.cut_page(URI, String::new(), &text, 4);
        assert_eq!(refused.expect_err("no place").code(), ToolErrorCode::InvalidCursor);
    }

    proptest! {
        #[test]
        fn pages_join_to_the_file(text in "(?s).{0,200}", bytes in 4_usize..40) {
            let file = file(&text);
            let (mut joined, mut cursor) = (String::new(), String::new());
            loop {
                let begin = parse_cursor(&cursor, URI).expect("its own");
                let page = begin.cut_page(URI, String::new(), &file, bytes).expect("a page");
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
