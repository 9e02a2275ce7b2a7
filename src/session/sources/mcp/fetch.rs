//! Files of an MCP server: fetched whole, verified against the list, and returned in pages. A file
//! that fails verification is never returned.

use super::McpSourceState;
use super::frontmatter::find_difference;
use super::limits::{MAX_CACHED_FILES, MAX_FILE_BYTES};
use super::remote_skill::{ExpectedFile, RemoteSkill};
use crate::session::sources::TextPage;
use crate::session::{ToolError, ToolErrorCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{
    ErrorCode, ReadResourceRequestParams, ReadResourceResponse, ResourceContents, SkillResource,
    sha256_digest,
};
use rmcp::service::ServiceError;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Characters after `sha256:` that identify a digest in a cursor.
const TAG_RANGE: std::ops::Range<usize> = 7..31;

/// Text file that passed verification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedFile {
    digest: String,
    text: Arc<str>,
}

/// Latest verified files, the most recent first.
#[derive(Debug, Default)]
pub struct VerifiedFileCache(VecDeque<(String, VerifiedFile)>);

impl VerifiedFileCache {
    /// Returns the file at a URI, if this version is cached.
    fn get(&self, uri: &str, digest: &str) -> Option<VerifiedFile> {
        let found =
            self.0.iter().find(|(cached_uri, file)| cached_uri == uri && file.digest == digest);
        found.map(|(_, file)| file.clone())
    }

    fn insert(&mut self, uri: &str, file: &VerifiedFile) {
        self.0.retain(|(cached_uri, _)| cached_uri != uri);
        self.0.push_front((uri.to_owned(), file.clone()));
        self.0.truncate(MAX_CACHED_FILES);
    }
}

/// Fetches and verifies a file of a skill.
pub async fn fetch_file(
    state: &McpSourceState,
    entry: &RemoteSkill,
    uri: &str,
    cache: &Mutex<VerifiedFileCache>,
) -> Result<VerifiedFile, ToolError> {
    let declared = match entry.expected_file(uri) {
        ExpectedFile::Missing => {
            let message = "the skill has no such file";
            return Err(ToolError::from_code(ToolErrorCode::ResourceNotFound, message));
        }
        ExpectedFile::Declared(declared) => Some(declared),
        ExpectedFile::Undeclared => None,
    };
    if let Some(declared) = declared {
        if declared.size > MAX_FILE_BYTES {
            return Err(too_large_error(declared.size));
        }
        // A cached file with the listed digest is current.
        if let Some(file) = lock(cache).get(uri, &declared.digest) {
            return Ok(file);
        }
    }
    let bytes = request_bytes(state, uri).await?;
    verify_file(entry, uri, declared, bytes).inspect(|file| {
        // A file without a listed digest cannot be checked later, so it is fetched for each page.
        if declared.is_some() {
            lock(cache).insert(uri, file);
        }
    })
}

/// Requests the bytes of a URI from the server.
async fn request_bytes(state: &McpSourceState, uri: &str) -> Result<Vec<u8>, ToolError> {
    let Some(peer) = &state.peer else {
        return Err(ToolError::from_code(
            ToolErrorCode::SourceUnavailable,
            "the MCP server does not response yet",
        ));
    };
    let response = peer.read_resource_once(ReadResourceRequestParams::new(uri)).await;
    let contents = match response.map_err(|error| tool_error(&error))? {
        ReadResourceResponse::Complete(result) => result.contents,
        _ => return Err(invalid_response("it asks for input before it returns a file")),
    };
    let Ok([contents]) = <[ResourceContents; 1]>::try_from(contents) else {
        return Err(invalid_response("it returns several contents or none for a file"));
    };
    let (returned_uri, bytes) = match contents {
        ResourceContents::TextResourceContents { uri, text, .. } => (uri, Ok(text.into_bytes())),
        ResourceContents::BlobResourceContents { uri, blob, .. } => (uri, STANDARD.decode(blob)),
        _ => return Err(invalid_response("the contents of a file are neither text nor bytes")),
    };
    if returned_uri != uri {
        return Err(invalid_response("it returns another file"));
    }
    let bytes = bytes.map_err(|_| invalid_response("the base64 of a file is invalid"))?;
    let size = bytes.len() as u64;
    if size > MAX_FILE_BYTES { Err(too_large_error(size)) } else { Ok(bytes) }
}

/// Returns the file, if it matches the list and is text.
fn verify_file(
    entry: &RemoteSkill,
    uri: &str,
    declared: Option<&SkillResource>,
    bytes: Vec<u8>,
) -> Result<VerifiedFile, ToolError> {
    let is_main = entry.uri == uri;
    let reject = |reason: &str| {
        let error = ToolError::from_code(ToolErrorCode::NotVerified, reason);
        // If the SKILL.md fails verification, no file of the skill is used.
        if is_main {
            entry.mark_rejected(&error);
        }
        error
    };
    if let Some(declared) = declared {
        let size = bytes.len() as u64;
        if size != declared.size {
            let listed = declared.size;
            return Err(reject(&format!("the file has {size} bytes; the list declares {listed}")));
        }
        if sha256_digest(&bytes) != declared.digest {
            return Err(reject("the digest of the file differs from the list"));
        }
    }
    let digest = sha256_digest(&bytes);
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if is_main => {
            return Err(reject(&format!("the SKILL.md is not text: {error}")));
        }
        Err(_) => return Err(ToolError::from_code(ToolErrorCode::NotText, "the file is not text")),
    };
    if is_main && let Some(difference) = find_difference(&text, &entry.frontmatter) {
        let reason = format!("the SKILL.md differs from the list: {difference}");
        return Err(reject(&reason));
    }
    Ok(VerifiedFile { digest, text: text.into() })
}

