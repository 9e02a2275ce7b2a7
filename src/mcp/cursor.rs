//! Cursors of lists: where the last page ended, by name, so that a list that changes between two
//! pages goes on at the same place. Opaque to clients, and checked when they come back.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// What a cursor is of; one of another list is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListKind {
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

/// The cursor behind a skill, by what lists are in the order of.
pub(super) fn encode_cursor(list: ListKind, (root, name, package): (usize, &str, &str)) -> String {
    URL_SAFE_NO_PAD.encode([list.mark(), &root.to_string(), name, package].join("\n"))
}

/// The parts of a cursor of that list; `None` where it is none.
pub(super) fn decode_cursor(list: ListKind, cursor: &str) -> Option<(usize, String, String)> {
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
    fn garbage_is_no_cursor() {
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
