//! Files and directories that a model names: by a handle, or by a path relative to the package, as
//! a SKILL.md links to its files.

use crate::skills::result::{ToolError, ToolErrorCode};
use caproot_core::wire::RelPath;
use caproot_core::wire::handle::encode_path;
use percent_encoding::percent_decode_str;

/// File or directory of a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamedResource {
    /// Handle of a file; empty: the main resource of the package.
    File(String),
    /// Handle of a directory, with `/` at the end.
    Directory(String),
}

impl NamedResource {
    /// Returns what `resource` names in a package. A path relative to the package is read like a
    /// link: without query and fragment, percent-decoded, and with `.` and `..` resolved. A `/` in front
    /// of a path means the package, as nothing outside can be meant. A path or handle that ends with `/`
    /// is a directory, and the handle of the package is its directory.
    pub fn parse(package: &str, resource: &str) -> Result<Self, ToolError> {
        if resource.contains("://") {
            // The source of the package checks whether the package has the resource.
            return Ok(if resource == package {
                Self::Directory(format!("{package}/"))
            } else if resource.ends_with('/') {
                Self::Directory(resource.to_owned())
            } else {
                Self::File(resource.to_owned())
            });
        }

        let path = resource.split(['?', '#']).next().unwrap_or_default();
        if path.is_empty() {
            return Ok(Self::File(String::new()));
        }
        let decoded: Vec<u8> = percent_decode_str(path).collect();
        let mut segments: Vec<&[u8]> = Vec::new();
        for segment in decoded.split(|byte| *byte == b'/') {
            match segment {
                b"" | b"." => {}
                b".." => {
                    if segments.pop().is_none() {
                        return Err(not_found("the path leads out of the package"));
                    }
                }
                name => segments.push(name),
            }
        }

        let last = decoded.rsplit(|byte| *byte == b'/').next();
        let is_directory = matches!(last, Some(b"" | b"." | b".."));
        let path = RelPath::new(&segments.join(&b'/'))
            .ok_or_else(|| not_found("no file has such a path"))?;
        let separator = if path.is_root() { "" } else { "/" };
        let handle = format!("{package}{separator}{}", encode_path(&path));
        Ok(if is_directory {
            Self::Directory(format!("{handle}/"))
        } else {
            Self::File(handle)
        })
    }
}

fn not_found(message: &str) -> ToolError {
    ToolError::from_code(ToolErrorCode::ResourceNotFound, message)
}

#[cfg(test)]
mod tests {
    use super::NamedResource::{self, Directory, File};
    use caproot_core::wire::handle::is_within;
    use proptest::prelude::*;

    const PACKAGE: &str = "skill://demo/pdf";

    #[test]
    fn links_and_handles_name_the_same_files() {
        for (resource, named) in [
            ("", File(String::new())),
            ("#usage", File(String::new())),
            ("a/b.md", File("skill://demo/pdf/a/b.md".into())),
            ("./a/../b c.md", File("skill://demo/pdf/b%20c.md".into())),
            ("/a/b.md", File("skill://demo/pdf/a/b.md".into())),
            ("/etc/passwd", File("skill://demo/pdf/etc/passwd".into())),
            ("/", Directory("skill://demo/pdf/".into())),
            ("b%20c.md#part", File("skill://demo/pdf/b%20c.md".into())),
            ("skill://demo/pdf/a", File("skill://demo/pdf/a".into())),
            ("./", Directory("skill://demo/pdf/".into())),
            (".", Directory("skill://demo/pdf/".into())),
            ("a/", Directory("skill://demo/pdf/a/".into())),
            (PACKAGE, Directory("skill://demo/pdf/".into())),
            (
                "skill://demo/pdf/a/",
                Directory("skill://demo/pdf/a/".into()),
            ),
        ] {
            assert_eq!(
                NamedResource::parse(PACKAGE, resource),
                Ok(named),
                "{resource}"
            );
        }
    }

    #[test]
    fn other_places_are_not_found() {
        for resource in [
            "..",
            "../x",
            "a/../../x",
            "%2e%2e/x",
            "/../x",
            "a\0b",
            "%00",
        ] {
            assert!(
                NamedResource::parse(PACKAGE, resource).is_err(),
                "{resource}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_path_leaves_the_package(path in "[a./%2eF\\\\~ #?-]{0,24}") {
            if let Ok(File(handle) | Directory(handle)) = NamedResource::parse(PACKAGE, &path) {
                let inside = handle.is_empty() || is_within(handle.trim_end_matches('/'), PACKAGE);
                prop_assert!(inside, "{path} named {handle}");
                prop_assert!(!handle.split('/').any(|part| part == ".."));
            }
        }
    }
}
