//! Cursors of lists. A cursor has the sort key of the last entry, so that a list that changes
//! between two pages resumes at the same position. Cursors are opaque to clients, and are
//! validated.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// List of a cursor. A cursor of another list is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListKind {
    Resources,
    Skills,
    Directory,
    Prompts,
}

impl ListKind {
    fn mark(self) -> &'static str {
        match self {
            Self::Resources => "r",
            Self::Skills => "s",
            Self::Directory => "d",
            Self::Prompts => "p",
        }
    }
}

/// Encodes the cursor after an entry with this sort key.
pub fn encode_cursor(list: ListKind, (root, name, package): (usize, &str, &str)) -> String {
    URL_SAFE_NO_PAD.encode([list.mark(), &root.to_string(), name, package].join("\n"))
}

/// Decodes a cursor of this list. Returns `None` if the cursor is invalid.
pub fn decode_cursor(list: ListKind, cursor: &str) -> Option<(usize, String, String)> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()?;
    let mut parts = text.splitn(4, '\n');
    let mark = parts.next()?;
    let root = parts.next()?.parse().ok()?;
    let (name, package) = (parts.next()?.to_owned(), parts.next()?.to_owned());
    (mark == list.mark()).then_some((root, name, package))
}

#[cfg(test)]
mod tests {
    use super::{ListKind, decode_cursor, encode_cursor};
    use proptest::prelude::*;

    #[test]
    fn invalid_cursors_are_rejected() {
        let other = encode_cursor(ListKind::Skills, (0, "a", "b"));
        for bad in ["", "x", "!", "cw", "AAAA", other.as_str()] {
            assert_eq!(decode_cursor(ListKind::Resources, bad), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn encoded_cursor_is_decoded(root: usize, name in "[^\n]*", package: String) {
            let cursor = encode_cursor(ListKind::Directory, (root, &name, &package));
            prop_assert_eq!(decode_cursor(ListKind::Directory, &cursor), Some((root, name, package)));
        }

        #[test]
        fn any_text_is_handled(cursor: String) {
            let _ = decode_cursor(ListKind::Skills, &cursor);
        }
    }
}
