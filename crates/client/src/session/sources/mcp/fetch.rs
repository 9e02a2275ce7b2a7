//! Files of an MCP server: fetched whole and verified against the list. A file that fails verification is
//! never returned.

use super::ServerLink;
use super::frontmatter::find_difference;
use super::invalid_response_error;
use super::limits::MAX_CACHED_BYTES;
use super::remote_skill::{DeclaredFile, ExpectedFile, RemoteSkill};
use crate::session::sources::large_file::{
    FileContent, SMALL_FILE_BYTES, keep_text, last_text, take_turn,
};
use crate::session::sources::verified_file::VerifiedFile;
use crate::session::{ToolError, ToolErrorCode};
use base64::engine::general_purpose::STANDARD;
use base64::{DecodeSliceError, Engine as _};
use caproot_core::sync::Mutex;
use rmcp::RoleClient;
use rmcp::model::{
    ErrorCode, ReadResourceRequestParams, ReadResourceResponse, ResourceContents, sha256_digest,
};
use rmcp::service::{Peer, ServiceError};
use std::collections::VecDeque;

/// Bytes that are decoded at once: a multiple of three, so that no padding is inside.
const DECODED_CHUNK: usize = 3 << 10;
/// Error codes of a server that does not have a file.
pub const MISSING_FILE_CODES: [ErrorCode; 3] = [
    ErrorCode::RESOURCE_NOT_FOUND,
    ErrorCode::INVALID_PARAMS,
    ErrorCode::METHOD_NOT_FOUND,
];

/// Latest verified files of a server by digest, the most recent first. Files with one digest and
/// different URIs have the same bytes.
#[derive(Debug, Default)]
pub struct VerifiedFileCache(VecDeque<VerifiedFile>);

impl VerifiedFileCache {
    /// Returns the file with a digest, if it is cached.
    pub fn get(&mut self, digest: &str) -> Option<VerifiedFile> {
        let position = self.0.iter().position(|file| file.digest == digest);
        let Some(position) = position else {
            return last_text(digest);
        };
        let file = self.0.remove(position)?;
        self.0.push_front(file.clone());
        Some(file)
    }

    pub fn insert(&mut self, file: &VerifiedFile) {
        if file.text.len() as u64 > SMALL_FILE_BYTES {
            return keep_text(file);
        }
        self.0.retain(|cached| cached.digest != file.digest);
        self.0.push_front(file.clone());

        let mut bytes = 0;
        self.0.retain(|cached| {
            // The digest and the entry itself have a size, too.
            bytes += cached.text.len() + 256;
            bytes <= MAX_CACHED_BYTES
        });
    }
}

/// Connection and cache of a server, to fetch its files.
pub struct FileFetcher<'a> {
    pub link: Option<&'a ServerLink>,
    pub cache: &'a Mutex<VerifiedFileCache>,
}

impl FileFetcher<'_> {
    /// Fetches and verifies a file of a skill that a model reads.
    pub async fn fetch_file(
        &self,
        entry: &RemoteSkill,
        uri: &str,
    ) -> Result<VerifiedFile, ToolError> {
        let declared = find_declaration(entry, uri)?;
        if let Some(declared) = declared {
            // A cached file with the listed digest is current. The frontmatter in the list can be
            // another.
            let cached = self.cache.lock().get(declared.digest);
            if let Some(file) = cached {
                return check_size(declared, file.text.len() as u64)
                    .and_then(|()| check_frontmatter(entry, uri, &file.text))
                    .map(|()| file)
                    .inspect_err(|error| entry.mark_main_rejected(uri, error));
            }
        }

        let fetched = self.fetch_verified(entry, uri, declared).await?;
        let VerifiedBytes { digest, content } = fetched;
        let text = String::from_utf8(content.bytes)
            .map_err(|_| ToolError::from_code(ToolErrorCode::NotText, "the file is not text"))?;
        let file = VerifiedFile::new(digest, text);

        // A file without a listed digest cannot be checked later, so it is fetched for each page.
        if declared.is_some() {
            self.cache.lock().insert(&file);
        }
        Ok(file)
    }

    /// Fetches and verifies a file of a skill, which need not be text.
    pub async fn fetch_bytes(&self, entry: &RemoteSkill, uri: &str) -> Result<Vec<u8>, ToolError> {
        let declared = find_declaration(entry, uri)?;
        let fetched = self.fetch_verified(entry, uri, declared).await?;
        Ok(fetched.content.bytes)
    }

    async fn fetch_verified(
        &self,
        entry: &RemoteSkill,
        uri: &str,
        declared: Option<DeclaredFile<'_>>,
    ) -> Result<VerifiedBytes, ToolError> {
        let Some(ServerLink { peer, messages }) = self.link else {
            let message = "the MCP server does not respond yet";
            return Err(ToolError::from_code(
                ToolErrorCode::SourceUnavailable,
                message,
            ));
        };
        // Only a declared size says that a large file is worth its turn.
        let size = declared.and_then(|declared| declared.size);
        let size = size.filter(|size| *size > SMALL_FILE_BYTES);
        let content = match size {
            None => FileContent {
                bytes: read_contents(peer, uri, SMALL_FILE_BYTES).await?,
                turn: None,
            },
            Some(size) => {
                let turn = take_turn().await;
                let _expected = messages.expect_large();
                FileContent {
                    bytes: read_contents(peer, uri, size).await?,
                    turn: Some(turn),
                }
            }
        };
        let digest = verify_bytes(entry, uri, declared, &content.bytes)?;
        Ok(VerifiedBytes { digest, content })
    }
}

