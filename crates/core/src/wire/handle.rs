//! Handles: `skill://<root id>/<relative path>`, with exactly one valid form for each path.
//! Clients compare handles as text: one form makes that safe.

use super::limits::MAX_HANDLE_BYTES;
use super::{RelPath, RootId};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};
use std::borrow::Cow;
use std::cmp::Ordering;

/// Start of each handle.
pub const HANDLE_SCHEME: &str = "skill://";
/// Characters to percent-encode in a segment: all but the unreserved characters of RFC 3986.
const SEGMENT_ENCODE_SET: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
/// Characters to percent-encode in a path, whose `/` stay.
const PATH_ENCODE_SET: &AsciiSet = &SEGMENT_ENCODE_SET.remove(b'/');

/// Package or resource of one root. Parsing the formatted handle returns the same handle, and
/// formatting a parsed handle returns the same text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceHandle {
    /// Id of the root that lists the resource.
    pub root: RootId,
    /// Path below the root.
    pub path: RelPath,
}

impl ResourceHandle {
    /// Parses a handle in canonical form. The error states the rule that the text violates.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.len() > MAX_HANDLE_BYTES {
            return Err("is over 2,048 bytes");
        }
        let rest = text
            .strip_prefix(HANDLE_SCHEME)
            .ok_or("does not begin with `skill://`")?;

        let handle = match rest.split_once('/') {
            None => Self {
                root: decode_root_id(rest)?,
                path: RelPath::root(),
            },
            Some((id, path)) => Self {
                root: decode_root_id(id)?,
                path: decode_path(path).ok_or("has an empty, `.`, `..` or NUL segment")?,
            },
        };

        // A non-canonical form was parsed too, but is formatted differently.
        let left = handle_pieces(&handle.root, &handle.path)
            .try_fold(text, |left, piece| left.strip_prefix(piece));
        if left == Some("") {
            Ok(handle)
        } else {
            Err("is not in canonical form; send the handle exactly as listed")
        }
    }
}

/// Formats the handle of a path below a root in canonical form.
#[must_use]
pub fn format_handle(root: &RootId, path: &RelPath) -> String {
    let mut text = String::with_capacity(formatted_len(root, encoded_path_len(path)));
    text.extend(handle_pieces(root, path));
    text
}

/// Iterates over the pieces that form a handle.
fn handle_pieces<'a>(root: &'a RootId, path: &'a RelPath) -> impl Iterator<Item = &'a str> {
    let id = percent_encode(root.as_str().as_bytes(), SEGMENT_ENCODE_SET);
    let slash = (!path.is_root()).then_some("/");
    let path = percent_encode(path.as_bytes(), PATH_ENCODE_SET);
    [HANDLE_SCHEME]
        .into_iter()
        .chain(id)
        .chain(slash)
        .chain(path)
}

/// Formats the handle of an MCP server of a plugin: `PLUGIN_HANDLE#NAME`. No other handle has a `#`.
#[must_use]
pub fn format_server_handle(plugin: &str, name: &str) -> String {
    format!(
        "{plugin}#{}",
        percent_encode(name.as_bytes(), SEGMENT_ENCODE_SET)
    )
}

/// Formats the handle of a name below a root, for a client that must not show the paths of an executor.
#[must_use]
pub fn format_name_handle(root_id: &str, name: &str) -> String {
    let encode = |text: &str| percent_encode(text.as_bytes(), SEGMENT_ENCODE_SET).to_string();
    format!("{HANDLE_SCHEME}{}/{}", encode(root_id), encode(name))
}

/// Encodes a path as in a handle, without a leading `/`.
#[must_use]
pub fn encode_path(path: &RelPath) -> String {
    percent_encode(path.as_bytes(), PATH_ENCODE_SET).to_string()
}

