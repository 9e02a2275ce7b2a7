//! Relative paths below a root, in raw bytes.

use crate::text::EscapedBytes;
use std::fmt;
use std::sync::Arc;

/// Path relative to a root: segments joined by `/`. A segment is not empty, is neither `.` nor
/// `..`, and contains no NUL. The root itself is the empty path. Orders by bytes, segment by
/// segment. Cheap to clone, because a scan keeps each path several times.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct RelPath(Arc<[u8]>);

impl RelPath {
    /// Returns the root itself.
    #[must_use]
    pub fn root() -> Self {
        Self::default()
    }

    /// Creates a path from raw bytes, or returns `None` if they are not a valid path.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let is_valid = bytes.is_empty() || bytes.split(|b| *b == b'/').all(is_segment);
        is_valid.then(|| Self(bytes.into()))
    }

    /// Appends a segment, or returns `None` if `name` is not a valid segment.
    #[must_use]
    pub fn join(&self, name: &[u8]) -> Option<Self> {
        let slash: &[u8] = if self.is_root() { b"" } else { b"/" };
        is_segment(name).then(|| Self([&*self.0, slash, name].concat().into()))
    }

    /// Appends all segments of `below`.
    #[must_use]
    pub fn join_path(&self, below: &Self) -> Self {
        if self.is_root() {
            return below.clone();
        }
        if below.is_root() {
            return self.clone();
        }
        Self([&*self.0, b"/", &*below.0].concat().into())
    }

    /// Whether the path is the root itself.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the raw bytes, without a leading `/`.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns both paths from their first different byte on.
    pub(super) fn without_common_start<'a>(&'a self, other: &'a Self) -> (&'a [u8], &'a [u8]) {
        let pairs = self.0.iter().zip(&*other.0);
        let common = pairs.take_while(|(own, other)| own == other).count();
        (&self.0[common..], &other.0[common..])
    }

    /// Iterates over the segments, outermost first.
    #[must_use]
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.split(|b| *b == b'/').filter(|s| !s.is_empty())
    }

    /// How many segments the path has.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.segments().count()
    }

    /// Returns the last segment, or `None` for the root.
    #[must_use]
    pub fn file_name(&self) -> Option<&[u8]> {
        self.segments().next_back()
    }

    /// Returns the path without the last segment, or `None` for the root.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        if self.is_root() {
            return None;
        }
        let end = self.0.iter().rposition(|b| *b == b'/').unwrap_or(0);
        Some(Self(self.0[..end].into()))
    }

    /// Returns the path below `dir`, or `None` if the path is neither `dir` nor below `dir`.
    #[must_use]
    pub fn strip_prefix(&self, dir: &Self) -> Option<Self> {
        if dir.is_root() {
            return Some(self.clone());
        }
        let rest = self.0.strip_prefix(&*dir.0)?;
        match rest.split_first() {
            None => Some(Self::root()),
            Some((b'/', rest)) => Some(Self(rest.into())),
            Some(_) => None,
        }
    }
}

fn is_segment(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.iter().any(|b| matches!(b, 0 | b'/'))
}

impl PartialOrd for RelPath {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RelPath {
    /// Compares by segment, so that the entries of a directory stay together: `a/b` is less than
    /// `a-b`.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        // A path contains no NUL, so that no byte ranks below the separator.
        let rank = |path: &[u8]| {
            let first = path.first().copied();
            first.map(|byte| if byte == b'/' { 0 } else { byte })
        };
        let (own, other) = self.without_common_start(other);
        rank(own).cmp(&rank(other))
    }
}

impl fmt::Display for RelPath {
    /// Formats the path for people: escaped, and `.` for the root.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() {
            f.write_str(".")
        } else {
            EscapedBytes(&self.0).fmt(f)
        }
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::RelPath;
    use proptest::prelude::*;

    fn rel(text: &str) -> RelPath {
        RelPath::new(text.as_bytes()).expect(text)
    }

    #[test]
    fn invalid_paths_are_rejected() {
        for bad in ["/", "/a", "a/", "a//b", ".", "..", "a/..", "a/./b", "a\0b"] {
            assert_eq!(RelPath::new(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn paths_split_and_join() {
        assert_eq!(rel("a/b").parent(), Some(rel("a")));
        assert_eq!(rel("a").parent(), Some(RelPath::root()));
        assert_eq!(RelPath::root().parent(), None);
        assert_eq!(rel("a/b/c").strip_prefix(&rel("a")), Some(rel("b/c")));
        assert_eq!(rel("ab").strip_prefix(&rel("a")), None);
        assert_eq!(rel("a").strip_prefix(&rel("a")), Some(RelPath::root()));
        assert_eq!(rel("a").join_path(&rel("b/c")), rel("a/b/c"));
    }

    #[test]
    fn entries_of_a_directory_stay_together() {
        assert!(rel("a/b") < rel("a-b"));
        assert!(RelPath::root() < rel("a"));
    }

    proptest! {
        #[test]
        fn paths_order_like_their_segments(a in "[a\u{1}~é/-]{0,8}", b in "[a\u{1}~é/-]{0,8}") {
            if let (Some(a), Some(b)) = (RelPath::new(a.as_bytes()), RelPath::new(b.as_bytes())) {
                prop_assert_eq!(a.cmp(&b), a.segments().cmp(b.segments()));
            }
        }
    }
}
