//! URI of each skill. The standard requires that the last directory of a skill's URI is the name in
//! its frontmatter. The handle of a package may have another last directory.

use caproot_core::wire::handle::{is_within, parent_handles};
use std::collections::{BTreeMap, BTreeSet};

/// Address of a skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SkillAddress {
    /// URI of the skill: the handle of its package, or the handle with its last directory replaced
    /// by the name.
    Uri(String),
    /// Served as plain resources at the package's handle, because the standard does not allow the
    /// name.
    InvalidName,
    /// Served as plain resources at the package's handle, because the URI of the name overlaps
    /// another package.
    UriTaken,
}

/// Whether the Agent Skills format allows the name: 1 to 64 lower-case letters, digits and single
/// hyphens between them.
fn is_valid_name(name: &str) -> bool {
    let is_plain = name
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    let has_stray_hyphen = name.starts_with('-') || name.ends_with('-') || name.contains("--");
    is_plain && !has_stray_hyphen && (1..=64).contains(&name.len())
}

/// Returns the address of each package, given the name in its frontmatter if there is one. A URI
/// never means files of two packages, except if one package contains the other and both mean the
/// same file.
pub fn assign_addresses<'a>(
    skills: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
) -> BTreeMap<&'a str, SkillAddress> {
    let skills: BTreeMap<&str, Option<&str>> = skills.into_iter().collect();
    let packages = skills.keys().map(|&package| package.to_owned()).collect();
    let mut moved = BTreeSet::new();

    let mut addresses = BTreeMap::new();
    for (package, name) in skills {
        let address = match name.filter(|name| is_valid_name(name)) {
            None => SkillAddress::InvalidName,
            Some(name) => {
                // The name replaces the last directory, or is appended if the root itself is the skill.
                let parent = parent_handles(package).next().unwrap_or(package);
                let uri = format!("{parent}/{name}");
                // No other URI takes a handle, so that the own handle is always free.
                if uri == package {
                    SkillAddress::Uri(uri)
                } else if overlaps(&uri, &packages, package) || overlaps(&uri, &moved, "") {
                    SkillAddress::UriTaken
                } else {
                    moved.insert(uri.clone());
                    SkillAddress::Uri(uri)
                }
            }
        };
        addresses.insert(package, address);
    }
    addresses
}

/// Whether a handle except `own` contains the URI, or lies within it.
fn overlaps(uri: &str, handles: &BTreeSet<String>, own: &str) -> bool {
    let is_inside = parent_handles(uri).any(|parent| parent != own && handles.contains(parent));

    let mut following = handles
        .range(uri.to_owned()..)
        .take_while(|handle| handle.starts_with(uri));
    // The range also has longer names, such as `a-b` for `a`.
    is_inside || following.any(|handle| is_within(handle, uri))
}

#[cfg(test)]
mod tests {
    use super::{SkillAddress, assign_addresses, is_valid_name, is_within};
    use proptest::prelude::*;

    #[test]
    fn only_standard_names_are_valid() {
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
        for (package, name, address) in [
            ("skill://r/a", Some("a"), skill("skill://r/a")),
            ("skill://r/b", Some("other"), skill("skill://r/other")),
            ("skill://r/c", Some("a"), SkillAddress::UriTaken),
            ("skill://r/d", Some("other"), SkillAddress::UriTaken),
            ("skill://r/e", Some("No Name"), SkillAddress::InvalidName),
            ("skill://r/f", None, SkillAddress::InvalidName),
            ("skill://r/g/x", Some("h"), skill("skill://r/g/h")),
            // A package is next to the name.
            ("skill://r/i", Some("j"), SkillAddress::UriTaken),
            ("skill://r/j/k", Some("k"), skill("skill://r/j/k")),
            // Inside another package, whose own files may have this URI.
            ("skill://r/a/x", Some("y"), SkillAddress::UriTaken),
            ("skill://r/a/z", Some("z"), skill("skill://r/a/z")),
            // The root itself is a skill.
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
            assert_eq!(assign_addresses(all)[package], address, "{package}");
        }
    }

    proptest! {
        /// Two addresses overlap only if their packages overlap in the same way.
        #[test]
        fn each_uri_means_one_file(
            skills in prop::collection::btree_map(
                "skill://r(/[abc]){0,3}", prop::option::of("[abc]"), 0..8,
            ),
        ) {
            let given = skills.iter().map(|(package, name)| (package.as_str(), name.as_deref()));
            let addresses = assign_addresses(given);
            let served: Vec<(&str, &str)> = addresses.iter().map(|(package, address)| match address {
                SkillAddress::Uri(uri) => (*package, uri.as_str()),
                SkillAddress::InvalidName | SkillAddress::UriTaken => (*package, *package),
            }).collect();
            for (package, uri) in &served {
                for (other, its) in &served {
                    if package != other && is_within(its, uri) {
                        // The inner URI reads a file of the inner package. The outer URI reads the
                        // same file only if no package has another address than its handle.
                        prop_assert!(package == uri && other == its, "{package} {other}");
                    }
                }
            }
        }
    }
}
