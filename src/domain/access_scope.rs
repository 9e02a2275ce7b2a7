//! The part of the allowed roots that a caller is bound to, as the operator gave it. Leaves where
//! these directories really are, and what lies in them, to `disk`.

use std::collections::BTreeSet;

/// What a caller may ask for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum AccessScope {
    /// All that the daemon may serve.
    #[default]
    All,
    /// What lies in one of these directories, with all below it. Absolute, raw bytes.
    Directories(BTreeSet<Box<[u8]>>),
}

impl AccessScope {
    /// What either gives.
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

    /// Whether a published root, by its path as the operator gave it, is offered. A question of
    /// names only: what is served of it is decided where it really is.
    #[must_use]
    pub fn contains_path(&self, path: &[u8]) -> bool {
        match self {
            Self::All => true,
            Self::Directories(dirs) => dirs.iter().any(|dir| path_is_in(path, dir)),
        }
    }

    /// The same for the same reach, after a restart too, and different for any other.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::All => Vec::new(),
            Self::Directories(dirs) => {
                let length = |dir: &[u8]| (dir.len() as u64).to_be_bytes();
                let each = dirs.iter().flat_map(|dir| [&length(dir)[..], dir].concat());
                std::iter::once(1).chain(each).collect()
            }
        }
    }
}

/// Whether a path is a directory or lies in it, both absolute and taken as they are spelled. Where
/// `..` leads is not known here, so what has one behind the directory is not in it.
#[must_use]
fn path_is_in(path: &[u8], dir: &[u8]) -> bool {
    let mut path = segments(path);
    segments(dir).all(|segment| path.next() == Some(segment)) && path.all(|rest| rest != b"..")
}

fn segments(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|b| *b == b'/').filter(|segment| !matches!(*segment, b"" | b"."))
}

#[cfg(test)]
mod tests {
    use super::{AccessScope, path_is_in};
    use proptest::prelude::*;

    fn below(dirs: &[&str]) -> AccessScope {
        AccessScope::Directories(dirs.iter().map(|dir| dir.as_bytes().into()).collect())
    }

    #[test]
    fn what_lies_in_a_directory() {
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
            assert_eq!(path_is_in(path.as_bytes(), dir.as_bytes()), expected, "{path} {dir}");
        }
    }

    #[test]
    fn bytes_tell_reaches_apart() {
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
                assert_eq!(one.to_bytes() == other.to_bytes(), a == b, "{one:?} {other:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_union_offers_what_either_does(
            a in proptest::collection::vec("(/[ab.]{1,2}){1,3}", 0..4),
            b in proptest::collection::vec("(/[ab.]{1,2}){1,3}", 0..4),
            path in "(/[ab.]{1,2}){1,4}",
        ) {
            let reach = |dirs: &[String]| below(&dirs.iter().map(|d| &**d).collect::<Vec<_>>());
            let (a, b) = (reach(&a), reach(&b));
            let either = a.contains_path(path.as_bytes()) || b.contains_path(path.as_bytes());
            prop_assert_eq!(a.clone().union(b).contains_path(path.as_bytes()), either);
            prop_assert_eq!(a.union(AccessScope::All), AccessScope::All);
        }
    }
}
