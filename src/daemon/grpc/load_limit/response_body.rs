//! Response body that counts its bytes against a quota until the connection has sent them. A caller
//! that reads nothing can only buffer a limited number of bytes.

use crate::daemon::grpc::errors::overloaded;
use crate::daemon::grpc::quota::{QuotaExceeded, QuotaPermit};
use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as _, Frame};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tonic::Status;
use tonic::body::Body;

/// Response body with a quota.
pub struct CountedResponseBody {
    body: Body,
    /// Empty permit of the quota of the chunks.
    no_bytes: QuotaPermit,
    /// Bytes that are in memory from the start. The first chunk acquires the permits for all.
    buffered_bytes: Option<usize>,
    /// Permit for the buffered bytes.
    buffer_permit: Option<Arc<QuotaPermit>>,
    /// Permit of the call, shared by all chunks.
    call_permit: Arc<QuotaPermit>,
    /// Whether an error status replaced the rest of the body.
    is_aborted: bool,
}

/// Chunk of a response with its permits.
struct CountedChunk {
    chunk: Bytes,
    _byte_permit: Arc<QuotaPermit>,
    _call_permit: Arc<QuotaPermit>,
}

impl CountedResponseBody {
    /// Counts the chunks of a body by the quota of `no_bytes`.
    pub fn new(body: Body, no_bytes: QuotaPermit, call_permit: QuotaPermit) -> Self {
        // The lower bound is in memory from the start.
        let buffered_bytes = usize::try_from(body.size_hint().lower()).ok();
        Self {
            body,
            no_bytes,
            buffered_bytes: buffered_bytes.filter(|bytes| *bytes > 0),
            buffer_permit: None,
            call_permit: Arc::new(call_permit),
            is_aborted: false,
        }
    }

    fn attach_permits(&mut self, chunk: Bytes) -> Result<Bytes, QuotaExceeded> {
        let byte_permit = if let Some(permit) = &self.buffer_permit {
            permit.clone()
        } else {
            let bytes = self.buffered_bytes.unwrap_or(chunk.len());
            Arc::new(self.no_bytes.acquire_another(bytes)?)
        };
        self.buffer_permit = self.buffered_bytes.map(|_| byte_permit.clone());

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

        let chunk = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(chunk) => chunk,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            },
            end @ (Some(Err(_)) | None) => return Poll::Ready(end),
        };

        Poll::Ready(Some(match self.attach_permits(chunk) {
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
}

impl AsRef<[u8]> for CountedChunk {
    fn as_ref(&self) -> &[u8] {
        &self.chunk
    }
}
