//! Handles of the files of a server: `mcp+<scheme>://<server>/<path>` stands for the server's
//! `<scheme>://<path>`, such as `mcp+skill://docs/pdf/SKILL.md` for `skill://pdf/SKILL.md`. A handle
//! of an executor never begins this way, and a handle names one server. Only a URI with a single
//! spelling has a handle. The server chooses the spelling, so such a URI may have characters that
//! `ResourceHandle` encodes.

use super::limits::MAX_URI_BYTES;
use caproot_core::wire::handle::is_within;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

const HANDLE_PREFIX: &str = "mcp+";
/// Schemes whose URIs have several spellings, such as another case of the host or a default port
/// (WHATWG URL, "special scheme"). A host would also take such a URI for a file of its own.
const REJECTED_SCHEMES: [&str; 6] = ["file", "ftp", "http", "https", "ws", "wss"];
/// End of the URI of a SKILL.md.
const MAIN_FILE_SUFFIX: &str = "/SKILL.md";

/// Characters that a canonical path encodes: all except the unreserved characters and the slash (RFC
/// 3986, section 2.3).
const PATH_ENCODE_SET: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/');

/// Returns whether a server can have this name.
pub fn is_server_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        && name.bytes().any(|b| b != b'.')
}

/// Returns whether a URI is a file with a single spelling: a lower-case scheme, no query, no
/// fragment, and no segment that is empty, `.` or `..`, or contains an encoded slash. A percent
/// sign begins two upper-case digits that encode no unreserved character (RFC 3986, section 6.2.2).
pub fn is_file_uri(uri: &str) -> bool {
    uri.split_once("://").is_some_and(|(scheme, path)| {
        uri.len() <= MAX_URI_BYTES
            && is_accepted_scheme(scheme)
            && path.contains('/')
            && path
                .bytes()
                .all(|b| b.is_ascii_graphic() && !b"?#\\<>\"{}|^`".contains(&b))
            && path.split('%').skip(1).all(has_canonical_escape)
            && path.split('/').all(is_plain_segment)
    })
}

/// Returns whether a scheme is in lower case, and its URIs have a single spelling.
fn is_accepted_scheme(scheme: &str) -> bool {
    scheme.starts_with(|c: char| c.is_ascii_lowercase())
        && scheme
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"+-.".contains(&b))
        && !REJECTED_SCHEMES.contains(&scheme)
}

/// Returns whether a segment of a path names a file or directory, and encodes no separator.
fn is_plain_segment(segment: &str) -> bool {
    let decoded: Vec<u8> = percent_decode_str(segment).collect();
    !matches!(&*decoded, b"" | b"." | b"..")
        && !decoded
            .iter()
            .any(|b| matches!(b, b'/' | b'\\') || b.is_ascii_control())
}

/// Returns whether the text after a percent sign begins with a canonical escape.
fn has_canonical_escape(rest: &str) -> bool {
    rest.get(..2).is_some_and(|digits| {
        digits
            .bytes()
            .all(|b| matches!(b, b'0'..=b'9' | b'A'..=b'F'))
            && u8::from_str_radix(digits, 16)
                .is_ok_and(|byte| !byte.is_ascii_alphanumeric() && !b"-._~".contains(&byte))
    })
}

/// Returns the directory of a SKILL.md.
pub fn skill_dir(uri: &str) -> Option<&str> {
    uri.strip_suffix(MAIN_FILE_SUFFIX)
        .filter(|_| is_file_uri(uri))
}

/// Returns the last segment of a directory, decoded: the name that a skill there must have.
pub fn directory_name(directory: &str) -> String {
    percent_decode_str(directory.rsplit('/').next().unwrap_or_default())
        .decode_utf8_lossy()
        .into_owned()
}

/// Returns the URI of a path below a directory.
pub fn file_uri(directory: &str, path: &str) -> String {
    format!("{directory}/{}", utf8_percent_encode(path, PATH_ENCODE_SET))
}

/// Returns whether a file is below a directory.
pub fn is_in_dir(uri: &str, directory: &str) -> bool {
    is_file_uri(uri) && uri != directory && is_within(uri, directory)
}

/// Returns the handle of a URI.
pub fn to_handle(server: &str, uri: &str) -> String {
    let (scheme, path) = uri.split_once("://").unwrap_or(("skill", uri));
    format!("{HANDLE_PREFIX}{scheme}://{server}/{path}")
}

/// Returns the server of a handle.
pub fn handle_server(handle: &str) -> Option<&str> {
    split_handle(handle).map(|(_, server, _)| server)
}

/// Returns the URI of a file's handle.
pub fn handle_to_uri(handle: &str) -> Option<String> {
    let (scheme, _, path) = split_handle(handle)?;
    Some(format!("{scheme}://{path}")).filter(|uri| is_file_uri(uri))
}

/// Returns the scheme, the server and the path of a handle.
fn split_handle(handle: &str) -> Option<(&str, &str, &str)> {
    let (scheme, rest) = handle.strip_prefix(HANDLE_PREFIX)?.split_once("://")?;
    let (server, path) = rest.split_once('/')?;
    Some((scheme, server, path))
}

#[cfg(test)]
mod tests {
    use super::{
        directory_name, file_uri, handle_server, handle_to_uri, is_file_uri, is_in_dir,
        is_server_name, skill_dir, to_handle,
    };
    use proptest::prelude::*;

    #[test]
    fn ambiguous_uris_are_rejected() {
        for good in [
            "skill://a/SKILL.md",
            "skill://a/b%20c/x.md",
            "skill://a@1/~b/c:d",
            "github://Org/repo/skills/a/SKILL.md",
            "x-1.y+z://a/%C3%A4",
        ] {
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
            "skill://a/b%2",
            "skill://a/%c3%a4",
            "skill://a/%41",
            "SKILL://a/b",
            "1skill://a/b",
            "://a/b",
            "http://a/b",
            "https://a/b",
            "file://a/b",
            "skill:a/b",
            &long,
        ] {
            assert!(!is_file_uri(bad), "{bad}");
        }
        assert_eq!(skill_dir("skill://a/b/SKILL.md"), Some("skill://a/b"));
        assert_eq!(skill_dir("skill://a/b/skill.md"), None);
        assert!(
            is_in_dir("skill://a/b/c", "skill://a/b") && !is_in_dir("skill://a/bc", "skill://a/b")
        );
        assert_eq!(directory_name("skill://a/b%20c"), "b c");
        assert_eq!(
            file_uri("skill://a", "b c/ä%.md"),
            "skill://a/b%20c/%C3%A4%25.md"
        );
        assert!(!is_in_dir(&file_uri("skill://a", "../b"), "skill://a"));
        for bad in ["", ".", "..", "a/b", "a b", "ä", &"x".repeat(65)] {
            assert!(!is_server_name(bad), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn handles_are_one_to_one(server in "[a-z0-9._-]{1,8}", scheme in "[a-z][a-z0-9+.-]{0,5}", path in "[a-z%2A]{1,6}(/[a-z.%2A]{1,6}){1,3}") {
            let there = format!("{scheme}://{path}");
            let handle = to_handle(&server, &there);
            prop_assert_eq!(handle_server(&handle), Some(server.as_str()));
            prop_assert!(!handle.starts_with("skill://"));
            prop_assert_eq!(handle_to_uri(&handle), is_file_uri(&there).then_some(there));
        }
    }
}