/// Compares the handles of two paths of one root as bytes.
#[must_use]
pub fn compare_encoded(a: &RelPath, b: &RelPath) -> Ordering {
    // Each byte is encoded for itself, so that equal starts have equal encodings.
    let (a, b) = a.without_common_start(b);
    let bytes = |rest| percent_encode(rest, PATH_ENCODE_SET).flat_map(str::bytes);
    bytes(a).cmp(bytes(b))
}

/// How many bytes the handle of a path with this [`encoded_path_len`] has.
#[must_use]
pub fn formatted_len(root: &RootId, encoded_path_len: usize) -> usize {
    HANDLE_SCHEME.len() + percent_encoded_len(root.as_str().as_bytes()) + encoded_path_len
}

/// How many bytes a path has in a handle, including a `/` before each segment.
#[must_use]
pub fn encoded_path_len(path: &RelPath) -> usize {
    path.segments().map(|s| 1 + percent_encoded_len(s)).sum()
}

fn percent_encoded_len(raw: &[u8]) -> usize {
    percent_encode(raw, SEGMENT_ENCODE_SET).map(str::len).sum()
}

/// Returns the id of the root of a handle, whose path may be anything. `None` if the text is no
/// handle.
#[must_use]
pub fn root_id(handle: &str) -> Option<RootId> {
    let rest = handle.strip_prefix(HANDLE_SCHEME)?;
    decode_root_id(rest.split('/').next()?).ok()
}

/// Whether a handle belongs to the root with this id.
#[must_use]
pub fn is_of_root(handle: &str, id: &str) -> bool {
    root_id(handle).is_some_and(|root| root.as_str() == id)
}

/// Whether a handle is in canonical form, and belongs to the root with this id.
#[must_use]
pub fn is_canonical_of_root(handle: &str, id: &str) -> bool {
    ResourceHandle::parse(handle).is_ok_and(|handle| handle.root.as_str() == id)
}

/// Whether a handle is this directory, or lies below this directory.
#[must_use]
pub fn is_within(handle: &str, directory: &str) -> bool {
    handle
        .strip_prefix(directory)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the handles of the directories above a handle, nearest first, up to the root's handle.
pub fn parent_handles(handle: &str) -> impl Iterator<Item = &str> {
    let slashes = handle.char_indices().rev();
    let slashes = slashes.filter(|(at, c)| *c == '/' && *at >= HANDLE_SCHEME.len());
    slashes.map(|(at, _)| &handle[..at])
}

/// Returns the innermost of `packages` that is the handle or contains the handle.
#[must_use]
pub fn enclosing_package<'a>(
    handle: &str,
    packages: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let enclosing = packages
        .into_iter()
        .filter(|package| is_within(handle, package));
    enclosing.max_by_key(|package| package.len())
}

fn decode_root_id(text: &str) -> Result<RootId, &'static str> {
    let id = Cow::from(percent_decode(text.as_bytes()));
    let id = std::str::from_utf8(&id).map_err(|_| "has a root id that is not UTF-8")?;
    RootId::new(id).map_err(|_| "has an invalid root id")
}

fn decode_path(text: &str) -> Option<RelPath> {
    // `ResourceHandle::parse` rejects an encoded `/` when it compares with the canonical form.
    let raw = Cow::from(percent_decode(text.as_bytes()));
    RelPath::new(&raw).filter(|path| !path.is_root())
}

#[cfg(test)]
mod tests {
    use super::{
        ResourceHandle, enclosing_package, encoded_path_len, format_handle, format_server_handle,
        formatted_len, is_canonical_of_root, is_of_root, is_within, parent_handles, root_id,
    };
    use crate::wire::{RelPath, RootId};
    use proptest::prelude::*;

    #[test]
    fn only_canonical_handles_parse() {
        for good in [
            "skill://r",
            "skill://r/a",
            "skill://deploy-plugin%401/a%20b/SKILL.md",
            "skill://a%2Fb/c",
            "skill://r/%FF%0A",
            "skill://r/...",
        ] {
            assert!(ResourceHandle::parse(good).is_ok(), "{good}");
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
            assert!(ResourceHandle::parse(bad).is_err(), "{bad}");
        }
        assert!(ResourceHandle::parse(&format!("skill://r/{}", "x".repeat(2_038))).is_ok());
        assert!(ResourceHandle::parse(&format!("skill://r/{}", "x".repeat(2_039))).is_err());
    }

