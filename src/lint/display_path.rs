//! Paths of findings, as the user gave them on the command line.

use caproot_core::text::EscapedBytes;
use caproot_core::wire::RelPath;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Bytes that are not percent-encoded in the path of a URI (RFC 3986).
const URI_PATH_ENCODE_SET: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Path in a form that a person can use in another command. Displays with misleading characters
/// escaped.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DisplayPath(OsString);

impl DisplayPath {
    /// Joins the directory in its given spelling with a path below the directory.
    #[must_use]
    pub fn new(given: &Path, below: &RelPath) -> Self {
        let rest = OsStr::from_bytes(below.as_bytes());
        Self(match given.as_os_str().as_bytes() {
            _ if below.is_root() => given.into(),
            b"." => rest.into(),
            _ => given.join(rest).into(),
        })
    }

    /// Returns the text for programs. Bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn to_string_lossy(&self) -> String {
        self.0.to_string_lossy().into_owned()
    }

    /// Returns a relative reference, or a `file:` URI if the path is absolute and not below
    /// `current_dir`.
    #[must_use]
    pub fn to_uri(&self, current_dir: Option<&Path>) -> String {
        let path = self.relative_path(current_dir);
        let start = if path.is_absolute() { "file://" } else { "" };
        format!(
            "{start}{}",
            percent_encode(path.as_os_str().as_bytes(), URI_PATH_ENCODE_SET)
        )
    }

    /// Returns the path for programs, relative if it is below `current_dir`. Bytes that are not
    /// UTF-8 are replaced.
    #[must_use]
    pub fn to_relative(&self, current_dir: Option<&Path>) -> String {
        self.relative_path(current_dir)
            .to_string_lossy()
            .into_owned()
    }

    fn relative_path(&self, current_dir: Option<&Path>) -> &Path {
        let path = Path::new(&self.0);
        let path = current_dir
            .and_then(|dir| path.strip_prefix(dir).ok())
            .unwrap_or_else(|| path.strip_prefix(".").unwrap_or(path));
        if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        }
    }
}

impl fmt::Display for DisplayPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        EscapedBytes(self.0.as_bytes()).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::DisplayPath;
    use caproot_core::wire::RelPath;
    use std::path::Path;

    #[test]
    fn path_starts_as_given() {
        let current = Path::new("/home");
        for (given, below, shown, uri) in [
            (".", b"a/SKILL.md".as_slice(), "a/SKILL.md", "a/SKILL.md"),
            (".", b"", ".", "."),
            ("skills", b"", "skills", "skills"),
            ("./skills/", b"a b", "./skills/a b", "skills/a%20b"),
            ("../x", b"a", "../x/a", "../x/a"),
            ("/home/x", b"a", "/home/x/a", "x/a"),
            ("/home", b"", "/home", "."),
            ("/", b"a", "/a", "file:///a"),
            ("x", b"\xff\x1b\n", r"x/\xff\u{1b}\u{a}", "x/%FF%1B%0A"),
            (
                "x",
                "\u{202e}é".as_bytes(),
                r"x/\u{202e}é",
                "x/%E2%80%AE%C3%A9",
            ),
        ] {
            let below = RelPath::new(below).expect("a path");
            let display_path = DisplayPath::new(Path::new(given), &below);
            assert_eq!(
                (
                    &*display_path.to_string(),
                    &*display_path.to_uri(Some(current))
                ),
                (shown, uri)
            );
        }
    }
}
