//! Large files of MCP servers and sites. The SHA-256 of a file is of its whole content, so the content is in
//! memory as a whole, and with it the message that has it. Therefore the process fetches one large file at a
//! time.

use super::limits::{MAX_CACHED_BYTES, MAX_FILE_BYTES, SMALL_FILE_BYTES};
use crate::network::http_client::next_chunk;
use crate::sources::verified_file::{ContentCache, VerifiedFile};
use caproot_core::sync::Mutex;
use caproot_core::wire::ContentDigest;
use tokio::sync::{Semaphore, SemaphorePermit};

static TURNS: Semaphore = Semaphore::const_new(1);
/// Last large text, so that its next page needs no fetch.
static LAST_TEXT: Mutex<Option<VerifiedFile>> = Mutex::new(None);

/// Turn of a large file. Hold the turn until only the content of the file is left.
pub type FileTurn = SemaphorePermit<'static>;

/// Waits for the turn of a large file. The last large text makes room.
pub async fn take_turn() -> Option<FileTurn> {
    // The semaphore is never closed.
    let turn = TURNS.acquire().await.ok();
    LAST_TEXT.lock().take();
    turn
}

/// Content of a file, with its turn if the file is large.
#[derive(Debug)]
pub struct FileContent {
    pub bytes: Vec<u8>,
    pub turn: Option<FileTurn>,
}

/// Latest verified texts of a server. The process has one large text, which is that of the last server.
#[derive(Debug)]
pub struct VerifiedFileCache(ContentCache);

impl Default for VerifiedFileCache {
    fn default() -> Self {
        Self(ContentCache::new(MAX_CACHED_BYTES))
    }
}

impl VerifiedFileCache {
    /// Returns the file with a digest, if it is cached. Files with one digest have the same bytes.
    pub fn find_file(&self, digest: ContentDigest) -> Option<VerifiedFile> {
        self.0.get(digest).or_else(|| {
            let last = LAST_TEXT.lock().clone();
            last.filter(|file| file.digest == digest)
        })
    }

    /// Adds a file. A large text takes the place of the last one.
    pub fn insert_file(&self, file: &VerifiedFile) {
        if file.text.len() as u64 > SMALL_FILE_BYTES {
            *LAST_TEXT.lock() = Some(file.clone());
        } else {
            self.0.put(file);
        }
    }
}

/// Reads the body of a file.
pub async fn read_file_body(mut response: reqwest::Response) -> Result<FileContent, String> {
    let mut content = FileContent {
        bytes: Vec::new(),
        turn: None,
    };
    while let Some(chunk) = next_chunk(&mut response).await? {
        let bytes = (content.bytes.len() + chunk.len()) as u64;
        if bytes > MAX_FILE_BYTES {
            return Err(format!("the response is over {MAX_FILE_BYTES} bytes"));
        }
        if bytes > SMALL_FILE_BYTES && content.turn.is_none() {
            content.turn = take_turn().await;
        }
        content.bytes.extend_from_slice(&chunk);
    }
    Ok(content)
}