/// Content of a file that passed verification.
struct VerifiedBytes {
    digest: String,
    content: FileContent,
}

/// Returns the declaration of a file; `None` if the server declares no files.
fn find_declaration<'a>(
    entry: &'a RemoteSkill,
    uri: &str,
) -> Result<Option<DeclaredFile<'a>>, ToolError> {
    match entry.expected_file(uri) {
        ExpectedFile::Missing => {
            let message = "the skill has no such file";
            Err(ToolError::from_code(
                ToolErrorCode::ResourceNotFound,
                message,
            ))
        }
        ExpectedFile::Declared(declared) => Ok(Some(declared)),
        ExpectedFile::Undeclared => Ok(None),
    }
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
        ResourceContents::BlobResourceContents { uri, blob, .. } => (uri, decode_in_place(blob)),
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

/// Decodes base64 into the memory of its text.
fn decode_in_place(text: String) -> Result<Vec<u8>, DecodeSliceError> {
    let mut bytes = text.into_bytes();
    let mut buffer = [0; DECODED_CHUNK];
    let (mut read, mut written) = (0, 0);
    while read < bytes.len() {
        let end = (read + DECODED_CHUNK / 3 * 4).min(bytes.len());
        let decoded = STANDARD.decode_slice(&bytes[read..end], &mut buffer)?;
        // The decoded bytes are fewer than those that were read.
        bytes[written..written + decoded].copy_from_slice(&buffer[..decoded]);
        (read, written) = (end, written + decoded);
    }
    bytes.truncate(written);
    Ok(bytes)
}

/// Returns the digest of a file, if the file matches the list. If a SKILL.md fails the check, no file
/// of its skill is used any more.
fn verify_bytes(
    entry: &RemoteSkill,
    uri: &str,
    declared: Option<DeclaredFile<'_>>,
    bytes: &[u8],
) -> Result<String, ToolError> {
    let digest = sha256_digest(bytes);
    let checked = match declared {
        Some(declared) => check_declaration(declared, bytes.len() as u64, &digest),
        None => Ok(()),
    };
    checked
        .and_then(|()| check_main_file(entry, uri, bytes))
        .map(|()| digest)
        .inspect_err(|error| entry.mark_main_rejected(uri, error))
}

/// Checks the size and the digest of a file against the list.
pub fn check_declaration(
    declared: DeclaredFile<'_>,
    size: u64,
    digest: &str,
) -> Result<(), ToolError> {
    check_size(declared, size)?;
    if declared.digest != digest {
        let reason = "the digest of the file differs from the list";
        return Err(not_verified_error(reason));
    }
    Ok(())
}

fn check_size(declared: DeclaredFile<'_>, size: u64) -> Result<(), ToolError> {
    if let Some(listed) = declared.size.filter(|listed| *listed != size) {
        let reason = format!("the file has {size} bytes; the list declares {listed}");
        return Err(not_verified_error(&reason));
    }
    Ok(())
}

/// Checks that a SKILL.md is text with the frontmatter of the list.
fn check_main_file(entry: &RemoteSkill, uri: &str, bytes: &[u8]) -> Result<(), ToolError> {
    if entry.uri != uri {
        return Ok(());
    }
    let text = str::from_utf8(bytes)
        .map_err(|error| not_verified_error(&format!("the SKILL.md is not text: {error}")))?;
    check_frontmatter(entry, uri, text)
}

/// Checks the frontmatter of a SKILL.md against the list. Other files have none.
pub fn check_frontmatter(entry: &RemoteSkill, uri: &str, text: &str) -> Result<(), ToolError> {
    if entry.uri != uri {
        return Ok(());
    }
    match find_difference(text, &entry.frontmatter, entry.has_all_fields) {
        None => Ok(()),
        Some(difference) => {
            let reason = format!("the SKILL.md differs from the list: {difference}");
            Err(not_verified_error(&reason))
        }
    }
}

pub fn not_verified_error(reason: &str) -> ToolError {
    ToolError::from_code(ToolErrorCode::NotVerified, reason)
}

pub fn too_large_error(size: u64, limit: u64) -> ToolError {
    let message = format!("the file has {size} bytes; the limit is {limit}");
    ToolError::from_code(ToolErrorCode::TooLarge, &message)
}

pub fn invalid_response(reason: &str) -> ToolError {
    invalid_response_error("the MCP server", reason)
}

/// Returns the error of a failed call for a model.
pub fn tool_error(error: &ServiceError) -> ToolError {
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

#[cfg(test)]
mod tests {
    use super::{DECODED_CHUNK, STANDARD, decode_in_place};
    use base64::Engine as _;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn decoding_in_place_is_decoding(size in 0..3 * DECODED_CHUNK, byte: u8) {
            let bytes: Vec<u8> = (0..size).map(|at| at.to_le_bytes()[0].wrapping_mul(byte)).collect();
            let decoded = decode_in_place(STANDARD.encode(&bytes)).expect("base64");
            prop_assert_eq!(decoded, bytes);
        }

        #[test]
        fn a_text_that_is_no_base64_is_an_error(text in "[A-Za-z=]{0,40}") {
            prop_assert_eq!(decode_in_place(text.clone()).is_ok(), STANDARD.decode(&text).is_ok());
        }
    }
}
