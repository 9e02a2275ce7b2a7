//! Paths of permissions in a sidecar. Resolution is lexical; links are not resolved.

use caproot_core::wire::RelPath;

/// Characters that a shell may expand or that other systems read as a separator.
const EXPANDED_CHARS: [char; 2] = ['$', '\\'];

/// Resolves the path of a permission, which is relative to `package`. Returns the path below the
/// root, or `None` if the path is not certainly in the package: an empty or absolute path, a path
/// from a home directory, a path with a variable or with `..`, which leads elsewhere behind a link.
#[must_use]
pub fn resolve_permission_path(package: &RelPath, text: &str) -> Option<RelPath> {
    if text.is_empty() || text.starts_with(['/', '~']) || text.contains(EXPANDED_CHARS) {
        return None;
    }
    let segments = text
        .split('/')
        .filter(|segment| !matches!(*segment, "" | "."));
    segments
        .map(str::as_bytes)
        .try_fold(package.clone(), |path, segment| path.join(segment))
}

#[cfg(test)]
mod tests {
    use super::resolve_permission_path;
    use caproot_core::wire::RelPath;
    use proptest::prelude::*;

    fn rel(text: &str) -> RelPath {
        RelPath::new(text.as_bytes()).expect(text)
    }

    #[test]
    fn only_paths_in_the_package_resolve() {
        for (package, text, expected) in [
            ("p/s", "./data", Some("p/s/data")),
            ("p/s", "data/in//x/", Some("p/s/data/in/x")),
            ("p/s", ".", Some("p/s")),
            ("", "./", Some("")),
            ("", "out", Some("out")),
            ("s", "a ~b*", Some("s/a ~b*")),
            ("s", "", None),
            ("s", "/", None),
            ("s", "/srv/s", None),
            ("s", "..", None),
            ("s", "../s/data", None),
            ("s", "data/../../x", None),
            ("s", "data/..", None),
            ("s", "~/x", None),
            ("s", "~user", None),
            ("s", "$HOME/x", None),
            ("s", "data/${X}", None),
            ("s", "..\\x", None),
            ("s", "a\0b", None),
        ] {
            assert_eq!(
                resolve_permission_path(&rel(package), text),
                expected.map(rel),
                "{text:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn resolved_paths_are_in_the_package(text in "(\\.\\./|\\./|/|a|\\.\\.|\\.|\0|é|~|\\$|p|s){0,8}", any: String) {
            for text in [text, any] {
                if let Some(path) = resolve_permission_path(&rel("p/s"), &text) {
                    prop_assert!(path.strip_prefix(&rel("p/s")).is_some(), "{path:?}");
                }
            }
        }
    }
}
