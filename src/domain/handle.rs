//! Handles: `skill://<root id>/<relative path>`, in exactly one spelling. Leaves what a handle
//! points at to the catalog and to `disk`.

use super::limits::MAX_HANDLE_BYTES;
use super::{RelPath, RootId};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};
use std::borrow::Cow;
use std::cmp::Ordering;

const SCHEME: &str = "skill://";
/// Everything but the unreserved characters of RFC 3986.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The same for several segments at once, whose `/` stay.
const PATH: &AsciiSet = &ENCODED.remove(b'/');

/// A package or resource of one root. Law: `parse(print(h)) == h`, and `print(parse(s)) == s` for
/// every `s` that parses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handle {
    /// The root that listed it.
    pub root: RootId,
    /// Where it is below that root.
    pub path: RelPath,
}

impl Handle {
    /// Reads the canonical spelling and no other; the error says what is wrong.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.len() > MAX_HANDLE_BYTES {
            return Err("is over 2,048 bytes");
        }
        let rest = text.strip_prefix(SCHEME).ok_or("does not begin with `skill://`")?;
        let (id, path) = match rest.split_once('/') {
            None => (rest, None),
            Some((id, path)) => (id, Some(path)),
        };
        let id = Cow::from(percent_decode(id.as_bytes()));
        let id = std::str::from_utf8(&id).map_err(|_| "its root id is not UTF-8")?;
        let root = RootId::new(id).map_err(|_| "its root id is not one")?;
        let path = match path {
            None => RelPath::root(),
            Some(path) => decode_path(path).ok_or("has an empty, `.`, `..` or NUL segment")?,
        };
        let handle = Self { root, path };
        // One spelling only: whatever a lenient reader let through prints differently.
        let left = pieces(&handle.root, &handle.path)
            .try_fold(text, |left, piece| left.strip_prefix(piece));
        if left == Some("") {
            Ok(handle)
        } else {
            Err("is not in its canonical spelling; send it back exactly as it was listed")
        }
    }
}

/// The canonical spelling of a place below a root.
#[must_use]
pub fn print(root: &RootId, path: &RelPath) -> String {
    let mut text = String::with_capacity(printed_len(root, encoded_len(path)));
    text.extend(pieces(root, path));
    text
}

/// What [`print()`] puts together.
fn pieces<'a>(root: &'a RootId, path: &'a RelPath) -> impl Iterator<Item = &'a str> {
    let id = percent_encode(root.as_str().as_bytes(), ENCODED);
    let slash = (!path.is_root()).then_some("/");
    let path = percent_encode(path.as_bytes(), PATH);
    [SCHEME].into_iter().chain(id).chain(slash).chain(path)
}

/// How a path is spelled in a handle, without a `/` before it.
#[must_use]
pub fn encode(path: &RelPath) -> String {
    percent_encode(path.as_bytes(), PATH).to_string()
}

/// The order of two handles of one root, as bytes.
#[must_use]
pub fn order(a: &RelPath, b: &RelPath) -> Ordering {
    let bytes = |path| percent_encode(RelPath::as_bytes(path), PATH).flat_map(str::bytes);
    bytes(a).cmp(bytes(b))
}

/// How many bytes [`print()`] gives for a path of this [`encoded_len`].
#[must_use]
pub fn printed_len(root: &RootId, encoded_path_len: usize) -> usize {
    SCHEME.len() + encoded_bytes(root.as_str().as_bytes()) + encoded_path_len
}

/// How many bytes a path takes in a handle, each segment's `/` included.
#[must_use]
pub fn encoded_len(path: &RelPath) -> usize {
    path.segments().map(|s| 1 + encoded_bytes(s)).sum()
}

fn encoded_bytes(raw: &[u8]) -> usize {
    raw.iter().map(|b| if b.is_ascii_alphanumeric() || b"-._~".contains(b) { 1 } else { 3 }).sum()
}

fn decode_path(text: &str) -> Option<RelPath> {
    // An encoded `/` is found out by how the path prints.
    let raw = Cow::from(percent_decode(text.as_bytes()));
    RelPath::new(&raw).filter(|path| !path.is_root())
}

#[cfg(test)]
mod tests {
    use super::{Handle, encoded_len, print, printed_len};
    use crate::domain::{RelPath, RootId};
    use proptest::prelude::*;

    #[test]
    fn spellings() {
        for good in [
            "skill://r",
            "skill://r/a",
            "skill://deploy-plugin%401/a%20b/SKILL.md",
            "skill://a%2Fb/c",
            "skill://r/%FF%0A",
            "skill://r/...",
        ] {
            assert!(Handle::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "skill:",
            "skill://",
            "skill:///a",
            "SKILL://r/a",
            "http://r/a",
            "skill://r/",
            "skill://r//a",
            "skill://r/a/",
            "skill://r/./a",
            "skill://r/../a",
            "skill://r/%2E",
            "skill://r/%2e%2e",
            "skill://r/%2F",
            "skill://r/a%2Fb",
            "skill://r/%00",
            "skill://r/%41",
            "skill://r/%ff",
            "skill://r/a?q",
            "skill://r/a#f",
            "skill://u@r/a",
            "skill://r:1/a",
            "skill://r/a b",
            "skill://r/ü",
            "skill://r/a\n",
            "skill://r/%",
            "skill://r/%4",
            "skill://%FF/a",
            "skill://./a",
            "skill://r/a%",
        ] {
            assert!(Handle::parse(bad).is_err(), "{bad}");
        }
        assert!(Handle::parse(&format!("skill://r/{}", "x".repeat(2_038))).is_ok());
        assert!(Handle::parse(&format!("skill://r/{}", "x".repeat(2_039))).is_err());
    }

    proptest! {
        #[test]
        fn print_then_parse(id in "[^\\p{Cc}]{1,20}", raw in proptest::collection::vec(any::<u8>(), 0..60)) {
            if let (Ok(root), Some(path)) = (RootId::new(&id), RelPath::new(&raw)) {
                let text = print(&root, &path);
                prop_assert_eq!(text.len(), printed_len(&root, encoded_len(&path)));
                prop_assert_eq!(Handle::parse(&text), Ok(Handle { root, path }));
            }
        }

        #[test]
        fn parse_then_print(text in "skill://[a-z%0-9A-F./?#:@-]{0,40}") {
            if let Ok(handle) = Handle::parse(&text) {
                prop_assert_eq!(print(&handle.root, &handle.path), text);
            }
        }

        #[test]
        fn never_panics(text in any::<String>()) {
            let _ = Handle::parse(&text);
        }
    }
}
