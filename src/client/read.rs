//! Reads a file: joins the pages into the exact bytes of the file.

use super::call::{CallError, Client, ServiceClient, error_reason};
use crate::proto::caproot::v1::read_resource_response::Body;
use crate::proto::caproot::v1::{ErrorReason, ReadResourceRequest, ReadResourceResponse};
use std::io;

/// How often a read starts again if the file changed before the output received bytes.
const MAX_RESTARTS: usize = 3;
/// Maximum size of a page, and the size without `max_bytes`: the limits of the daemon.
const MAX_PAGE_BYTES: usize = 1 << 20;
const DEFAULT_PAGE_BYTES: usize = 8_192;
/// Maximum size of a cursor. The cursors of caproot have a fifth of this size.
pub const MAX_CURSOR_BYTES: usize = 512;

pub async fn read_resource(
    client: &Client,
    request: &ReadResourceRequest,
    hold: usize,
    out: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> Result<ReadResourceResponse, CallError> {
    let mut restarts = 0;
    loop {
        let mut given = false;
        let mut note = |bytes: &[u8]| {
            given = true;
            out(bytes)
        };
        match read_pages(client, request.clone(), hold, &mut note).await {
            Err(CallError::Status(status))
                if error_reason(&status) == Some(ErrorReason::ResourceChanged) =>
            {
                if given {
                    return Err(CallError::ChangedDuringRead);
                }
                if restarts == MAX_RESTARTS {
                    return Err(CallError::Status(status));
                }
                restarts += 1;
            }
            outcome => return outcome,
        }
    }
}

pub async fn read_page(
    client: &Client,
    request: &ReadResourceRequest,
) -> Result<ReadResourceResponse, CallError> {
    let bound = match usize::try_from(request.max_bytes) {
        Ok(requested @ 1..) => requested.min(MAX_PAGE_BYTES),
        _ => DEFAULT_PAGE_BYTES,
    };
    let call =
        |mut service: ServiceClient, request| async move { service.read_resource(request).await };
    let page = client.call_with_retries(request.clone(), call).await?;
    let content = match &page.body {
        Some(Body::Contents(text)) => text.len(),
        Some(Body::Data(data)) => data.len(),
        None => 0,
    };
    if content > bound {
        return Err(CallError::InvalidResponse("a page of a file is over its size limit"));
    }
    if page.next_cursor.len() > MAX_CURSOR_BYTES {
        return Err(CallError::InvalidResponse("a cursor is over 512 bytes"));
    }
    Ok(page)
}

async fn read_pages(
    client: &Client,
    mut request: ReadResourceRequest,
    hold: usize,
    out: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> Result<ReadResourceResponse, CallError> {
    let mut waiting = Vec::new();
    let mut file = FilePageAssembler::default();
    loop {
        let page = read_page(client, &request).await?;
        let cursor = file.add_page(page, &mut waiting).map_err(CallError::InvalidResponse)?;
        if waiting.len() > hold || cursor.is_none() {
            out(&waiting)?;
            waiting.clear();
        }
        match cursor {
            Some(cursor) => request.cursor = cursor,
            None => return Ok(file.response),
        }
    }
}

/// Pages so far, without their bytes.
#[derive(Default)]
struct FilePageAssembler {
    response: ReadResourceResponse,
    bytes: u64,
    has_first_page: bool,
}

impl FilePageAssembler {
    /// Appends a page's bytes to `bytes`. Returns the cursor of the next page, if there is one.
    /// Each page has content, so that the read ends.
    fn add_page(
        &mut self,
        page: ReadResourceResponse,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<String>, &'static str> {
        let ReadResourceResponse { body, next_cursor, not_modified, .. } = page;
        let (empty, content) = match body {
            Some(Body::Contents(text)) => (Body::Contents(String::new()), text.into_bytes()),
            Some(Body::Data(data)) => (Body::Data(Vec::new()), data),
            None => return Err("a page of a file has no body"),
        };
        if not_modified {
            return Err("a file is reported as not modified, but the request had no digest");
        }
        if self.has_first_page {
            if page.digest != self.response.digest || page.total_bytes != self.response.total_bytes
            {
                return Err("the pages of one file are of different versions");
            }
            if self.response.body.as_ref() != Some(&empty) {
                return Err("the pages of one file are partly text and partly bytes");
            }
        } else {
            self.has_first_page = true;
            self.response = ReadResourceResponse {
                body: Some(empty),
                next_cursor: String::new(),
                truncated: false,
                ..page
            };
        }
        self.bytes = self.bytes.saturating_add(content.len() as u64);
        if self.bytes > self.response.total_bytes {
            return Err("the pages of a file are larger than the file");
        }
        if next_cursor.is_empty() {
            let complete = self.bytes == self.response.total_bytes;
            bytes.extend(content);
            return complete.then_some(None).ok_or("the pages of a file are smaller than the file");
        }
        if content.is_empty() {
            return Err("a page of a file is empty, and more follows");
        }
        bytes.extend(content);
        Ok(Some(next_cursor))
    }
}

#[cfg(test)]
mod tests {
    use super::FilePageAssembler;
    use crate::proto::caproot::v1::ReadResourceResponse;
    use crate::proto::caproot::v1::read_resource_response::Body;

    fn page(contents: &str, total_bytes: u64, next: &str) -> ReadResourceResponse {
        ReadResourceResponse {
            body: Some(Body::Contents(contents.into())),
            total_bytes,
            next_cursor: next.into(),
            truncated: !next.is_empty(),
            digest: "sha256:1".into(),
            ..ReadResourceResponse::default()
        }
    }

    #[test]
    fn pages_are_joined() {
        let (mut file, mut bytes) = (FilePageAssembler::default(), Vec::new());
        assert_eq!(file.add_page(page("ab", 3, "1"), &mut bytes), Ok(Some("1".into())));
        assert_eq!(file.add_page(page("c", 3, ""), &mut bytes), Ok(None));
        assert_eq!(bytes, b"abc");
        assert_eq!(file.response, page("", 3, ""));
        assert_eq!(
            FilePageAssembler::default().add_page(page("", 0, ""), &mut bytes),
            Ok(None),
            "an empty file"
        );
    }

    #[test]
    fn endless_and_truncated_files_are_rejected() {
        let data = ReadResourceResponse { body: Some(Body::Data(vec![1])), ..page("", 9, "2") };
        let other = ReadResourceResponse { digest: "sha256:2".into(), ..page("a", 9, "2") };
        let bare = ReadResourceResponse { body: None, ..page("", 9, "2") };
        let same = ReadResourceResponse { not_modified: true, ..page("a", 9, "2") };
        for second in [
            page("", 9, "2"),
            page("0123456789", 9, "2"),
            page("b", 9, ""),
            page("b", 8, "2"),
            data,
            other,
            bare,
            same,
        ] {
            let (mut file, mut bytes) = (FilePageAssembler::default(), Vec::new());
            assert!(file.add_page(page("a", 9, "1"), &mut bytes).is_ok());
            assert!(file.add_page(second.clone(), &mut bytes).is_err(), "{second:?}");
        }
    }
}
