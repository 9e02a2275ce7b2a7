//! Request body that counts its bytes against a quota and must arrive within a time limit.

use crate::daemon::grpc::errors::{overloaded, request_timed_out};
use crate::daemon::grpc::quota::QuotaPermit;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::codegen::StdError;

/// Request body with a quota.
pub struct CountedRequestBody<B> {
    body: B,
    /// Permit for the received bytes, until the method has the whole request.
    byte_permit: QuotaPermit,
    /// Deadline for the whole request; `None` for a request without an end.
    deadline: Option<Instant>,
    /// Timer of the deadline, created when the body is first pending.
    deadline_timer: Option<Pin<Box<Sleep>>>,
}

impl<B> CountedRequestBody<B> {
    pub fn new(body: B, byte_permit: QuotaPermit, deadline: Option<Instant>) -> Self {
        Self {
            body,
            byte_permit,
            deadline,
            deadline_timer: None,
        }
    }
}

impl<B> http_body::Body for CountedRequestBody<B>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: Into<StdError>,
{
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                let Some(deadline) = self.deadline else {
                    return Poll::Pending;
                };
                let timer = self
                    .deadline_timer
                    .get_or_insert_with(|| Box::pin(sleep_until(deadline)));
                ready!(timer.as_mut().poll(context));
                self.deadline = None;
                return Poll::Ready(Some(Err(request_timed_out().into())));
            }
        };

        let data = frame
            .as_ref()
            .and_then(|frame| frame.as_ref().ok()?.data_ref());
        let received = data.map_or(0, Bytes::len);

        Poll::Ready(match self.byte_permit.acquire_more(received) {
            Ok(()) => frame.map(|frame| frame.map_err(Into::into)),
            Err(exceeded) => Some(Err(overloaded(exceeded).into())),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
