//! What a method leaves unread of a request is read and thrown away before the answer goes out. A
//! stream that is answered earlier is reset, and of many such at once HTTP/2 forgets some: what then
//! arrives for them counts as a breach of the protocol, and ends the connection with all its calls.

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
const TIME: Duration = Duration::from_secs(1);
const BYTES: usize = 64 << 10;

/// The body of a request, which hands on what nobody read.
#[derive(Debug)]
pub(super) struct Asked<B: Body> {
    /// `None` only while it is dropped.
    body: Option<B>,
    rest: Option<Sender<B>>,
}

/// What nobody read of a request.
#[derive(Debug)]
pub(super) struct Unread<B>(Receiver<B>);

/// Divides a request's body into what its method reads and what that leaves.
pub(super) fn divide<B: Body>(body: B) -> (Asked<B>, Unread<B>) {
    let (rest, unread) = channel();
    (Asked { body: Some(body), rest: Some(rest) }, Unread(unread))
}

impl<B: Body<Data = Bytes> + Unpin> Unread<B> {
    /// Reads it to its end, once the method has let go of it.
    pub(super) async fn throw_away(mut self) {
        let Ok(mut body) = self.0.try_recv() else { return };
        let read = async {
            let mut bytes = 0;
            while let Some(Ok(frame)) = body.frame().await {
                bytes += frame.data_ref().map_or(0, Bytes::len);
                if bytes > BYTES {
                    break;
                }
            }
        };
        // Whether it ended or not, the answer goes out now.
        let _ = timeout(TIME, read).await;
    }
}

impl<B: Body + Unpin> Body for Asked<B> {
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

impl<B: Body> Drop for Asked<B> {
    fn drop(&mut self) {
        let rest = self.body.take().filter(|body| !body.is_end_stream());
        if let (Some(body), Some(rest)) = (rest, self.rest.take()) {
            // Nobody waits for it where the call itself was taken back.
            drop(rest.send(body));
        }
    }
}
