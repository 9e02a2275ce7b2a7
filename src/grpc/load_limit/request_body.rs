//! A request as it arrives: what is there of it is counted, and all of it must be there in time.

use crate::grpc::errors::{overloaded, request_timed_out};
use crate::grpc::quota::QuotaPermit;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::codegen::StdError;

/// The body of a request.
pub(super) struct CountedRequestBody<B> {
    pub(super) body: B,
    /// What has arrived, until the method has the whole.
    pub(super) byte_permit: QuotaPermit,
    /// When it must be whole; `None` where it has no end.
    pub(super) deadline: Option<Instant>,
    /// Waits for that, once there is something to wait for.
    pub(super) deadline_timer: Option<Pin<Box<Sleep>>>,
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
                let Some(until) = self.deadline else { return Poll::Pending };
                let late = self.deadline_timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
                ready!(late.as_mut().poll(context));
                self.deadline = None;
                return Poll::Ready(Some(Err(request_timed_out().into())));
            }
        };
        let arrived = match &frame {
            Some(Ok(frame)) => frame.data_ref().map_or(0, Bytes::len),
            Some(Err(_)) | None => 0,
        };
        Poll::Ready(match self.byte_permit.acquire_more(arrived) {
            Ok(()) => frame.map(|frame| frame.map_err(Into::into)),
            Err(full) => Some(Err(overloaded(full).into())),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
