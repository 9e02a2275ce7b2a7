//! Files of a package as the protocol lists them: names, digests, sizes and modes.

use super::{ContentDigest, RelPath, handle};
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};

/// Maximum length of a name in a directory, and of a path in the kernel.
const NAME_MAX: usize = 255;
const PATH_MAX: usize = 4_095;
/// Maximum number of components of a path. Reading and removing a tree takes open directories for
/// each level, and a process has 1,024 by default.
const MAX_COMPONENTS: usize = 128;

/// Digest, size and mode of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileChecksum {
    /// Digest of the whole file.
    pub digest: ContentDigest,
    /// Size in bytes.
    pub bytes: u64,
    /// Whether the file is executable.
    pub executable: bool,
}

/// Decodes the name of a file to its path below the package: the handle of the file without the
/// handle of the package. The path never leaves the directory. Each path has one name, so two names
/// never mean the same file. The error is the predicate of a sentence.
pub fn parse_file_name(name: &str) -> Result<RelPath, &'static str> {
    let mut path = Vec::new();
    for segment in name.split('/') {
        let start = path.len() + usize::from(!path.is_empty());
        if start > path.len() {
            path.push(b'/');
        }
        path.extend(percent_decode_str(segment));
        let bytes = &path[start..];

        if matches!(bytes, b"" | b"." | b"..") || bytes.iter().any(|b| matches!(b, b'/' | 0)) {
            return Err("has a name that leaves the directory or that no file can have");
        }
        if bytes.len() > NAME_MAX {
            return Err("has a name over 255 bytes");
        }
    }

    if name.split('/').count() > MAX_COMPONENTS {
        return Err("has a path of over 128 components");
    }
    if path.len() > PATH_MAX {
        return Err("has a path over 4,095 bytes");
    }
    let path = RelPath::new(&path).ok_or("has a name that no file can have")?;
    if handle::encode_path(&path) != name {
        return Err("has a name that is not in canonical form");
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::{handle, parse_file_name};
    use proptest::prelude::*;

    #[test]
    fn names_that_are_no_safe_path_are_rejected() {
        for name in [
            "",
            "/",
            "/etc/passwd",
            "a/",
            "a//b",
            ".",
            "..",
            "../a",
            "a/../b",
            "a/./b",
            "%2e%2e",
            "%2E%2E/a",
            "a%2Fb",
            "a%2fb",
            "a%00b",
            "a b",
            "%61",
            "%",
            "%zz",
            &"n".repeat(256),
            &vec!["n"; 129].join("/"),
            &vec![&*"n".repeat(255); 17].join("/"),
        ] {
            assert!(parse_file_name(name).is_err(), "{name:?}");
        }
        for name in [
            "a",
            "a/b",
            "...",
            "a%20b/%FF",
            "d/.caproot-checksums.json",
            "%2A",
            "-~_.",
            &vec!["n"; 128].join("/"),
        ] {
            let path = parse_file_name(name).expect(name);
            assert_eq!(handle::encode_path(&path), name);
        }
    }

    proptest! {
        #[test]
        fn accepted_names_stay_below_and_have_one_path(name in "[a./%2fF0eE-]{0,12}") {
            if let Ok(path) = parse_file_name(&name) {
                prop_assert!(path.segments().all(|part| !matches!(part, b"." | b"..")));
                prop_assert_eq!(handle::encode_path(&path), name);
            }
        }
    }
}
