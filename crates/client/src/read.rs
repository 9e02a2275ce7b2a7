//! Reads a file: joins the pages into the exact bytes of the file.

use super::call::{CallError, Client};
use super::pages::RestartCounter;
use caproot_core::proto::caproot::v1::read_resource_response::Body;
use caproot_core::proto::caproot::v1::{ErrorReason, ReadResourceRequest, ReadResourceResponse};
use caproot_core::wire::ContentDigest;
use caproot_core::wire::limits::{DEFAULT_READ_BYTES, MAX_READ_BYTES};
use sha2::{Digest as _, Sha256};
use std::io;

/// Maximum size of a cursor. The cursors of caproot have at most 107 bytes.
pub const MAX_CURSOR_BYTES: usize = 512;

impl Client {
    /// Reads a whole file. `request.cursor` and `request.if_none_match` must be empty.
    ///
    /// The bytes go to `out` in order. The first `hold` bytes are buffered until more bytes have
    /// come or the file is complete: if a small file changes during the read, the read starts again,
    /// at most three times. A file also counts as changed if its bytes do not have the digest of the
    /// response. The response has no cursor. Its body is empty, and of the file's kind.
    pub async fn read_resource(
        &mut self,
        request: &ReadResourceRequest,
        hold: usize,
        out: &mut (dyn FnMut(&[u8]) -> io::Result<()> + Send),
    ) -> Result<ReadResourceResponse, CallError> {
        let mut restarts = RestartCounter::default();
        loop {
            let mut file = FileJoiner::new(hold, &mut *out);
            match file.request_pages(self, request.clone()).await {
                Ok(()) => return Ok(file.response),
                Err(error) if !is_changed(&error) => return Err(error),
                Err(_) if file.has_written => return Err(CallError::ChangedDuringRead),
                Err(_) if restarts.try_restart() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads one page of a file. A page over its size limit is an error. If the page is the whole file
    /// and does not have its digest, the file changed during the read, and the page is read again, at
    /// most three times.
    pub async fn read_page(
        &self,
        request: &ReadResourceRequest,
    ) -> Result<ReadResourceResponse, CallError> {
        let mut restarts = RestartCounter::default();
        loop {
            let page = request_page(self, request).await?;
            let is_whole = request.cursor.is_empty() && page.next_cursor.is_empty();
            let Some(body) = page.body.as_ref().filter(|_| is_whole) else {
                return Ok(page);
            };

            if digest_text(Sha256::new_with_prefix(content_of(body))) == page.digest {
                return Ok(page);
            }
            // The bytes and the digest are of different versions.
            if !restarts.try_restart() {
                return Err(CallError::DigestMismatch);
            }
        }
    }
}

/// Whether a read failed because the file changed.
fn is_changed(error: &CallError) -> bool {
    matches!(error, CallError::DigestMismatch)
        || error.reason() == Some(ErrorReason::ResourceChanged)
}

fn content_of(body: &Body) -> &[u8] {
    match body {
        Body::Contents(text) => text.as_bytes(),
        Body::Data(data) => data,
    }
}

fn digest_text(hasher: Sha256) -> String {
    ContentDigest(hasher.finalize().into()).to_string()
}

async fn request_page(
    client: &Client,
    request: &ReadResourceRequest,
) -> Result<ReadResourceResponse, CallError> {
    let bound = match usize::try_from(request.max_bytes) {
        Ok(requested @ 1..) => requested.min(MAX_READ_BYTES),
        _ => DEFAULT_READ_BYTES,
    };
    let page = client.call_with_retries(request.clone()).await?.message;

    let content = page.body.as_ref().map_or(&[][..], content_of);
    if content.len() > bound {
        return Err(CallError::InvalidResponse(
            "a page of a file is over its size limit",
        ));
    }
    if page.next_cursor.len() > MAX_CURSOR_BYTES {
        return Err(CallError::InvalidResponse("a cursor is over 512 bytes"));
    }
    Ok(page)
}

/// Joiner of the pages of a file. Writes the bytes to the output.
struct FileJoiner<'a> {
    /// Response without contents.
    response: ReadResourceResponse,
    bytes: u64,
    /// Digest of the bytes so far.
    hasher: Sha256,
    /// How many bytes are buffered before the first are written.
    hold: usize,
    buffered: Vec<u8>,
    out: &'a mut (dyn FnMut(&[u8]) -> io::Result<()> + Send),
    has_written: bool,
}

impl<'a> FileJoiner<'a> {
    fn new(hold: usize, out: &'a mut (dyn FnMut(&[u8]) -> io::Result<()> + Send)) -> Self {
        Self {
            response: ReadResourceResponse::default(),
            bytes: 0,
            hasher: Sha256::new(),
            hold,
            buffered: Vec::new(),
            out,
            has_written: false,
        }
    }

    /// Requests pages and adds them, up to the last page.
    async fn request_pages(
        &mut self,
        client: &Client,
        mut request: ReadResourceRequest,
    ) -> Result<(), CallError> {
        while let Some(cursor) = self.add_page(request_page(client, &request).await?)? {
            request.cursor = cursor;
        }
        Ok(())
    }

    /// Adds a page. Returns the cursor of the next page; `None` after the last page.
    fn add_page(&mut self, page: ReadResourceResponse) -> Result<Option<String>, CallError> {
        let cursor = self.buffer_page(page).map_err(CallError::InvalidResponse)?;
        if cursor.is_none() && digest_text(self.hasher.clone()) != self.response.digest {
            return Err(CallError::DigestMismatch);
        }
        if self.buffered.len() > self.hold || cursor.is_none() {
            // The flag is set before the write, because a failed write may have written a part.
            self.has_written = true;
            (self.out)(&self.buffered)?;
            self.buffered.clear();
        }
        Ok(cursor)
    }

    /// Buffers the bytes of a page. Returns the cursor of the next page, if there is one.
    /// Each page has content, so that the read ends.
    fn buffer_page(&mut self, page: ReadResourceResponse) -> Result<Option<String>, &'static str> {
        let ReadResourceResponse {
            body,
            next_cursor,
            not_modified,
            ..
        } = page;
        let (empty, content) = match body {
            Some(Body::Contents(text)) => (Body::Contents(String::new()), text.into_bytes()),
            Some(Body::Data(data)) => (Body::Data(Vec::new()), data),
            None => return Err("a page of a file has no body"),
        };
        if not_modified {
            return Err("a file is reported as not modified, but the request had no digest");
        }

        if self.response.body.is_some() {
            if page.digest != self.response.digest || page.total_bytes != self.response.total_bytes
            {
                return Err("the pages of one file are of different versions");
            }
            if self.response.body.as_ref() != Some(&empty) {
                return Err("the pages of one file are partly text and partly bytes");
            }
        } else {
            self.response = ReadResourceResponse {
                body: Some(empty),
                next_cursor: String::new(),
                truncated: false,
                ..page
            };
        }

        self.bytes = self.bytes.saturating_add(content.len() as u64);
        self.hasher.update(&content);
        if self.bytes > self.response.total_bytes {
            return Err("the pages of a file are larger than the file");
        }

        let has_next = !next_cursor.is_empty();
        if !has_next && self.bytes < self.response.total_bytes {
            return Err("the pages of a file are smaller than the file");
        }
        if has_next && content.is_empty() {
            return Err("a page of a file is empty, and more follows");
        }
        self.buffered.extend(content);
        Ok(has_next.then_some(next_cursor))
    }
}

#[cfg(test)]
mod tests {
    use super::{FileJoiner, digest_text};
    use caproot_core::proto::caproot::v1::ReadResourceResponse;
    use caproot_core::proto::caproot::v1::read_resource_response::Body;
    use sha2::{Digest as _, Sha256};

