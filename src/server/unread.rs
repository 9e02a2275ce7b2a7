//! Drains the bytes of a request that its method leaves unread. If the response ends before the request
//! does, either side resets the stream. HTTP/2 ends a connection on which many streams are reset at once,
//! with all its calls.

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::oneshot::{Receiver, Sender, channel};
use tokio::time::timeout;

/// How long the rest may take to arrive, and how much it may be: a request that was on its way whole.
/// For any other, the stream is reset.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_DRAIN_BYTES: usize = 64 << 10;

/// The body of a request. If it is dropped before its end, [`UnreadRest`] gets the rest.
#[derive(Debug)]
pub(super) struct RequestBody<B: Body> {
    /// `None` only while it is dropped.
    body: Option<B>,
    rest: Option<Sender<B>>,
}

/// The rest of a request that its method left unread.
#[derive(Debug)]
pub(super) struct UnreadRest<B>(Receiver<B>);

/// Splits a request's body into the part for its method and the rest that the method leaves.
pub(super) fn split_unread<B: Body>(body: B) -> (RequestBody<B>, UnreadRest<B>) {
    let (rest, unread) = channel();
    (RequestBody { body: Some(body), rest: Some(rest) }, UnreadRest(unread))
}

impl<B: Body<Data = Bytes> + Unpin> UnreadRest<B> {
    /// Reads the rest to its end, if the method has dropped the body.
    pub(super) async fn drain(mut self) {
        let Ok(mut body) = self.0.try_recv() else { return };
        let read = async {
            let mut bytes = 0;
            while let Some(Ok(frame)) = body.frame().await {
                bytes += frame.data_ref().map_or(0, Bytes::len);
                if bytes > MAX_DRAIN_BYTES {
                    break;
                }
            }
        };
        // A rest that is too slow or too long is reset.
        let _ = timeout(DRAIN_TIMEOUT, read).await;
    }
}

impl<B: Body + Unpin> Body for RequestBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(B::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(B::size_hint).unwrap_or_default()
    }
}

impl<B: Body> Drop for RequestBody<B> {
    fn drop(&mut self) {
        let rest = self.body.take().filter(|body| !body.is_end_stream());
        if let (Some(body), Some(rest)) = (rest, self.rest.take()) {
            // Nobody waits for it where the call itself was taken back.
            drop(rest.send(body));
        }
    }
}