    #[test]
    fn only_a_server_has_a_fragment() {
        let handle = format_server_handle("skill://a/p", "my #1");
        assert_eq!(handle, "skill://a/p#my%20%231");
        assert!(ResourceHandle::parse(&handle).is_err());
        assert!(is_canonical_of_root("skill://a/p", "a"));
        for other in ["skill://b/p", "skill://a/p q", "skill://a/%70", &handle] {
            assert!(!is_canonical_of_root(other, "a"), "{other}");
        }
    }

    #[test]
    fn root_ids_are_decoded() {
        for (handle, id) in [("skill://a%40b%2Fc/x/y", "a@b/c"), ("skill://a", "a")] {
            assert_eq!(root_id(handle), RootId::new(id).ok(), "{handle}");
            assert!(
                is_of_root(handle, id) && !is_of_root(handle, "b"),
                "{handle}"
            );
        }
        for bad in [
            "",
            "a/b",
            "skill:/a",
            "skill://",
            "skill:///x",
            "skill://%FF",
            "skill://%00",
        ] {
            assert_eq!(root_id(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn innermost_package_is_found() {
        let packages = ["skill://r", "skill://r/a", "skill://r/a/b"];
        for (handle, package) in [
            ("skill://r", Some("skill://r")),
            ("skill://r/ab", Some("skill://r")),
            ("skill://r/a/x", Some("skill://r/a")),
            ("skill://r/a/b", Some("skill://r/a/b")),
            ("skill://r/a/b/SKILL.md", Some("skill://r/a/b")),
            ("skill://rr/a", None),
        ] {
            assert_eq!(enclosing_package(handle, packages), package, "{handle}");
        }
    }

    proptest! {
        /// Law: the text of handles has the same order of directories as their paths.
        #[test]
        fn parents_are_the_handles_of_parent_paths(
            id in "[a-z@/%]{1,8}", raw in "[a-z /%.]{0,12}", other in "[a-z /%.]{0,12}"
        ) {
            let path = |raw: &str| RelPath::new(raw.as_bytes());
            if let (Ok(root), Some(path), Some(other)) = (RootId::new(&id), path(&raw), path(&other)) {
                let handle = |path: &RelPath| format_handle(&root, path);
                let parents: Vec<_> = std::iter::successors(path.parent(), RelPath::parent)
                    .map(|parent| handle(&parent))
                    .collect();
                let text = handle(&path);
                prop_assert_eq!(parent_handles(&text).collect::<Vec<_>>(), parents);
                let is_below = path.strip_prefix(&other).is_some();
                prop_assert_eq!(is_within(&text, &handle(&other)), is_below);
                prop_assert_eq!(root_id(&text), Some(root));
            }
        }

        #[test]
        fn a_formatted_handle_parses_to_itself(id in "[^\\p{Cc}]{1,20}", raw in proptest::collection::vec(any::<u8>(), 0..60)) {
            if let (Ok(root), Some(path)) = (RootId::new(&id), RelPath::new(&raw)) {
                let text = format_handle(&root, &path);
                prop_assert_eq!(text.len(), formatted_len(&root, encoded_path_len(&path)));
                prop_assert_eq!(ResourceHandle::parse(&text), Ok(ResourceHandle { root, path }));
            }
        }

        #[test]
        fn a_parsed_handle_formats_to_the_same_text(text in "skill://[a-z%0-9A-F./?#:@-]{0,40}") {
            if let Ok(handle) = ResourceHandle::parse(&text) {
                prop_assert_eq!(format_handle(&handle.root, &handle.path), text);
            }
        }

        #[test]
        fn never_panics(text in any::<String>()) {
            let _ = ResourceHandle::parse(&text);
        }
    }
}
