//! Handles of the files of a server: `mcp+skill://<server>/<path>` stands for the server's
//! `skill://<path>`. A handle of an executor never begins this way, and a handle names one server.
//! Only a URI with a single spelling has a handle.

use super::limits::MAX_URI_BYTES;
use percent_encoding::percent_decode_str;

const HANDLE_SCHEME: &str = "mcp+skill://";
const URI_SCHEME: &str = "skill://";
/// End of the URI of a SKILL.md.
const MAIN_FILE_SUFFIX: &str = "/SKILL.md";

/// Returns whether a server can have this name.
pub fn is_server_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    (1..=64).contains(&name.len()) && name.bytes().all(plain) && !is_dots(name)
}

/// Returns whether a URI is a file below `skill://` with a single spelling: no query, no fragment,
/// and no segment that is empty, `.` or `..`, or contains an encoded slash.
pub fn is_file_uri(uri: &str) -> bool {
    let Some(path) = uri.strip_prefix(URI_SCHEME) else { return false };
    let plain = |b: u8| b.is_ascii_graphic() && !b"?#\\<>\"{}|^`".contains(&b);
    let is_plain_segment = |segment: &str| {
        let decoded = percent_decode_str(segment).collect::<Vec<u8>>();
        let hides = decoded.iter().any(|b| *b == b'/' || *b == b'\\' || b.is_ascii_control());
        !decoded.is_empty() && decoded != b"." && decoded != b".." && !hides
    };
    uri.len() <= MAX_URI_BYTES
        && path.bytes().all(plain)
        && path.contains('/')
        && path.split('/').all(is_plain_segment)
}

/// Returns the directory of a SKILL.md.
pub fn skill_dir(uri: &str) -> Option<&str> {
    uri.strip_suffix(MAIN_FILE_SUFFIX).filter(|_| is_file_uri(uri))
}

/// Returns whether a file is below a directory.
pub fn is_in_dir(uri: &str, directory: &str) -> bool {
    is_file_uri(uri) && uri.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}

/// Returns the handle of a URI.
pub fn to_handle(server: &str, uri: &str) -> String {
    format!("{HANDLE_SCHEME}{server}/{}", uri.strip_prefix(URI_SCHEME).unwrap_or(uri))
}

/// Returns the server of a handle.
pub fn handle_server(handle: &str) -> Option<&str> {
    handle.strip_prefix(HANDLE_SCHEME)?.split_once('/').map(|(server, _)| server)
}

/// Returns the URI of a file's handle.
pub fn handle_to_uri(handle: &str) -> Option<String> {
    let (_, path) = handle.strip_prefix(HANDLE_SCHEME)?.split_once('/')?;
    Some(format!("{URI_SCHEME}{path}")).filter(|uri| is_file_uri(uri))
}

fn is_dots(name: &str) -> bool {
    name.bytes().all(|b| b == b'.')
}

#[cfg(test)]
mod tests {
    use super::{
        handle_server, handle_to_uri, is_file_uri, is_in_dir, is_server_name, skill_dir, to_handle,
    };
    use proptest::prelude::*;

    #[test]
    fn ambiguous_uris_are_rejected() {
        for good in ["skill://a/SKILL.md", "skill://a/b%20c/x.md", "skill://a@1/~b/c:d"] {
            assert!(is_file_uri(good), "{good}");
        }
        let long = format!("skill://a/{}", "x".repeat(2_000));
        for bad in [
            "file:///etc/passwd",
            "skill://",
            "skill://a",
            "skill://a/",
            "skill:///a",
            "skill://a//b",
            "skill://a/../b",
            "skill://a/%2e%2E/b",
            "skill://a/b%2Fc",
            "skill://a/b%5cc",
            "skill://a/b%00",
            "skill://a/b?c",
            "skill://a/b#c",
            "skill://a/b c",
            "skill://a/ä",
            "SKILL://a/b",
            &long,
        ] {
            assert!(!is_file_uri(bad), "{bad}");
        }
        assert_eq!(skill_dir("skill://a/b/SKILL.md"), Some("skill://a/b"));
        assert_eq!(skill_dir("skill://a/b/skill.md"), None);
        assert!(
            is_in_dir("skill://a/b/c", "skill://a/b") && !is_in_dir("skill://a/bc", "skill://a/b")
        );
        for bad in ["", ".", "..", "a/b", "a b", "ä", &"x".repeat(65)] {
            assert!(!is_server_name(bad), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn handles_are_one_to_one(server in "[a-z0-9._-]{1,8}", path in "[a-z%2]{1,6}(/[a-z.%2]{1,6}){1,3}") {
            let there = format!("skill://{path}");
            let handle = to_handle(&server, &there);
            prop_assert_eq!(handle_server(&handle), Some(server.as_str()));
            prop_assert!(!handle.starts_with("skill://"));
            prop_assert_eq!(handle_to_uri(&handle), is_file_uri(&there).then_some(there));
        }
    }
}
