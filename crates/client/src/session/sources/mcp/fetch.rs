//! Files of an MCP server: fetched whole, verified against the list, and returned in pages. A file
//! that fails verification is never returned.

use super::frontmatter::find_difference;
use super::limits::{MAX_CACHED_FILES, MAX_FILE_BYTES};
use super::remote_skill::{DeclaredFile, ExpectedFile, RemoteSkill};
use super::{McpSourceState, invalid_response_error};
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

/// Error codes of a server that does not have a file.
const MISSING_FILE_CODES: [ErrorCode; 3] = [
    ErrorCode::RESOURCE_NOT_FOUND,
    ErrorCode::INVALID_PARAMS,
    ErrorCode::METHOD_NOT_FOUND,
];

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
        ExpectedFile::Declared(declared) => Some(declared),
        ExpectedFile::Undeclared => None,
    };

    if let Some(declared) = declared {
        if let Some(size) = declared.size.filter(|size| *size > MAX_FILE_BYTES) {
            return Err(too_large_error(size, MAX_FILE_BYTES));
        }
        // A cached file with the listed digest is current.
        if let Some(file) = cache.lock().get(uri, declared.digest) {
            return Ok(file);
        }
    }

    let Some(peer) = &state.peer else {
        let message = "the MCP server does not respond yet";
        return Err(ToolError::from_code(
            ToolErrorCode::SourceUnavailable,
            message,
        ));
    };
    let fetch = async {
        let bytes = read_contents(peer, uri, MAX_FILE_BYTES).await?;
        verify_file(entry, uri, declared, bytes)
    };
    let file = requests.count(fetch).await?;

    // A file without a listed digest cannot be checked later, so it is fetched for each page.
    if declared.is_some() {
        cache.lock().insert(uri, &file);
    }
    Ok(file)
}

/// Requests the bytes of a URI from the server.
pub async fn read_contents(
    peer: &Peer<RoleClient>,
    uri: &str,
    max_bytes: u64,
) -> Result<Vec<u8>, ToolError> {
    let response = peer
        .read_resource_once(ReadResourceRequestParams::new(uri))
        .await
        .map_err(|error| tool_error(&error))?;
    let ReadResourceResponse::Complete(result) = response else {
        let reason = "it asks for input before it returns a file";
        return Err(invalid_response(reason));
    };
    let Ok([contents]) = <[ResourceContents; 1]>::try_from(result.contents) else {
        let reason = "it returns several contents or none for a file";
        return Err(invalid_response(reason));
    };

    let bytes = decode_contents(contents, uri)?;
    let size = bytes.len() as u64;
    if size > max_bytes {
        Err(too_large_error(size, max_bytes))
    } else {
        Ok(bytes)
    }
}

/// Returns the bytes of the contents, which must be of the requested URI.
fn decode_contents(contents: ResourceContents, requested: &str) -> Result<Vec<u8>, ToolError> {
    let (uri, bytes) = match contents {
        ResourceContents::TextResourceContents { uri, text, .. } => (uri, Ok(text.into_bytes())),
        ResourceContents::BlobResourceContents { uri, blob, .. } => (uri, STANDARD.decode(blob)),
        _ => {
            let reason = "the contents of a file are neither text nor bytes";
            return Err(invalid_response(reason));
        }
    };
    if uri != requested {
        return Err(invalid_response("it returns another file"));
    }
    bytes.map_err(|_| invalid_response("the base64 of a file is invalid"))
}

/// Returns the file, if it matches the list and is text. If a SKILL.md fails the check, no file of
/// its skill is used any more.
fn verify_file(
    entry: &RemoteSkill,
    uri: &str,
    declared: Option<DeclaredFile<'_>>,
    bytes: Vec<u8>,
) -> Result<VerifiedFile, ToolError> {
    let digest = sha256_digest(&bytes);
    let checked = match declared {
        Some(declared) => check_declaration(declared, bytes.len() as u64, &digest),
        None => Ok(()),
    };
    if entry.uri != uri {
        checked?;
        let text = String::from_utf8(bytes)
            .map_err(|_| ToolError::from_code(ToolErrorCode::NotText, "the file is not text"))?;
        return Ok(VerifiedFile::new(digest, text));
    }

    checked
        .and_then(|()| check_main_file(entry, bytes))
        .map(|text| VerifiedFile::new(digest, text))
        .inspect_err(|error| entry.mark_rejected(error))
}

/// Checks the size and the digest of a file against the list.
fn check_declaration(declared: DeclaredFile<'_>, size: u64, digest: &str) -> Result<(), ToolError> {
    if let Some(listed) = declared.size.filter(|listed| *listed != size) {
        let reason = format!("the file has {size} bytes; the list declares {listed}");
        return Err(not_verified_error(&reason));
    }
    if declared.digest != digest {
        let reason = "the digest of the file differs from the list";
        return Err(not_verified_error(reason));
    }
    Ok(())
}

/// Returns the text of a SKILL.md, if its frontmatter matches the list.
fn check_main_file(entry: &RemoteSkill, bytes: Vec<u8>) -> Result<String, ToolError> {
    let text = String::from_utf8(bytes)
        .map_err(|error| not_verified_error(&format!("the SKILL.md is not text: {error}")))?;
    match find_difference(&text, &entry.frontmatter, entry.has_all_fields) {
        None => Ok(text),
        Some(difference) => {
            let reason = format!("the SKILL.md differs from the list: {difference}");
            Err(not_verified_error(&reason))
        }
    }
}

fn not_verified_error(reason: &str) -> ToolError {
    ToolError::from_code(ToolErrorCode::NotVerified, reason)
}

fn too_large_error(size: u64, limit: u64) -> ToolError {
    let message = format!("the file has {size} bytes; the limit is {limit}");
    ToolError::from_code(ToolErrorCode::TooLarge, &message)
}

fn invalid_response(reason: &str) -> ToolError {
    invalid_response_error("the MCP server", reason)
}

/// Returns the error of a failed call for a model.
fn tool_error(error: &ServiceError) -> ToolError {
    match error {
        ServiceError::McpError(error) if MISSING_FILE_CODES.contains(&error.code) => {
            let message = "the MCP server does not have the file now";
            ToolError::from_code(ToolErrorCode::ResourceNotFound, message)
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
    fn new(digest: String, text: String) -> Self {
        Self {
            digest,
            text: text.into(),
        }
    }

    /// Returns the page at a cursor; `None` is the beginning.
    pub fn cut_page(
        &self,
        cursor: Option<McpFileCursor>,
        uri: &str,
        resource: String,
        max_bytes: usize,
    ) -> Result<TextPage, ToolError> {
        let version = checksum([self.digest.as_bytes()]);
        let begin = cursor.unwrap_or(McpFileCursor { offset: 0, version });
        if begin.version != version {
            let message = "the file changed since the cursor was made";
            return Err(ToolError::from_code(
                ToolErrorCode::ResourceChanged,
                message,
            ));
        }

        let text = &*self.text;
        let Some(rest) = text.get(begin.offset..) else {
            return Err(invalid_cursor());
        };
        let contents = &rest[..rest.floor_char_boundary(max_bytes)];
        let next_cursor = if contents.len() == rest.len() {
            String::new()
        } else {
            let offset = begin.offset + contents.len();
            McpFileCursor { offset, version }.encode(uri.as_bytes())
        };

        Ok(TextPage {
            resource,
            contents: contents.to_owned(),
            next_cursor,
            digest: self.digest.clone(),
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
        VerifiedFile::new(sha256_digest(text.as_bytes()), text.to_owned())
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
