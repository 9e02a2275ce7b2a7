//! Files of an MCP server: fetched whole, verified against the list, and returned in pages. A file
//! that fails verification is never returned.

use super::McpSourceState;
use super::frontmatter::find_difference;
use super::limits::{MAX_CACHED_FILES, MAX_FILE_BYTES};
use super::remote_skill::{ExpectedFile, RemoteSkill};
use crate::session::request_metrics::RequestCounter;
use crate::session::sources::TextPage;
use crate::session::{ToolError, ToolErrorCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use caproot_core::sync::Mutex;
use caproot_core::wire::cursor::{Cursor, CursorKind, CursorReader, CursorWriter, checksum};
use rmcp::RoleClient;
use rmcp::model::{
    ErrorCode, ReadResourceRequestParams, ReadResourceResponse, ResourceContents, sha256_digest,
};
use rmcp::service::{Peer, ServiceError};
use std::collections::VecDeque;
use std::sync::Arc;

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
        let found = self
            .0
            .iter()
            .find(|(cached_uri, file)| cached_uri == uri && file.digest == digest);
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
    requests: &RequestCounter,
) -> Result<VerifiedFile, ToolError> {
    let declared = match entry.expected_file(uri) {
        ExpectedFile::Missing => {
            let message = "the skill has no such file";
            return Err(ToolError::from_code(
                ToolErrorCode::ResourceNotFound,
                message,
            ));
        }
        ExpectedFile::Declared { digest, size } => Some((digest, size)),
        ExpectedFile::Undeclared => None,
    };
    if let Some((digest, size)) = declared {
        if let Some(size) = size
            && size > MAX_FILE_BYTES
        {
            return Err(too_large_error(size, MAX_FILE_BYTES));
        }
        // A cached file with the listed digest is current.
        if let Some(file) = cache.lock().get(uri, digest) {
            return Ok(file);
        }
    }
    let Some(peer) = &state.peer else {
        return Err(ToolError::from_code(
            ToolErrorCode::SourceUnavailable,
            "the MCP server does not respond yet",
        ));
    };
    let fetch = async {
        let bytes = read_contents(peer, uri, MAX_FILE_BYTES).await?;
        verify_file(entry, uri, declared, bytes)
    };
    requests.count(fetch).await.inspect(|file| {
        // A file without a listed digest cannot be checked later, so it is fetched for each page.
        if declared.is_some() {
            cache.lock().insert(uri, file);
        }
    })
}

/// Requests the bytes of a URI from the server.
pub async fn read_contents(
    peer: &Peer<RoleClient>,
    uri: &str,
    max_bytes: u64,
) -> Result<Vec<u8>, ToolError> {
    let response = peer
        .read_resource_once(ReadResourceRequestParams::new(uri))
        .await;
    let contents = match response.map_err(|error| tool_error(&error))? {
        ReadResourceResponse::Complete(result) => result.contents,
        _ => {
            return Err(invalid_response(
                "it asks for input before it returns a file",
            ));
        }
    };
    let Ok([contents]) = <[ResourceContents; 1]>::try_from(contents) else {
        return Err(invalid_response(
            "it returns several contents or none for a file",
        ));
    };
    let (returned_uri, bytes) = match contents {
        ResourceContents::TextResourceContents { uri, text, .. } => (uri, Ok(text.into_bytes())),
        ResourceContents::BlobResourceContents { uri, blob, .. } => (uri, STANDARD.decode(blob)),
        _ => {
            return Err(invalid_response(
                "the contents of a file are neither text nor bytes",
            ));
        }
    };
    if returned_uri != uri {
        return Err(invalid_response("it returns another file"));
    }
    let bytes = bytes.map_err(|_| invalid_response("the base64 of a file is invalid"))?;
    let size = bytes.len() as u64;
    if size > max_bytes {
        Err(too_large_error(size, max_bytes))
    } else {
        Ok(bytes)
    }
}

/// Returns the file, if it matches the list and is text.
fn verify_file(
    entry: &RemoteSkill,
    uri: &str,
    declared: Option<(&str, Option<u64>)>,
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
    if let Some((digest, listed)) = declared {
        let size = bytes.len() as u64;
        if let Some(listed) = listed
            && size != listed
        {
            return Err(reject(&format!(
                "the file has {size} bytes; the list declares {listed}"
            )));
        }
        if sha256_digest(&bytes) != digest {
            return Err(reject("the digest of the file differs from the list"));
        }
    }
    let digest = sha256_digest(&bytes);
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if is_main => {
            return Err(reject(&format!("the SKILL.md is not text: {error}")));
        }
        Err(_) => {
            return Err(ToolError::from_code(
                ToolErrorCode::NotText,
                "the file is not text",
            ));
        }
    };
    if is_main
        && let Some(difference) = find_difference(&text, &entry.frontmatter, entry.has_all_fields)
    {
        let reason = format!("the SKILL.md differs from the list: {difference}");
        return Err(reject(&reason));
    }
    Ok(VerifiedFile {
        digest,
        text: text.into(),
    })
}

