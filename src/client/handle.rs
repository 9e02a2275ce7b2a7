//! The parts of a handle that a client reads: its root and its package. All other parts are opaque
//! to clients.

use percent_encoding::percent_decode_str;

/// Returns the id of the root of a handle, or `None` if the text is not a handle.
#[must_use]
pub fn root_id(handle: &str) -> Option<String> {
    let rest = handle.strip_prefix("skill://")?;
    let first = rest.split('/').next().filter(|segment| !segment.is_empty())?;
    percent_decode_str(first).decode_utf8().ok().map(String::from)
}

/// Returns the innermost of `packages` that is the handle or contains the handle.
#[must_use]
pub fn enclosing_package<'a>(
    handle: &str,
    packages: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let holds = |package: &&str| {
        let rest = handle.strip_prefix(*package);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    packages.into_iter().filter(holds).max_by_key(|package| package.len())
}

#[cfg(test)]
mod tests {
    use super::{enclosing_package, root_id};

    #[test]
    fn root_ids_are_decoded() {
        assert_eq!(root_id("skill://a%40b%2Fc/x/y").as_deref(), Some("a@b/c"));
        assert_eq!(root_id("skill://a").as_deref(), Some("a"));
        for bad in ["", "a/b", "skill:/a", "skill://", "skill:///x", "skill://%FF"] {
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
}
