//! Under which URI each skill is served. The standard wants the last directory of a skill's URI to be
//! its frontmatter's name, which a package's handle need not end in. Pure.

use std::collections::{BTreeMap, BTreeSet};

/// Where a skill is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SkillAddress {
    /// As a skill: at its package's handle, or beside it where its directory has another name.
    Uri(String),
    /// As plain resources, at its package's handle: the standard does not allow its name.
    InvalidName,
    /// The same: what its name calls for is, or holds, or lies in, another package.
    UriTaken,
}

/// Whether the Agent Skills format allows the name: 1 to 64 lower-case letters, digits and single
/// hyphens between them.
fn is_valid_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let edges = name.bytes().next().is_some_and(plain) && name.bytes().last().is_some_and(plain);
    let all = name.bytes().all(|b| plain(b) || b == b'-');
    edges && all && name.len() <= 64 && !name.contains("--")
}

/// The place of each package, given its frontmatter's name, if it has one. No file of one place has
/// the URI of a file of another, except where packages lie in each other and it is the same file.
pub(super) fn assign_addresses<'a>(
    skills: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
) -> BTreeMap<&'a str, SkillAddress> {
    let skills: BTreeMap<&str, Option<&str>> = skills.into_iter().collect();
    let packages: BTreeSet<&str> = skills.keys().copied().collect();
    let mut moved: BTreeSet<String> = BTreeSet::new();
    let place = |(package, name): (&'a str, Option<&str>)| {
        let Some(name) = name.filter(|name| is_valid_name(name)) else {
            return (package, SkillAddress::InvalidName);
        };
        let uri = skill_uri(package, name);
        if uri != package {
            let among_packages = parent_uris(&uri).any(|at| at != package && packages.contains(at))
                || packages
                    .range(&*uri..)
                    .take_while(|at| at.starts_with(&uri))
                    .any(|at| is_within(at, &uri));
            let among_moved = parent_uris(&uri).any(|at| moved.contains(at))
                || moved
                    .range(uri.clone()..)
                    .take_while(|at| at.starts_with(&uri))
                    .any(|at| is_within(at, &uri));
            if among_packages || among_moved {
                return (package, SkillAddress::UriTaken);
            }
            moved.insert(uri.clone());
        }
        (package, SkillAddress::Uri(uri))
    };
    skills.into_iter().map(place).collect()
}

/// The directories above a URI, nearest first, down to the root's.
pub(super) fn parent_uris(uri: &str) -> impl Iterator<Item = &str> {
    let root = "skill://".len();
    let slashes = uri.char_indices().rev().filter(move |(at, c)| *c == '/' && *at >= root);
    slashes.map(|(at, _)| &uri[..at])
}

/// Where a skill of that name is served: its directory's name gives way to it. A root that is itself
/// a skill has no name of its own to give way.
fn skill_uri(package: &str, name: &str) -> String {
    match parent_uris(package).next() {
        Some(parent) => format!("{parent}/{name}"),
        None => format!("{package}/{name}"),
    }
}

/// Whether a URI is the directory, or below it.
fn is_within(uri: &str, directory: &str) -> bool {
    uri.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::{SkillAddress, assign_addresses, is_valid_name, is_within, parent_uris};
    use proptest::prelude::*;

    #[test]
    fn names() {
        let long = "a".repeat(64);
        for good in ["a", "7", "a-b", "pdf-2", &long] {
            assert!(is_valid_name(good), "{good}");
        }
        let longer = "a".repeat(65);
        for bad in ["", "-", "a-", "-a", "a--b", "A", "a b", "a_b", "é", &longer] {
            assert!(!is_valid_name(bad), "{bad}");
        }
    }

    #[test]
    fn addresses_follow_names() {
        let skill = |uri: &str| SkillAddress::Uri(uri.into());
        for (package, name, place) in [
            ("skill://r/a", Some("a"), skill("skill://r/a")),
            ("skill://r/b", Some("other"), skill("skill://r/other")),
            ("skill://r/c", Some("a"), SkillAddress::UriTaken),
            ("skill://r/d", Some("other"), SkillAddress::UriTaken),
            ("skill://r/e", Some("No Name"), SkillAddress::InvalidName),
            ("skill://r/f", None, SkillAddress::InvalidName),
            ("skill://r/g/x", Some("h"), skill("skill://r/g/h")),
            // Beside its name lies a package.
            ("skill://r/i", Some("j"), SkillAddress::UriTaken),
            ("skill://r/j/k", Some("k"), skill("skill://r/j/k")),
            // In another package: that one's own files may be there.
            ("skill://r/a/x", Some("y"), SkillAddress::UriTaken),
            ("skill://r/a/z", Some("z"), skill("skill://r/a/z")),
            // The root itself.
            ("skill://s", Some("s"), skill("skill://s/s")),
            ("skill://s/deep", Some("deep"), skill("skill://s/deep")),
        ] {
            let all = [
                ("skill://r/a", Some("a")),
                ("skill://r/b", Some("other")),
                ("skill://r/c", Some("a")),
                ("skill://r/d", Some("other")),
                ("skill://r/e", Some("No Name")),
                ("skill://r/f", None),
                ("skill://r/g/x", Some("h")),
                ("skill://r/i", Some("j")),
                ("skill://r/j/k", Some("k")),
                ("skill://r/a/x", Some("y")),
                ("skill://r/a/z", Some("z")),
                ("skill://s", Some("s")),
                ("skill://s/deep", Some("deep")),
            ];
            assert!(all.contains(&(package, name)));
            assert_eq!(assign_addresses(all)[package], place, "{package}");
        }
    }

    #[test]
    fn directories_above() {
        let above: Vec<_> = parent_uris("skill://r/a/b").collect();
        assert_eq!(above, ["skill://r/a", "skill://r"]);
    }

    proptest! {
        /// Two places overlap only where the packages do, in the same way.
        #[test]
        fn no_uri_means_two_files(
            skills in prop::collection::btree_map(
                "skill://r(/[abc]){0,3}", prop::option::of("[abc]"), 0..8,
            ),
        ) {
            let given = skills.iter().map(|(package, name)| (package.as_str(), name.as_deref()));
            let places = assign_addresses(given);
            let served: Vec<(&str, &str)> = places.iter().map(|(package, place)| match place {
                SkillAddress::Uri(uri) => (*package, uri.as_str()),
                SkillAddress::InvalidName | SkillAddress::UriTaken => (*package, *package),
            }).collect();
            for (package, uri) in &served {
                for (other, its) in &served {
                    if package != other && is_within(its, uri) {
                        // The inner URI reads the inner package's file; through the outer it is
                        // the same file only if neither was moved.
                        prop_assert!(package == uri && other == its, "{package} {other}");
                    }
                }
            }
        }
    }
}