fn too_large_error(size: u64, limit: u64) -> ToolError {
    let message = format!("the file has {size} bytes; the limit is {limit}");
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
            if [
                ErrorCode::RESOURCE_NOT_FOUND,
                ErrorCode::INVALID_PARAMS,
                ErrorCode::METHOD_NOT_FOUND,
            ]
            .contains(&error.code) =>
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
            let message = format!("the MCP server does not respond: {error}");
            ToolError::from_code(ToolErrorCode::SourceUnavailable, &message)
        }
    }
}

/// Position in a version of a file where a page begins. Bound to the URI of the file.
#[derive(Debug, PartialEq, Eq)]
pub struct McpFileCursor {
    offset: usize,
    /// Checksum of the digest of the file.
    version: u64,
}

impl Cursor for McpFileCursor {
    const KIND: CursorKind = CursorKind::McpFile;

    fn write_fields(&self, fields: &mut CursorWriter) {
        fields.write_number(self.offset as u64);
        fields.write_hash(self.version);
    }

    fn read_fields(fields: &mut CursorReader<'_>) -> Option<Self> {
        Some(Self {
            offset: fields.read_small()?,
            version: fields.read_hash()?,
        })
    }
}

/// Decodes the cursor of a file; `None` for an empty text, which is the beginning.
pub fn parse_cursor(text: &str, uri: &str) -> Result<Option<McpFileCursor>, ToolError> {
    if text.is_empty() {
        return Ok(None);
    }
    McpFileCursor::decode(text, uri.as_bytes())
        .map(Some)
        .ok_or_else(invalid_cursor)
}

fn invalid_cursor() -> ToolError {
    ToolError::from_code(
        ToolErrorCode::InvalidCursor,
        "the cursor is not of this file",
    )
}

impl VerifiedFile {
    /// Returns the page at a cursor; `None` is the beginning.
    pub fn cut_page(
        &self,
        cursor: Option<McpFileCursor>,
        uri: &str,
        resource: String,
        max_bytes: usize,
    ) -> Result<TextPage, ToolError> {
        let version = checksum([self.digest.as_bytes()]);
        let cursor = cursor.unwrap_or(McpFileCursor { offset: 0, version });
        if cursor.version != version {
            let message = "the file changed since the cursor was made";
            return Err(ToolError::from_code(
                ToolErrorCode::ResourceChanged,
                message,
            ));
        }
        let text = &*self.text;
        if cursor.offset > text.len() || !text.is_char_boundary(cursor.offset) {
            return Err(invalid_cursor());
        }
        let end = text.floor_char_boundary(cursor.offset.saturating_add(max_bytes));
        let next = (end < text.len()).then_some(McpFileCursor {
            offset: end,
            version,
        });
        let next_cursor = next
            .map(|next| next.encode(uri.as_bytes()))
            .unwrap_or_default();
        Ok(TextPage {
            resource,
            contents: text[cursor.offset..end].to_owned(),
            next_cursor,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{McpFileCursor, VerifiedFile, parse_cursor};
    use crate::session::ToolErrorCode;
    use caproot_core::wire::cursor::Cursor as _;
    use proptest::prelude::*;
    use rmcp::model::sha256_digest;

    const URI: &str = "skill://a/SKILL.md";

    fn file(text: &str) -> VerifiedFile {
        VerifiedFile {
            digest: sha256_digest(text.as_bytes()),
            text: text.into(),
        }
    }

    #[test]
    fn a_cursor_of_another_file_or_version_is_rejected() {
        let text = file("äbcdefgh");
        let first = text.cut_page(None, URI, String::new(), 4).expect("a page");
        assert_eq!(first.contents, "äbc");
        for (cursor, uri) in [(&*first.next_cursor, "skill://b/SKILL.md"), ("x", URI)] {
            let error = parse_cursor(cursor, uri).expect_err("another file");
            assert_eq!(error.code(), ToolErrorCode::InvalidCursor);
        }
        let begin = parse_cursor(&first.next_cursor, URI).expect("a cursor of this file");
        let changed = file("another").cut_page(begin, URI, String::new(), 4);
        assert_eq!(
            changed.expect_err("changed").code(),
            ToolErrorCode::ResourceChanged
        );
        // The offset is inside a character, or after the end.
        let next = McpFileCursor::decode(&first.next_cursor, URI.as_bytes()).expect("a cursor");
        for offset in [1, 100] {
            let forged = McpFileCursor {
                offset,
                version: next.version,
            };
            let result = text.cut_page(Some(forged), URI, String::new(), 4);
            let error = result.expect_err("an invalid offset");
            assert_eq!(error.code(), ToolErrorCode::InvalidCursor);
        }
    }

    proptest! {
        #[test]
        fn pages_join_to_the_file(text in "(?s).{0,200}", bytes in 4_usize..40) {
            let file = file(&text);
            let (mut joined, mut cursor) = (String::new(), String::new());
            loop {
                let begin = parse_cursor(&cursor, URI).expect("a cursor of this file");
                let page = file.cut_page(begin, URI, String::new(), bytes).expect("a page");
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
