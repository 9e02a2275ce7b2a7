//! Files of an MCP server: fetched whole and verified against the list. A file that fails verification is
//! never returned.

use super::frontmatter::find_difference;
use super::limits::{MAX_CACHED_FILES, MAX_FILE_BYTES};
use super::remote_skill::{DeclaredFile, ExpectedFile, RemoteSkill};
use super::{McpSourceState, invalid_response_error};
use crate::session::request_metrics::RequestCounter;
use crate::session::sources::verified_file::VerifiedFile;
use crate::session::{ToolError, ToolErrorCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use caproot_core::sync::Mutex;
use rmcp::RoleClient;
use rmcp::model::{
    ErrorCode, ReadResourceRequestParams, ReadResourceResponse, ResourceContents, sha256_digest,
};
use rmcp::service::{Peer, ServiceError};
use std::collections::VecDeque;

/// Error codes of a server that does not have a file.
const MISSING_FILE_CODES: [ErrorCode; 3] = [
    ErrorCode::RESOURCE_NOT_FOUND,
    ErrorCode::INVALID_PARAMS,
    ErrorCode::METHOD_NOT_FOUND,
];

/// Latest verified files, the most recent first.
#[derive(Debug, Default)]
pub struct VerifiedFileCache(VecDeque<(String, VerifiedFile)>);

impl VerifiedFileCache {
    /// Returns the file at a URI, if this version is cached.
    fn get(&self, uri: &str, digest: &str) -> Option<VerifiedFile> {
        let found = self
            .0
            .iter()
            .find(|(cached_uri, file)| cached_uri == uri && file.digest() == digest);
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
