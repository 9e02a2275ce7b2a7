//! The cursor of a page of a server's file: where it begins, of which file, and of which version of it.
//! Opaque to whoever gets it, and checked. Pure.

use super::fetch::File;
use crate::session::source::TextPage;
use crate::session::{Code, Refusal};
use rmcp::model::sha256_digest;

/// Characters of a digest that stand for it, behind `sha256:`.
const TAG: std::ops::Range<usize> = 7..31;

/// Where a page begins.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Begin {
    at: usize,
    /// The version that it is of; `None` at first.
    version: Option<String>,
}

/// Reads a cursor; an empty one is the beginning. `None`: it is none of this file's.
pub(super) fn parse(cursor: &str, uri: &str) -> Option<Begin> {
    if cursor.is_empty() {
        return Some(Begin { at: 0, version: None });
    }
    let mut parts = cursor.splitn(3, '-');
    let (at, whose, version) = (parts.next()?, parts.next()?, parts.next()?);
    let plain = at.len() <= 7 && at.bytes().all(|b| b.is_ascii_digit());
    (plain && whose == tag(&sha256_digest(uri.as_bytes())))
        .then(|| Some(Begin { at: at.parse().ok()?, version: Some(version.to_owned()) }))?
}

fn tag(digest: &str) -> &str {
    digest.get(TAG).unwrap_or(digest)
}

impl Begin {
    /// The page of a file that begins here.
    pub(super) fn page(
        self,
        uri: &str,
        resource: String,
        file: &File,
        max_bytes: usize,
    ) -> Result<TextPage, Refusal> {
        if self.version.is_some_and(|version| version != tag(&file.digest)) {
            let message = "the file changed since the cursor was made";
            return Err(Refusal::said(Code::ResourceChanged, message));
        }
        let text = &*file.text;
        if self.at > text.len() || !text.is_char_boundary(self.at) {
            return Err(Refusal::said(Code::InvalidCursor, "the cursor is none of this file"));
        }
        let end = text.floor_char_boundary(self.at.saturating_add(max_bytes));
        let next_cursor = if end < text.len() {
            format!("{end}-{}-{}", tag(&sha256_digest(uri.as_bytes())), tag(&file.digest))
        } else {
            String::new()
        };
        Ok(TextPage { resource, contents: text[self.at..end].to_owned(), next_cursor })
    }
}

#[cfg(test)]
mod tests {
    use super::{Begin, File, parse};
    use crate::session::Code;
    use proptest::prelude::*;
    use rmcp::model::sha256_digest;

    const URI: &str = "skill://a/SKILL.md";

    fn file(text: &str) -> File {
        File { digest: sha256_digest(text.as_bytes()), text: text.into() }
    }

    #[test]
    fn a_cursor_of_something_else() {
        let text = file("äbcdefgh");
        let first = Begin { at: 0, version: None }.page(URI, String::new(), &text, 4);
        let first = first.expect("a page");
        assert_eq!(first.contents, "äbc");
        assert_eq!(parse(&first.next_cursor, "skill://b/SKILL.md"), None);
        for bad in ["x", "1", "1-2", "1-2-3", "-1--", "99999999999999999999-a-b"] {
            assert_eq!(parse(bad, URI), None, "{bad}");
        }
        let begin = parse(&first.next_cursor, URI).expect("its own");
        let changed = begin.page(URI, String::new(), &file("another"), 4);
        assert_eq!(changed.expect_err("changed").code(), Code::ResourceChanged);
        // Within a character.
        let forged = first.next_cursor.replacen('4', "1", 1);
        let begin = parse(&forged, URI).expect("of this file");
        let refused = begin.page(URI, String::new(), &text, 4);
        assert_eq!(refused.expect_err("no place").code(), Code::InvalidCursor);
    }

    proptest! {
        #[test]
        fn pages_join_to_the_file(text in "(?s).{0,200}", bytes in 4_usize..40) {
            let file = file(&text);
            let (mut joined, mut cursor) = (String::new(), String::new());
            loop {
                let begin = parse(&cursor, URI).expect("its own");
                let page = begin.page(URI, String::new(), &file, bytes).expect("a page");
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
