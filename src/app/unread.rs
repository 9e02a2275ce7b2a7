//! Drains the bytes of a request that its method leaves unread, while the response is sent. A stream
//! that is dropped unread is reset, and HTTP/2 forgets some of many streams that are reset at once:
//! bytes that then arrive for them count as a breach of the protocol, and end the connection with all
//! its calls.

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::timeout;

/// How long the rest may take to arrive, and how much it may be: a request that was on its way whole.
/// For any other, the stream is reset.
const TIME: Duration = Duration::from_secs(1);
const BYTES: usize = 64 << 10;

/// The body of a request. If it is dropped before its end, a task drains the rest.
#[derive(Debug)]
pub(super) struct DrainedBody<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
{
    /// `None` only while it is dropped.
    body: Option<B>,
}

impl<B: Body<Data = Bytes> + Send + Unpin + 'static> DrainedBody<B> {
    pub(super) fn new(body: B) -> Self {
        Self { body: Some(body) }
    }
}

async fn drain(mut body: impl Body<Data = Bytes> + Unpin) {
    let read = async {
        let mut bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            bytes += frame.data_ref().map_or(0, Bytes::len);
            if bytes > BYTES {
                break;
            }
        }
    };
    // A rest that is too slow or too long is reset.
    let _ = timeout(TIME, read).await;
}

impl<B: Body<Data = Bytes> + Send + Unpin + 'static> Body for DrainedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
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

impl<B: Body<Data = Bytes> + Send + Unpin + 'static> Drop for DrainedBody<B> {
    fn drop(&mut self) {
        let rest = self.body.take().filter(|body| !body.is_end_stream());
        // Without a runtime the connection has ended too.
        if let (Some(body), Ok(runtime)) = (rest, Handle::try_current()) {
            // Ends after `TIME` at the latest.
            runtime.spawn(drain(body));
        }
    }
}
