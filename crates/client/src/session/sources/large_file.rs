//! Large files of MCP servers and sites. The SHA-256 of a file is of its whole content, so the content is in
//! memory as a whole, and with it the message that has it. Therefore the process fetches one large file at a
//! time.

use super::verified_file::VerifiedFile;
use crate::session::http_client::root_cause;
use caproot_core::sync::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Bytes of a file that is fetched beside others.
pub const SMALL_FILE_BYTES: u64 = 1 << 20;
/// Bytes of a file: the limit of a whole skill in the specification of MCP.
pub const MAX_FILE_BYTES: u64 = 16 << 20;

static TURNS: Semaphore = Semaphore::const_new(1);
/// Last large text, so that its next page needs no fetch.
static LAST_TEXT: Mutex<Option<VerifiedFile>> = Mutex::new(None);

/// Turn of a large file. Hold the turn until only the content of the file is left.
#[derive(Debug)]
pub struct FileTurn(#[allow(dead_code)] Option<SemaphorePermit<'static>>);

/// Waits for the turn of a large file. The last large text makes room.
pub async fn take_turn() -> FileTurn {
    // The semaphore is never closed.
    let turn = FileTurn(TURNS.acquire().await.ok());
    LAST_TEXT.lock().take();
    turn
}

/// Content of a file, with its turn if the file is large.
#[derive(Debug)]
pub struct FileContent {
    pub bytes: Vec<u8>,
    pub turn: Option<FileTurn>,
}

/// Returns the last large text, if it has this digest.
pub fn last_text(digest: &str) -> Option<VerifiedFile> {
    let last = LAST_TEXT.lock();
    last.as_ref().filter(|file| file.digest == digest).cloned()
}

/// Keeps a large text in place of the last one.
pub fn keep_text(file: &VerifiedFile) {
    *LAST_TEXT.lock() = Some(file.clone());
}

/// Reads the body of a file.
pub async fn read_file_body(mut response: reqwest::Response) -> Result<FileContent, String> {
    let mut content = FileContent {
        bytes: Vec::new(),
        turn: None,
    };
    while let Some(chunk) = response.chunk().await.map_err(|error| root_cause(&error))? {
        let bytes = (content.bytes.len() + chunk.len()) as u64;
        if bytes > MAX_FILE_BYTES {
            return Err(format!("the response is over {MAX_FILE_BYTES} bytes"));
        }
        if bytes > SMALL_FILE_BYTES && content.turn.is_none() {
            content.turn = Some(take_turn().await);
        }
        content.bytes.extend_from_slice(&chunk);
    }
    Ok(content)
}
