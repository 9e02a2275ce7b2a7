//! Drains the rest of a request that its method did not read. If the response ends before the
//! request does, either side resets the stream, and HTTP/2 ends a connection with many resets and
//! all its calls.

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::oneshot::{Receiver, Sender, channel};
use tokio::time::timeout;

/// Most time and bytes of draining: enough for a request that the client has sent completely.
/// Otherwise the stream is reset.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_DRAIN_BYTES: usize = 64 << 10;

/// Body of a request. If the body is dropped before its end, [`UnreadRest`] receives the rest.
#[derive(Debug)]
pub struct RequestBody<B: Body> {
    /// `None` only during drop.
    body: Option<(B, Sender<B>)>,
}

/// Rest of a request that its method did not read.
#[derive(Debug)]
pub struct UnreadRest<B>(Receiver<B>);

/// Splits the body of a request into the part for the method and the unread rest.
pub fn split_unread<B: Body>(body: B) -> (RequestBody<B>, UnreadRest<B>) {
    let (rest, unread) = channel();
    (
        RequestBody {
            body: Some((body, rest)),
        },
        UnreadRest(unread),
    )
}

impl<B: Body<Data = Bytes> + Unpin> UnreadRest<B> {
    /// Reads the rest to its end if the method dropped the body.
    pub async fn drain(mut self) {
        let Ok(mut body) = self.0.try_recv() else {
            return;
        };
        let read = async {
            let mut bytes = 0;
            while let Some(Ok(frame)) = body.frame().await {
                bytes += frame.data_ref().map_or(0, Bytes::len);
                if bytes > MAX_DRAIN_BYTES {
                    break;
                }
            }
        };
        // After the timeout, or for a longer rest, dropping the body resets the stream.
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
            Some((body, _)) => Pin::new(body).poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body
            .as_ref()
            .is_none_or(|(body, _)| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let body = self.body.as_ref();
        body.map(|(body, _)| body.size_hint()).unwrap_or_default()
    }
}

impl<B: Body> Drop for RequestBody<B> {
    fn drop(&mut self) {
        if let Some((body, rest)) = self.body.take()
            && !body.is_end_stream()
        {
            // If the client reset the call, the receiver is gone.
            drop(rest.send(body));
        }
    }
}
