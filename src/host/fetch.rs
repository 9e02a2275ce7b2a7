//! A file of a server, fetched and held to what was promised of it. Nothing of a file that is not what it
//! is said to be is handed out. Leaves pages of it to `cursor`.

use super::entry::{Entry, Promise};
use super::follow::Held;
use super::frontmatter::difference;
use super::limits::{MAX_FILE_BYTES, MAX_HELD_FILES};
use crate::session::{Code, Refusal};
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
pub(super) struct File {
    pub(super) digest: String,
    pub(super) text: Arc<str>,
}

/// Files that were verified last, the latest first.
#[derive(Debug, Default)]
pub(super) struct Fetched(VecDeque<(String, File)>);

impl Fetched {
    /// The file at a URI, if it is held and is this version.
    fn get(&self, uri: &str, digest: &str) -> Option<File> {
        let found = self.0.iter().find(|(its, file)| its == uri && file.digest == digest);
        found.map(|(_, file)| file.clone())
    }

    fn put(&mut self, uri: &str, file: &File) {
        self.0.retain(|(its, _)| its != uri);
        self.0.push_front((uri.to_owned(), file.clone()));
        self.0.truncate(MAX_HELD_FILES);
    }
}

/// The file of a skill at a URI, whole.
pub(super) async fn file(
    held: &Held,
    entry: &Entry,
    uri: &str,
    fetched: &Mutex<Fetched>,
) -> Result<File, Refusal> {
    let promise = match entry.promise(uri) {
        Promise::None => {
            let message = "the skill has no such file";
            return Err(Refusal::said(Code::ResourceNotFound, message));
        }
        Promise::Exactly(promise) => Some(promise),
        Promise::Anything => None,
    };
    if let Some(promise) = promise {
        if promise.size > MAX_FILE_BYTES {
            return Err(too_large(promise.size));
        }
        // What has the digest that is promised now is the file, whenever it came.
        if let Some(file) = lock(fetched).get(uri, &promise.digest) {
            return Ok(file);
        }
    }
    let bytes = ask(held, uri).await?;
    verified(entry, uri, promise, bytes).inspect(|file| {
        // Of what nothing is promised, the next page is asked for again.
        if promise.is_some() {
            lock(fetched).put(uri, file);
        }
    })
}

/// The bytes that the server gives for a URI.
async fn ask(held: &Held, uri: &str) -> Result<Vec<u8>, Refusal> {
    let Some(peer) = &held.peer else {
        return Err(Refusal::said(Code::SourceUnavailable, "the MCP server does not answer yet"));
    };
    let answer = peer.read_resource_once(ReadResourceRequestParams::new(uri)).await;
    let contents = match answer.map_err(|error| refusal(&error))? {
        ReadResourceResponse::Complete(result) => result.contents,
        _ => return Err(nonsense("it asks for something before it gives a file")),
    };
    let Ok([contents]) = <[ResourceContents; 1]>::try_from(contents) else {
        return Err(nonsense("a file is given as several, or none"));
    };
    let (its, bytes) = match contents {
        ResourceContents::TextResourceContents { uri, text, .. } => (uri, Ok(text.into_bytes())),
        ResourceContents::BlobResourceContents { uri, blob, .. } => (uri, STANDARD.decode(blob)),
        _ => return Err(nonsense("a file is neither text nor bytes")),
    };
    if its != uri {
        return Err(nonsense("it gives another file than was asked for"));
    }
    let bytes = bytes.map_err(|_| nonsense("a file's base64 cannot be read"))?;
    let size = bytes.len() as u64;
    if size > MAX_FILE_BYTES { Err(too_large(size)) } else { Ok(bytes) }
}

/// The file, if it is what was promised, and text.
fn verified(
    entry: &Entry,
    uri: &str,
    promise: Option<&SkillResource>,
    bytes: Vec<u8>,
) -> Result<File, Refusal> {
    let is_main = entry.uri == uri;
    let rejected = |why: &str| {
        let refusal = Refusal::said(Code::NotVerified, why);
        // A skill whose SKILL.md is another's, or says something else, is not used at all.
        if is_main {
            entry.reject(&refusal);
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
        Err(_) => return Err(Refusal::said(Code::NotText, "the file is not text")),
    };
    if is_main && let Some(why) = difference(&text, &entry.frontmatter) {
        let why = format!("the SKILL.md is not what the list says of it: {why}");
        return Err(rejected(&why));
    }
    Ok(File { digest, text: text.into() })
}

fn too_large(size: u64) -> Refusal {
    let message = format!("the file has {size} bytes, and {MAX_FILE_BYTES} can be read");
    Refusal::said(Code::TooLarge, &message)
}

fn nonsense(why: &str) -> Refusal {
    Refusal::said(Code::BadAnswer, &format!("the MCP server's answer makes no sense: {why}"))
}

/// What a failed call means.
fn refusal(error: &ServiceError) -> Refusal {
    match error {
        ServiceError::McpError(error)
            if [ErrorCode::RESOURCE_NOT_FOUND, ErrorCode::INVALID_PARAMS].contains(&error.code) =>
        {
            Refusal::said(Code::ResourceNotFound, "the MCP server does not have the file now")
        }
        ServiceError::McpError(error) => {
            let message = format!("the MCP server does not give the file: {}", error.message);
            Refusal::said(Code::SourceUnavailable, &message)
        }
        ServiceError::UnexpectedResponse => nonsense("it is of another kind"),
        error => {
            let message = format!("the MCP server does not answer: {error}");
            Refusal::said(Code::SourceUnavailable, &message)
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
