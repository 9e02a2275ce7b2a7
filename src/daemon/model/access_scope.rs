//! Access scope: the directories that a caller may use, as the operator configured them.

use std::collections::BTreeSet;

/// Directories that a caller may use.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum AccessScope {
    /// All allowed directories.
    #[default]
    All,
    /// These directories and everything below them. Absolute paths in raw bytes.
    Directories(BTreeSet<Box<[u8]>>),
}

impl AccessScope {
    /// Returns the union of both scopes.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        match (self, other) {
            (Self::Directories(mut some), Self::Directories(more)) => {
                some.extend(more);
                Self::Directories(some)
            }
            (Self::All, _) | (_, Self::All) => Self::All,
        }
    }

    /// Whether the path, as the operator configured it, lies in the scope. Compares names only: the
    /// daemon checks the resolved path before it serves a file.
    #[must_use]
    pub fn contains_path(&self, path: &[u8]) -> bool {
        match self {
            Self::All => true,
            Self::Directories(dirs) => dirs.iter().any(|dir| path_is_in(path, dir)),
        }
    }

    /// Returns bytes that identify the scope. Equal scopes have equal bytes, also after a restart,
    /// and different scopes have different bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::All => Vec::new(),
            Self::Directories(dirs) => {
                let each = dirs.iter().flat_map(|dir| {
                    let length = (dir.len() as u64).to_be_bytes();
                    [&length[..], dir].concat()
                });
                std::iter::once(1).chain(each).collect()
            }
        }
    }
}

/// Whether `path` is `dir` or lies below it. Both are absolute and compared by name. A path with a
/// `..` after the directory does not count, because the target of `..` is unknown without the disk.
fn path_is_in(path: &[u8], dir: &[u8]) -> bool {
    let mut path = segments(path);
    segments(dir).all(|segment| path.next() == Some(segment)) && path.all(|rest| rest != b"..")
}

fn segments(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|b| *b == b'/')
        .filter(|segment| !matches!(*segment, b"" | b"."))
}

#[cfg(test)]
mod tests {
    use super::{AccessScope, path_is_in};
    use proptest::prelude::*;

    fn below(dirs: &[&str]) -> AccessScope {
        AccessScope::Directories(dirs.iter().map(|dir| dir.as_bytes().into()).collect())
    }

    #[test]
    fn paths_are_compared_by_segment() {
        for (path, dir, expected) in [
            ("/a", "/a", true),
            ("/a/b", "/a", true),
            ("/a/", "//a/.", true),
            ("/ab", "/a", false),
            ("/a", "/a/b", false),
            ("/", "/a", false),
            ("/a", "/", true),
            ("/a/../b", "/a", false),
            ("/a/b/..", "/a", false),
            ("/x/../a", "/x/..", true),
        ] {
            assert_eq!(
                path_is_in(path.as_bytes(), dir.as_bytes()),
                expected,
                "{path} {dir}"
            );
        }
    }

    #[test]
    fn different_scopes_have_different_bytes() {
        let all = [
            AccessScope::All,
            below(&[]),
            below(&["/a"]),
            below(&["/a", "/b"]),
            below(&["/a/b"]),
            below(&["/a\0\0\0\0\0\0\0\u{2}/b"]),
        ];
        for (a, one) in all.iter().enumerate() {
            for (b, other) in all.iter().enumerate() {
                assert_eq!(
                    one.to_bytes() == other.to_bytes(),
                    a == b,
                    "{one:?} {other:?}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn a_union_contains_the_paths_of_both(
            a in proptest::collection::vec("(/[ab.]{1,2}){1,3}", 0..4),
            b in proptest::collection::vec("(/[ab.]{1,2}){1,3}", 0..4),
            path in "(/[ab.]{1,2}){1,4}",
        ) {
            let scope = |dirs: &[String]| below(&dirs.iter().map(|d| &**d).collect::<Vec<_>>());
            let (a, b) = (scope(&a), scope(&b));
            let either = a.contains_path(path.as_bytes()) || b.contains_path(path.as_bytes());
            prop_assert_eq!(a.clone().union(b).contains_path(path.as_bytes()), either);
            prop_assert_eq!(a.union(AccessScope::All), AccessScope::All);
        }
    }
}
