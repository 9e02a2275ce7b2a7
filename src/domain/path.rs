//! A place below a root: raw bytes, relative, never leaving it. Leaves resolving to `disk`.

use std::fmt;
use std::sync::Arc;

/// A path relative to a root: segments joined by `/`, each non-empty, without NUL or `/`, and
/// neither `.` nor `..`. The root itself is the empty path. Orders by bytes, segment by segment. Cheap
/// to clone: a search holds each path in several places.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct RelPath(Arc<[u8]>);

impl RelPath {
    /// The root itself.
    #[must_use]
    pub fn root() -> Self {
        Self::default()
    }

    /// Checks raw bytes; `None` where they break a rule of the type.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let ok = bytes.is_empty() || bytes.split(|b| *b == b'/').all(is_segment);
        ok.then(|| Self(bytes.into()))
    }

    /// This path and one segment more; `None` where `name` is no segment.
    #[must_use]
    pub fn join(&self, name: &[u8]) -> Option<Self> {
        if !is_segment(name) {
            return None;
        }
        let mut bytes = Vec::with_capacity(self.0.len() + 1 + name.len());
        bytes.extend_from_slice(&self.0);
        if !bytes.is_empty() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(name);
        Some(Self(bytes.into()))
    }

    /// This path with all of `below` behind it.
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

    /// Whether this is the root itself.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The raw bytes, without a leading `/`.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The segments, outermost first; none for the root.
    #[must_use]
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.split(|b| *b == b'/').filter(|s| !s.is_empty())
    }

    /// How many segments: 0 for the root.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.segments().count()
    }

    /// The last segment; `None` for the root.
    #[must_use]
    pub fn file_name(&self) -> Option<&[u8]> {
        self.segments().next_back()
    }

    /// All but the last segment; `None` for the root.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        if self.is_root() {
            return None;
        }
        let cut = self.0.iter().rposition(|b| *b == b'/').unwrap_or(0);
        Some(Self(self.0[..cut].into()))
    }

    /// What is left of this path below `dir`; `None` where it is not `dir` or below it.
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
    !name.is_empty() && name != b"." && name != b".." && !name.iter().any(|b| matches!(b, 0 | b'/'))
}

impl PartialOrd for RelPath {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RelPath {
    /// By segments, so that siblings stay together: `a/b` comes before `a-b`.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        // No other byte is below the one that separates segments: there is no NUL.
        let rank = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
        self.0.iter().map(rank).cmp(other.0.iter().map(rank))
    }
}

impl fmt::Display for RelPath {
    /// For people: `.` for the root, bytes that are not UTF-8 replaced, control characters escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() {
            return f.write_str(".");
        }
        for c in String::from_utf8_lossy(&self.0).chars() {
            if c.is_control() {
                write!(f, "{}", c.escape_default())?;
            } else {
                write!(f, "{c}")?;
            }
        }
        Ok(())
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
    fn refuses_what_could_leave_or_confuse() {
        for bad in ["/", "/a", "a/", "a//b", ".", "..", "a/..", "a/./b", "a\0b"] {
            assert_eq!(RelPath::new(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn parents_and_remainders() {
        assert_eq!(rel("a/b").parent(), Some(rel("a")));
        assert_eq!(rel("a").parent(), Some(RelPath::root()));
        assert_eq!(RelPath::root().parent(), None);
        assert_eq!(rel("a/b/c").strip_prefix(&rel("a")), Some(rel("b/c")));
        assert_eq!(rel("ab").strip_prefix(&rel("a")), None);
        assert_eq!(rel("a").strip_prefix(&rel("a")), Some(RelPath::root()));
        assert_eq!(rel("a").join_path(&rel("b/c")), rel("a/b/c"));
    }

    #[test]
    fn orders_by_segment() {
        assert!(rel("a/b") < rel("a-b"));
        assert!(RelPath::root() < rel("a"));
    }

    proptest! {
        #[test]
        fn orders_as_its_segments(a in "[a\u{1}~é/-]{0,8}", b in "[a\u{1}~é/-]{0,8}") {
            if let (Some(a), Some(b)) = (RelPath::new(a.as_bytes()), RelPath::new(b.as_bytes())) {
                prop_assert_eq!(a.cmp(&b), a.segments().cmp(b.segments()));
            }
        }
    }
}