fn too_large_error(size: u64) -> ToolError {
    let message = format!("the file has {size} bytes; the limit is {MAX_FILE_BYTES}");
    ToolError::from_code(ToolErrorCode::TooLarge, &message)
}

fn invalid_response(reason: &str) -> ToolError {
    ToolError::from_code(
        ToolErrorCode::InvalidResponse,
        &format!("invalid response of the MCP server: {reason}"),
    )
}

/// Returns the error of a failed call for a model.
fn tool_error(error: &ServiceError) -> ToolError {
    match error {
        ServiceError::McpError(error)
            if [ErrorCode::RESOURCE_NOT_FOUND, ErrorCode::INVALID_PARAMS].contains(&error.code) =>
        {
            ToolError::from_code(
                ToolErrorCode::ResourceNotFound,
                "the MCP server does not have the file now",
            )
        }
        ServiceError::McpError(error) => {
            let message = format!("the MCP server does not return the file: {}", error.message);
            ToolError::from_code(ToolErrorCode::SourceUnavailable, &message)
        }
        ServiceError::UnexpectedResponse => invalid_response("it has another type"),
        error => {
            let message = format!("the MCP server does not response: {error}");
            ToolError::from_code(ToolErrorCode::SourceUnavailable, &message)
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Position in a version of a file where a page begins.
#[derive(Debug, PartialEq, Eq)]
pub struct McpFileCursor {
    offset: usize,
    /// Digest tag of the file; `None` at the beginning.
    version: Option<String>,
}

/// Parses a cursor; an empty cursor is the beginning. Returns `None` if the cursor is not of this
/// file.
pub fn parse_cursor(cursor: &str, uri: &str) -> Option<McpFileCursor> {
    if cursor.is_empty() {
        return Some(McpFileCursor { offset: 0, version: None });
    }
    let mut parts = cursor.splitn(3, '-');
    let (offset, file_tag, version) = (parts.next()?, parts.next()?, parts.next()?);
    let is_plain = offset.len() <= 7 && offset.bytes().all(|b| b.is_ascii_digit());
    (is_plain && file_tag == digest_tag(&sha256_digest(uri.as_bytes()))).then(|| {
        Some(McpFileCursor { offset: offset.parse().ok()?, version: Some(version.to_owned()) })
    })?
}

fn digest_tag(digest: &str) -> &str {
    digest.get(TAG_RANGE).unwrap_or(digest)
}

impl McpFileCursor {
    /// Returns the page of a file at the cursor.
    pub fn cut_page(
        self,
        uri: &str,
        resource: String,
        file: &VerifiedFile,
        max_bytes: usize,
    ) -> Result<TextPage, ToolError> {
        if self.version.is_some_and(|version| version != digest_tag(&file.digest)) {
            let message = "the file changed since the cursor was made";
            return Err(ToolError::from_code(ToolErrorCode::ResourceChanged, message));
        }
        let text = &*file.text;
        if self.offset > text.len() || !text.is_char_boundary(self.offset) {
            return Err(ToolError::from_code(
                ToolErrorCode::InvalidCursor,
                "the cursor is not of this file",
            ));
        }
        let end = text.floor_char_boundary(self.offset.saturating_add(max_bytes));
        let next_cursor = if end < text.len() {
            format!(
                "{end}-{}-{}",
                digest_tag(&sha256_digest(uri.as_bytes())),
                digest_tag(&file.digest)
            )
        } else {
            String::new()
        };
        Ok(TextPage { resource, contents: text[self.offset..end].to_owned(), next_cursor })
    }
}

#[cfg(test)]
mod tests {
    use super::{McpFileCursor, VerifiedFile, parse_cursor};
    use crate::session::ToolErrorCode;
    use proptest::prelude::*;
    use rmcp::model::sha256_digest;

    const URI: &str = "skill://a/SKILL.md";

    fn file(text: &str) -> VerifiedFile {
        VerifiedFile { digest: sha256_digest(text.as_bytes()), text: text.into() }
    }

    #[test]
    fn a_cursor_of_another_file_or_version_is_rejected() {
        let text = file("äbcdefgh");
        let first =
            McpFileCursor { offset: 0, version: None }.cut_page(URI, String::new(), &text, 4);
        let first = first.expect("a page");
        assert_eq!(first.contents, "äbc");
        assert_eq!(parse_cursor(&first.next_cursor, "skill://b/SKILL.md"), None);
        for bad in ["x", "1", "1-2", "1-2-3", "-1--", "99999999999999999999-a-b"] {
            assert_eq!(parse_cursor(bad, URI), None, "{bad}");
        }
        let begin = parse_cursor(&first.next_cursor, URI).expect("a cursor of this file");
        let changed = begin.cut_page(URI, String::new(), &file("another"), 4);
        assert_eq!(changed.expect_err("changed").code(), ToolErrorCode::ResourceChanged);
        // The offset is inside a character.
        let forged = first.next_cursor.replacen('4', "1", 1);
        let begin = parse_cursor(&forged, URI).expect("a cursor of this file");
        let result = begin.cut_page(URI, String::new(), &text, 4);
        assert_eq!(result.expect_err("an invalid offset").code(), ToolErrorCode::InvalidCursor);
    }

    proptest! {
        #[test]
        fn pages_join_to_the_file(text in "(?s).{0,200}", bytes in 4_usize..40) {
            let file = file(&text);
            let (mut joined, mut cursor) = (String::new(), String::new());
            loop {
                let begin = parse_cursor(&cursor, URI).expect("a cursor of this file");
                let page = begin.cut_page(URI, String::new(), &file, bytes).expect("a page");
                prop_assert!(page.contents.len() <= bytes);
                joined.push_str(&page.contents);
                cursor = page.next_cursor;
                if cursor.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(joined, text);
        }
    }
}
