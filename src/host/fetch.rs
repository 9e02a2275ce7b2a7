//! A file of a server, fetched and held to what was promised of it. Nothing of a file that is not what it
//! is said to be is handed out. Leaves pages of it to `cursor`.

use super::follow::McpSourceState;
use super::frontmatter::find_difference;
use super::limits::{MAX_CACHED_FILES, MAX_FILE_BYTES};
use super::remote_skill::{ExpectedFile, RemoteSkill};
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

/// A file that was held to its promise, and is text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VerifiedFile {
    pub(super) digest: String,
    pub(super) text: Arc<str>,
}

/// Files that were verified last, the latest first.
#[derive(Debug, Default)]
pub(super) struct VerifiedFileCache(VecDeque<(String, VerifiedFile)>);

impl VerifiedFileCache {
    /// The file at a URI, if it is held and is this version.
    fn get(&self, uri: &str, digest: &str) -> Option<VerifiedFile> {
        let found = self.0.iter().find(|(its, file)| its == uri && file.digest == digest);
        found.map(|(_, file)| file.clone())
    }

    fn insert(&mut self, uri: &str, file: &VerifiedFile) {
        self.0.retain(|(its, _)| its != uri);
        self.0.push_front((uri.to_owned(), file.clone()));
        self.0.truncate(MAX_CACHED_FILES);
    }
}

/// The file of a skill at a URI, whole.
pub(super) async fn fetch_file(
    held: &McpSourceState,
    entry: &RemoteSkill,
    uri: &str,
    fetched: &Mutex<VerifiedFileCache>,
) -> Result<VerifiedFile, ToolError> {
    let promise = match entry.expected_file(uri) {
        ExpectedFile::Missing => {
            let message = "the skill has no such file";
            return Err(ToolError::from_code(ToolErrorCode::ResourceNotFound, message));
        }
        ExpectedFile::Declared(promise) => Some(promise),
        ExpectedFile::Undeclared => None,
    };
    if let Some(promise) = promise {
        if promise.size > MAX_FILE_BYTES {
            return Err(too_large_error(promise.size));
        }
        // What has the digest that is promised now is the file, whenever it came.
        if let Some(file) = lock(fetched).get(uri, &promise.digest) {
            return Ok(file);
        }
    }
    let bytes = request_bytes(held, uri).await?;
    verify_file(entry, uri, promise, bytes).inspect(|file| {
        // Of what nothing is promised, the next page is asked for again.
        if promise.is_some() {
            lock(fetched).insert(uri, file);
        }
    })
}

/// The bytes that the server gives for a URI.
async fn request_bytes(held: &McpSourceState, uri: &str) -> Result<Vec<u8>, ToolError> {
    let Some(peer) = &held.peer else {
        return Err(ToolError::from_code(
            ToolErrorCode::SourceUnavailable,
            "the MCP server does not answer yet",
        ));
    };
    let answer = peer.read_resource_once(ReadResourceRequestParams::new(uri)).await;
    let contents = match answer.map_err(|error| tool_error(&error))? {
        ReadResourceResponse::Complete(result) => result.contents,
        _ => return Err(invalid_response("it asks for something before it gives a file")),
    };
    let Ok([contents]) = <[ResourceContents; 1]>::try_from(contents) else {
        return Err(invalid_response("a file is given as several, or none"));
    };
    let (its, bytes) = match contents {
        ResourceContents::TextResourceContents { uri, text, .. } => (uri, Ok(text.into_bytes())),
        ResourceContents::BlobResourceContents { uri, blob, .. } => (uri, STANDARD.decode(blob)),
        _ => return Err(invalid_response("a file is neither text nor bytes")),
    };
    if its != uri {
        return Err(invalid_response("it gives another file than was asked for"));
    }
    let bytes = bytes.map_err(|_| invalid_response("a file's base64 cannot be read"))?;
    let size = bytes.len() as u64;
    if size > MAX_FILE_BYTES { Err(too_large_error(size)) } else { Ok(bytes) }
}

/// The file, if it is what was promised, and text.
fn verify_file(
    entry: &RemoteSkill,
    uri: &str,
    promise: Option<&SkillResource>,
    bytes: Vec<u8>,
) -> Result<VerifiedFile, ToolError> {
    let is_main = entry.uri == uri;
    let rejected = |why: &str| {
        let refusal = ToolError::from_code(ToolErrorCode::NotVerified, why);
        // A skill whose SKILL.md is another's, or says something else, is not used at all.
        if is_main {
            entry.mark_rejected(&refusal);
        }
        refusal
    };
    if let Some(promise) = promise {
        let size = bytes.len() as u64;
        if size != promise.size {
            let said = promise.size;
            return Err(rejected(&format!("the file has {size} bytes, and the list says {said}")));
        }
        if sha256_digest(&bytes) != promise.digest {
            return Err(rejected("the file is not the one that the list has the digest of"));
        }
    }
    let digest = sha256_digest(&bytes);
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if is_main => {
            return Err(rejected(&format!("the SKILL.md is no text: {error}")));
        }
        Err(_) => return Err(ToolError::from_code(ToolErrorCode::NotText, "the file is not text")),
    };
    if is_main && let Some(why) = find_difference(&text, &entry.frontmatter) {
        let why = format!("the SKILL.md is not what the list says of it: {why}");
        return Err(rejected(&why));
    }
    Ok(VerifiedFile { digest, text: text.into() })
}

fn too_large_error(size: u64) -> ToolError {
    let message = format!("the file has {size} bytes, and {MAX_FILE_BYTES} can be read");
    ToolError::from_code(ToolErrorCode::TooLarge, &message)
}

fn invalid_response(why: &str) -> ToolError {
    ToolError::from_code(
        ToolErrorCode::InvalidResponse,
        &format!("the MCP server's answer makes no sense: {why}"),
    )
}

/// What a failed call means.
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
            let message = format!("the MCP server does not give the file: {}", error.message);
            ToolError::from_code(ToolErrorCode::SourceUnavailable, &message)
        }
        ServiceError::UnexpectedResponse => invalid_response("it is of another kind"),
        error => {
            let message = format!("the MCP server does not answer: {error}");
            ToolError::from_code(ToolErrorCode::SourceUnavailable, &message)
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