    /// Returns a page of a file that begins with `abcdefghi`.
    fn page(contents: &str, total_bytes: u64, next: &str) -> ReadResourceResponse {
        let whole = &b"abcdefghi"[..usize::try_from(total_bytes).expect("at most nine bytes")];
        ReadResourceResponse {
            body: Some(Body::Contents(contents.into())),
            total_bytes,
            next_cursor: next.into(),
            truncated: !next.is_empty(),
            digest: digest_text(Sha256::new_with_prefix(whole)),
            ..ReadResourceResponse::default()
        }
    }

    /// Joins pages. Returns the contents, or `None` if the daemon's pages are invalid.
    fn join(
        pages: impl IntoIterator<Item = ReadResourceResponse>,
    ) -> Option<(Vec<u8>, ReadResourceResponse)> {
        let mut written = Vec::new();
        let mut out = |bytes: &[u8]| {
            written.extend_from_slice(bytes);
            Ok(())
        };
        let mut file = FileJoiner::new(1, &mut out);
        for page in pages {
            file.add_page(page).ok()?;
        }
        let response = file.response;
        Some((written, response))
    }

    #[test]
    fn pages_are_joined() {
        let file = join([page("ab", 3, "1"), page("c", 3, "")]);
        assert_eq!(file, Some((b"abc".to_vec(), page("", 3, ""))));
        assert!(join([page("a", 9, "1"), page("bcdefghi", 9, "")]).is_some());
        assert_eq!(
            join([page("", 0, "")]),
            Some((Vec::new(), page("", 0, ""))),
            "an empty file"
        );
    }

    #[test]
    fn endless_and_truncated_files_are_rejected() {
        let data = ReadResourceResponse {
            body: Some(Body::Data(vec![1])),
            ..page("", 9, "2")
        };
        let other = ReadResourceResponse {
            digest: "sha256:2".into(),
            ..page("a", 9, "2")
        };
        let bare = ReadResourceResponse {
            body: None,
            ..page("", 9, "2")
        };
        let same = ReadResourceResponse {
            not_modified: true,
            ..page("a", 9, "2")
        };
        for second in [
            page("", 9, "2"),
            page("0123456789", 9, "2"),
            page("b", 9, ""),
            page("b", 8, "2"),
            page("bcdefghX", 9, ""),
            data,
            other,
            bare,
            same,
        ] {
            assert!(join([page("a", 9, "1")]).is_some());
            assert_eq!(
                join([page("a", 9, "1"), second.clone()]),
                None,
                "{second:?}"
            );
        }
    }
}
