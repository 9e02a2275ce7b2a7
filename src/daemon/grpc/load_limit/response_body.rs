//! Response body that counts its bytes against a quota until the connection has sent them. A caller
//! that reads nothing can only buffer a limited number of bytes.

use crate::daemon::grpc::errors::overloaded;
use crate::daemon::grpc::quota::{Quota, QuotaExceeded, QuotaPermit};
use crate::daemon::model::QuotaKey;
use bytes::Bytes;
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tonic::Status;
use tonic::body::Body;

/// Response body with a quota.
pub struct CountedResponseBody {
    body: Body,
    /// Quota of the chunks.
    quota: ResponseQuota,
    /// Whether an error status replaced the rest of the body.
    is_aborted: bool,
}

/// Permits of one response.
pub struct ResponseQuota {
    quota_key: QuotaKey,
    byte_quota: Quota,
    /// Bytes that are in memory from the start, until the first chunk acquires the permits for all.
    buffered_bytes: Option<usize>,
    /// Permit for the buffered bytes.
    buffer_permit: Option<Arc<QuotaPermit>>,
    /// Permit of the call, shared by all chunks.
    call_permit: Arc<QuotaPermit>,
}

/// Chunk of a response with its permits.
struct CountedChunk {
    chunk: Bytes,
    _byte_permit: Arc<QuotaPermit>,
    _call_permit: Arc<QuotaPermit>,
}

impl CountedResponseBody {
    pub fn new(body: Body, quota: ResponseQuota) -> Self {
        Self {
            body,
            quota,
            is_aborted: false,
        }
    }
}

impl ResponseQuota {
    pub fn new(
        quota_key: QuotaKey,
        byte_quota: Quota,
        buffered_bytes: u64,
        call_permit: QuotaPermit,
    ) -> Self {
        let buffered_bytes = usize::try_from(buffered_bytes)
            .ok()
            .filter(|bytes| *bytes > 0);
        let call_permit = Arc::new(call_permit);
        Self {
            quota_key,
            byte_quota,
            buffered_bytes,
            buffer_permit: None,
            call_permit,
        }
    }

    fn attach_permits(&mut self, chunk: Bytes) -> Result<Bytes, QuotaExceeded> {
        if let Some(buffered_bytes) = self.buffered_bytes.take() {
            let permit = self.byte_quota.acquire(&self.quota_key, buffered_bytes)?;
            self.buffer_permit = Some(Arc::new(permit));
        }
        let byte_permit = match &self.buffer_permit {
            Some(permit) => permit.clone(),
            None => Arc::new(self.byte_quota.acquire(&self.quota_key, chunk.len())?),
        };
        Ok(Bytes::from_owner(CountedChunk {
            chunk,
            _byte_permit: byte_permit,
            _call_permit: self.call_permit.clone(),
        }))
    }
}

impl http_body::Body for CountedResponseBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.is_aborted {
            return Poll::Ready(None);
        }

        let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
            Some(Ok(frame)) => frame,
            end @ (Some(Err(_)) | None) => return Poll::Ready(end),
        };

        let chunk = match frame.into_data() {
            Ok(chunk) => chunk,
            Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
        };

        Poll::Ready(Some(match self.quota.attach_permits(chunk) {
            Ok(chunk) => Ok(Frame::data(chunk)),
            Err(exceeded) => {
                self.is_aborted = true;
                let mut trailers = HeaderMap::new();
                overloaded(exceeded).add_header(&mut trailers)?;
                Ok(Frame::trailers(trailers))
            }
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.is_aborted || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

impl AsRef<[u8]> for CountedChunk {
    fn as_ref(&self) -> &[u8] {
        &self.chunk
    }
}
