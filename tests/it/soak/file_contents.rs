//! File contents of the soak test. Each content follows from its root, name and version, so a read
//! file shows by itself whether it is complete and of the right root.

use std::str::from_utf8;

/// Returns a version of a SKILL.md in `root`.
pub(super) fn skill(root: &str, name: &str, version: u64) -> String {
    let mut text = head(root, name, version);
    text += "license: Apache-2.0\nmetadata:\n  author: soak\n---\n";
    let line = |n| format!("Line {n} of {name} of {root}, version {version}.\n");
    text.extend((0..version % 40).map(line));
    text
}

/// Returns a version of a SKILL.md that only the repair of YAML can read.
pub(super) fn repairable(root: &str, name: &str, version: u64) -> String {
    head(root, name, version) + "metadata: [\n---\n"
}

/// Returns a version of a file with many pages. Every second version is not UTF-8.
pub(super) fn notes(root: &str, name: &str, version: u64) -> Vec<u8> {
    let mut bytes = format!("Notes on {name} of {root}, version {version}\n").into_bytes();
    for line in 0..300 + version % 500 {
        bytes.extend(format!("{root} {name} {version} line {line}: €uro.\n").into_bytes());
        if version % 2 == 1 {
            bytes.push(0xff);
        }
    }
    bytes
}

fn head(root: &str, name: &str, version: u64) -> String {
    format!(
        "---\nname: {name}\ndescription: {}\n",
        description(root, version)
    )
}

/// Returns the description in a version of a SKILL.md.
pub(super) fn description(root: &str, version: u64) -> String {
    format!("Of {root}, version {version}.")
}

/// Returns the version in a description, or `None` if the description is of another root.
pub(super) fn version_of(description: &str, root: &str) -> Option<u64> {
    let version = description
        .strip_prefix("Of ")?
        .strip_prefix(root)?
        .strip_prefix(", version ")?;
    version.strip_suffix('.')?.parse().ok()
}

/// Kind of file content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ContentKind {
    /// Complete SKILL.md, with its description.
    Skill(String),
    /// Complete SKILL.md that only the repair of YAML can read, with its description.
    Repairable(String),
    /// Complete other file.
    Notes,
    /// Beginning of a file that is being written.
    Partial,
    /// Anything else: pages of several versions, or a file of another root.
    Unknown,
}

/// Recognizes the content of a file in `root`.
pub(super) fn recognize(bytes: &[u8], root: &str) -> ContentKind {
    let lines: Vec<_> = bytes
        .split(|b| *b == b'\n')
        .take(4)
        .map(|l| from_utf8(l).ok())
        .collect();
    match lines[..] {
        [Some("---"), Some(name), Some(description), Some(_)] => {
            let name = name.strip_prefix("name: ");
            let description = description.strip_prefix("description: ");
            let version = description.and_then(|description| version_of(description, root));
            let (Some(name), Some(description), Some(version)) = (name, description, version)
            else {
                return ContentKind::Unknown;
            };
            let whole = skill(root, name, version);
            let repairable_text = repairable(root, name, version);
            let (whole, repairable_text) = (whole.as_bytes(), repairable_text.as_bytes());
            if bytes == whole {
                ContentKind::Skill(description.to_owned())
            } else if bytes == repairable_text {
                ContentKind::Repairable(description.to_owned())
            } else if whole.starts_with(bytes) || repairable_text.starts_with(bytes) {
                ContentKind::Partial
            } else {
                ContentKind::Unknown
            }
        }
        [Some(first), _, ..] if first.starts_with("Notes on ") => {
            let parts = first
                .strip_prefix("Notes on ")
                .and_then(|rest| rest.split_once(" of "));
            let version = parts.and_then(|(name, rest)| {
                let rest = rest.strip_prefix(root)?.strip_prefix(", version ")?;
                Some((name, rest.parse().ok()?))
            });
            let Some((name, version)) = version else {
                return ContentKind::Unknown;
            };
            match notes(root, name, version) {
                whole if whole == bytes => ContentKind::Notes,
                whole if whole.starts_with(bytes) => ContentKind::Partial,
                _ => ContentKind::Unknown,
            }
        }
        // The content is shorter than its identifying lines.
        _ if bytes.len() < 80 => ContentKind::Partial,
        _ => ContentKind::Unknown,
    }
}

#[test]
fn complete_partial_and_foreign_contents_are_distinguished() {
    let (one, two) = (skill("r1", "s01", 17), notes("r1", "s01", 3));
    assert_eq!(
        recognize(one.as_bytes(), "r1"),
        ContentKind::Skill(description("r1", 17))
    );
    assert_eq!(recognize(&two, "r1"), ContentKind::Notes);
    assert_eq!(
        recognize(repairable("r1", "s01", 4).as_bytes(), "r1"),
        ContentKind::Repairable(description("r1", 4))
    );
    assert_eq!(recognize(&two[..700], "r1"), ContentKind::Partial);
    assert_eq!(recognize(b"", "r1"), ContentKind::Partial);
    for bytes in [one.as_bytes(), &two] {
        assert_eq!(
            recognize(bytes, "r2"),
            ContentKind::Unknown,
            "another root's"
        );
        assert_eq!(
            recognize(&[bytes, b"x"].concat(), "r1"),
            ContentKind::Unknown
        );
    }
    let other = notes("r1", "s01", 5);
    let joined = [&two[..1_000], &other[1_000..]].concat();
    assert_eq!(
        recognize(&joined, "r1"),
        ContentKind::Unknown,
        "pages of two versions"
    );
}
