//! What the files of the soak hold. Each text says whose it is and which version, and all of it follows
//! from that: so a file that was read is known to be whole, and of the right root, by itself.

use std::str::from_utf8;

/// A version of a SKILL.md, of the root `root`.
pub(super) fn skill(root: &str, name: &str, version: u64) -> String {
    let mut text = head(root, name, version);
    text += "license: Apache-2.0\nmetadata:\n  author: soak\n---\n";
    let line = |n| format!("Line {n} of {name} of {root}, version {version}.\n");
    text.extend((0..version % 40).map(line));
    text
}

/// A version of a SKILL.md that cannot be parsed.
pub(super) fn broken(root: &str, name: &str, version: u64) -> String {
    head(root, name, version) + "metadata: [\n---\n"
}

/// A version of a file of many pages; of every second one, bytes that are no text.
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
    format!("---\nname: {name}\ndescription: {}\n", description(root, version))
}

/// What a version of a SKILL.md says of itself.
pub(super) fn description(root: &str, version: u64) -> String {
    format!("Of {root}, version {version}.")
}

/// The version that a skill of `root` says it is; none where it is of another root.
pub(super) fn version_of(description: &str, root: &str) -> Option<u64> {
    let version =
        description.strip_prefix("Of ")?.strip_prefix(root)?.strip_prefix(", version ")?;
    version.strip_suffix('.')?.parse().ok()
}

/// What bytes that were read are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Read {
    /// A SKILL.md, with its description.
    Skill(String),
    /// A SKILL.md that cannot be parsed.
    Broken,
    /// Another file.
    Notes,
    /// The beginning of one of these, as it is while somebody writes it.
    Begun,
    /// None of them: pages of several versions, or a file of another root.
    Mixed,
}

/// What these bytes are, if all is well with the root `root`.
pub(super) fn recognize(bytes: &[u8], root: &str) -> Read {
    let lines: Vec<_> = bytes.split(|b| *b == b'\n').take(4).map(|l| from_utf8(l).ok()).collect();
    match lines[..] {
        [Some("---"), Some(name), Some(says), Some(_)] => {
            let name = name.strip_prefix("name: ");
            let says = says.strip_prefix("description: ");
            let version = says.and_then(|says| version_of(says, root));
            let (Some(name), Some(says), Some(version)) = (name, says, version) else {
                return Read::Mixed;
            };
            let whole = skill(root, name, version);
            let torn = broken(root, name, version);
            let (whole, torn) = (whole.as_bytes(), torn.as_bytes());
            if bytes == whole {
                Read::Skill(says.to_owned())
            } else if bytes == torn {
                Read::Broken
            } else if whole.starts_with(bytes) || torn.starts_with(bytes) {
                Read::Begun
            } else {
                Read::Mixed
            }
        }
        [Some(first), _, ..] if first.starts_with("Notes on ") => {
            let parts = first.strip_prefix("Notes on ").and_then(|rest| rest.split_once(" of "));
            let version = parts.and_then(|(name, rest)| {
                let rest = rest.strip_prefix(root)?.strip_prefix(", version ")?;
                Some((name, rest.parse().ok()?))
            });
            let Some((name, version)) = version else { return Read::Mixed };
            match notes(root, name, version) {
                whole if whole == bytes => Read::Notes,
                whole if whole.starts_with(bytes) => Read::Begun,
                _ => Read::Mixed,
            }
        }
        // Less than the lines that say what it is.
        _ if bytes.len() < 80 => Read::Begun,
        _ => Read::Mixed,
    }
}

#[test]
fn what_is_whole_is_told_from_what_is_not() {
    let (one, two) = (skill("r1", "s01", 17), notes("r1", "s01", 3));
    assert_eq!(recognize(one.as_bytes(), "r1"), Read::Skill(description("r1", 17)));
    assert_eq!(recognize(&two, "r1"), Read::Notes);
    assert_eq!(recognize(broken("r1", "s01", 4).as_bytes(), "r1"), Read::Broken);
    assert_eq!(recognize(&two[..700], "r1"), Read::Begun);
    assert_eq!(recognize(b"", "r1"), Read::Begun);
    for bytes in [one.as_bytes(), &two] {
        assert_eq!(recognize(bytes, "r2"), Read::Mixed, "another root's");
        assert_eq!(recognize(&[bytes, b"x"].concat(), "r1"), Read::Mixed);
    }
    let other = notes("r1", "s01", 5);
    let joined = [&two[..1_000], &other[1_000..]].concat();
    assert_eq!(recognize(&joined, "r1"), Read::Mixed, "pages of two versions");
}
