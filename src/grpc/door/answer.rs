//! An answer as it is sent: counted from when it is made until the connection has sent it, so that for
//! a caller who takes nothing only so much is made.

use crate::domain::Account;
use crate::grpc::errors::overloaded;
use crate::grpc::places::{Full, Place, Places};
use bytes::Bytes;
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tonic::Status;
use tonic::body::Body;

/// The body of an answer.
pub(super) struct Answer {
    body: Body,
    /// Where its parts are counted; `None` for a stream, which has so few of them that they are none.
    count: Option<Count>,
    /// Whether a status took the place of the rest.
    refused: bool,
}

/// What an answer takes.
pub(super) struct Count {
    pub(super) caller: Account,
    pub(super) bytes: Places,
    /// The bytes of all of it, where they are known: it is there from the beginning, whichever part is
    /// on its way.
    pub(super) whole: Option<usize>,
    /// What was taken for all of it.
    pub(super) taken: Option<Arc<Place>>,
    /// Held by every part, too.
    pub(super) call: Arc<Place>,
}

/// Part of an answer, with what it takes.
struct Held {
    part: Bytes,
    _bytes: Arc<Place>,
    _call: Arc<Place>,
}

impl Answer {
    pub(super) fn new(body: Body, count: Option<Count>) -> Self {
        Self { body, count, refused: false }
    }
}

impl Count {
    fn hold(&mut self, part: Bytes) -> Result<Bytes, Full> {
        if let Some(whole) = self.whole.take() {
            self.taken = Some(Arc::new(self.bytes.take(&self.caller, whole)?));
        }
        let bytes = match &self.taken {
            Some(taken) => taken.clone(),
            None => Arc::new(self.bytes.take(&self.caller, part.len())?),
        };
        Ok(Bytes::from_owner(Held { part, _bytes: bytes, _call: self.call.clone() }))
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.refused {
            return Poll::Ready(None);
        }
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
            Some(Ok(frame)) => frame,
            end @ (Some(Err(_)) | None) => return Poll::Ready(end),
        };
        let part = match frame.into_data() {
            Ok(part) => part,
            Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
        };
        let held = match &mut self.count {
            Some(count) => count.hold(part),
            None => Ok(part),
        };
        Poll::Ready(Some(match held {
            Ok(part) => Ok(Frame::data(part)),
            Err(full) => {
                self.refused = true;
                let mut trailers = HeaderMap::new();
                overloaded(full).add_header(&mut trailers)?;
                Ok(Frame::trailers(trailers))
            }
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.refused || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.part
    }
}
