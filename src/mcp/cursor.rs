//! Cursors of lists: where the last page ended, by name, so that a list that changes between two
//! pages goes on at the same place. Opaque to clients, and checked when they come back.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// What a cursor is of; one of another list is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum List {
    Resources,
    Skills,
    Directory,
    Prompts,
}

impl List {
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
pub(super) fn behind(list: List, (root, name, package): (usize, &str, &str)) -> String {
    URL_SAFE_NO_PAD.encode([list.mark(), &root.to_string(), name, package].join("\n"))
}

/// The parts of a cursor of that list; `None` where it is none.
pub(super) fn parse(list: List, cursor: &str) -> Option<(usize, String, String)> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()?;
    let mut parts = text.splitn(4, '\n');
    let mark = parts.next()?;
    let root = parts.next()?.parse().ok()?;
    let (name, package) = (parts.next()?.to_owned(), parts.next()?.to_owned());
    (mark == list.mark()).then_some((root, name, package))
}

#[cfg(test)]
mod tests {
    use super::{List, behind, parse};
    use proptest::prelude::*;

    #[test]
    fn garbage_is_no_cursor() {
        let other = behind(List::Skills, (0, "a", "b"));
        for bad in ["", "x", "!", "cw", "AAAA", other.as_str()] {
            assert_eq!(parse(List::Resources, bad), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_made_is_read(root: usize, name in "[^\n]*", package: String) {
            let cursor = behind(List::Directory, (root, &name, &package));
            prop_assert_eq!(parse(List::Directory, &cursor), Some((root, name, package)));
        }

        #[test]
        fn anything_is_read_or_not(cursor: String) {
            let _ = parse(List::Skills, &cursor);
        }
    }
}
