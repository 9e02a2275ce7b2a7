//! What every call passes before and after its method: it takes one of the places for calls, its
//! request must arrive in time, it ends at its deadline, and what the daemon holds of requests and
//! answers is counted. Leaves what a call may do to its method.

mod answer;
mod asked;

use super::errors::{late, overloaded, unknown_peer};
use super::parts::Parts;
use super::places::{Place, Places};
use super::requests;
use crate::domain::limits::{MAX_HELD_BYTES, MAX_HELD_BYTES_PER_CALLER};
use crate::domain::{Account, Limits, Peer};
use answer::{Answer, Count};
use asked::Asked;
use bytes::Bytes;
use http::{Extensions, Request, Response};
use std::convert::Infallible;
use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, timeout};
use tonic::Status;
use tonic::body::Body;
use tower::{Layer, Service};

/// How long the whole of a request may take to arrive.
const REQUEST_TIME: Duration = Duration::from_secs(30);
/// The services whose calls go on asking, so that their requests have no end.
const CONVERSATIONS: &str = "/grpc.reflection.";

/// What all calls share.
#[derive(Debug, Clone)]
pub struct Door {
    calls: Places,
    bytes: Places,
    request_time: Duration,
}

/// A service behind the door.
#[derive(Debug, Clone)]
pub struct Guarded<S> {
    door: Door,
    inner: S,
}

/// Says, in the extensions of an answer, that it is a stream with a place of its own.
#[derive(Debug, Clone, Copy)]
pub(super) struct IsStream;

/// Whom a request counts for. Every request carries its connection's peer.
pub(super) fn account(extensions: &Extensions) -> Result<Account, Status> {
    extensions.get::<Peer>().map(Peer::account).ok_or_else(unknown_peer)
}

impl Door {
    /// Nobody is inside yet.
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        Self {
            calls: Places::new(
                ("max_calls", limits.max_calls),
                ("max_calls_per_caller", limits.max_calls_per_caller),
            ),
            bytes: Places::new(
                ("max_held_bytes", MAX_HELD_BYTES),
                ("max_held_bytes_per_caller", MAX_HELD_BYTES_PER_CALLER),
            ),
            request_time: REQUEST_TIME,
        }
    }

    /// Lets so many in from now on.
    pub fn resize(&self, limits: &Limits) {
        self.calls.resize(limits.max_calls, limits.max_calls_per_caller);
    }

    /// Places for one call, and for the bytes of its request.
    fn enter(&self, extensions: &Extensions) -> Result<(Account, Place, Place), Status> {
        let caller = account(extensions)?;
        let call = self.calls.take(&caller, 1).map_err(overloaded)?;
        let bytes = self.bytes.take(&caller, 0).map_err(overloaded)?;
        Ok((caller, call, bytes))
    }
}

impl<S> Layer<S> for Door {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded { door: self.clone(), inner }
    }
}

impl<S, B> Service<Request<B>> for Guarded<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<tonic::codegen::StdError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (caller, call, held) = match self.door.enter(request.extensions()) {
            Ok(entered) => entered,
            Err(status) => return Box::pin(ready(Ok(status.into_http()))),
        };
        let has_end = !request.uri().path().starts_with(CONVERSATIONS);
        let until = has_end.then(|| Instant::now() + self.door.request_time);
        let deadline = request.headers().get(requests::TIMEOUT);
        let deadline = deadline.and_then(|text| requests::span(text.to_str().ok()?));
        let request = request.map(|body| Body::new(Asked { body, held, until, late: None }));
        let answer = self.inner.call(request);
        let bytes = self.door.bytes.clone();
        Box::pin(async move {
            let mut answer = match deadline {
                None => answer.await?,
                Some(deadline) => match timeout(deadline, answer).await {
                    Ok(answer) => answer?,
                    // The method ends with its future.
                    Err(_) => return Ok(late().into_http()),
                },
            };
            let is_stream = answer.extensions_mut().remove::<IsStream>().is_some();
            let parts = answer.extensions_mut().remove::<Parts>();
            let whole = parts.as_ref().and_then(Parts::bytes);
            if let Some(body) = parts.and_then(|parts| parts.take()) {
                *answer.body_mut() = body;
            }
            let call = Arc::new(call);
            let count = Count { caller, bytes, whole, taken: None, call };
            let count = (!is_stream).then_some(count);
            Ok(answer.map(|body| Body::new(Answer::new(body, count))))
        })
    }
}

#[cfg(test)]
mod tests;
