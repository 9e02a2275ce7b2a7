//! Limits of load, a tower layer around all services. Each call needs a permit, its request must
//! arrive in time, and its method ends at the deadline of the caller. Buffered bytes of requests
//! and responses count against a quota.

mod request_body;
mod response_body;

use super::encoded_body::BodyOverride;
use super::errors::{call_deadline_exceeded, missing_peer, overloaded};
use super::quota::{Quota, QuotaPermit};
use super::requests;
use crate::domain::limits::{MAX_BUFFERED_BYTES, MAX_BUFFERED_BYTES_PER_CALLER};
use crate::domain::{Limits, PeerIdentity, QuotaKey};
use bytes::Bytes;
use http::{Extensions, Request, Response};
use request_body::CountedRequestBody;
use response_body::{CountedResponseBody, ResponseQuota};
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

/// Time limit for a whole request to arrive.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Path prefix of the reflection services. Their calls are bidirectional streams without a time
/// limit.
const REFLECTION_PREFIX: &str = "/grpc.reflection.";

/// Layer that applies the load limits. All clones share the same quotas.
#[derive(Debug, Clone)]
pub struct LoadLimitLayer {
    call_quota: Quota,
    byte_quota: Quota,
    request_timeout: Duration,
}

/// Service with load limits.
#[derive(Debug, Clone)]
pub struct LoadLimit<S> {
    layer: LoadLimitLayer,
    inner: S,
}

/// Response extension that marks a stream. A stream has a permit of the stream quota instead.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamMarker;

/// Returns the quota key of a request. Every request carries the peer of its connection.
pub(super) fn request_quota_key(extensions: &Extensions) -> Result<QuotaKey, Status> {
    extensions.get::<PeerIdentity>().map(PeerIdentity::quota_key).ok_or_else(missing_peer)
}

impl LoadLimitLayer {
    /// Creates a layer with unused quotas.
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        Self {
            call_quota: Quota::new(
                ("max_calls", limits.max_calls),
                ("max_calls_per_caller", limits.max_calls_per_caller),
            ),
            byte_quota: Quota::new(
                ("max_buffered_bytes", MAX_BUFFERED_BYTES),
                ("max_buffered_bytes_per_caller", MAX_BUFFERED_BYTES_PER_CALLER),
            ),
            request_timeout: REQUEST_TIMEOUT,
        }
    }

    /// Sets the limits of calls in flight. Existing calls continue.
    pub fn set_limits(&self, limits: &Limits) {
        self.call_quota.set_limits(limits.max_calls, limits.max_calls_per_caller);
    }

    /// Acquires the permits for one call and for the bytes of its request.
    fn acquire_permits(
        &self,
        extensions: &Extensions,
    ) -> Result<(QuotaKey, QuotaPermit, QuotaPermit), Status> {
        let caller = request_quota_key(extensions)?;
        let call = self.call_quota.acquire(&caller, 1).map_err(overloaded)?;
        let bytes = self.byte_quota.acquire(&caller, 0).map_err(overloaded)?;
        Ok((caller, call, bytes))
    }
}

impl<S> Layer<S> for LoadLimitLayer {
    type Service = LoadLimit<S>;

    fn layer(&self, inner: S) -> LoadLimit<S> {
        LoadLimit { layer: self.clone(), inner }
    }
}

impl<S, B> Service<Request<B>> for LoadLimit<S>
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
        let (caller, call, held) = match self.layer.acquire_permits(request.extensions()) {
            Ok(entered) => entered,
            Err(status) => return Box::pin(ready(Ok(status.into_http()))),
        };
        let has_end = !request.uri().path().starts_with(REFLECTION_PREFIX);
        let until = has_end.then(|| Instant::now() + self.layer.request_timeout);
        let deadline = request.headers().get(requests::TIMEOUT_HEADER);
        let deadline = deadline.and_then(|text| requests::parse_grpc_timeout(text.to_str().ok()?));
        let request = request.map(|body| {
            Body::new(CountedRequestBody {
                body,
                byte_permit: held,
                deadline: until,
                deadline_timer: None,
            })
        });
        let answer = self.inner.call(request);
        let bytes = self.layer.byte_quota.clone();
        Box::pin(async move {
            let mut answer = match deadline {
                None => answer.await?,
                Some(deadline) => match timeout(deadline, answer).await {
                    Ok(answer) => answer?,
                    // Dropping the future cancels the method.
                    Err(_) => return Ok(call_deadline_exceeded().into_http()),
                },
            };
            let is_stream = answer.extensions_mut().remove::<StreamMarker>().is_some();
            let parts = answer.extensions_mut().remove::<BodyOverride>();
            let whole = parts.as_ref().and_then(BodyOverride::message_len);
            if let Some(body) = parts.and_then(|parts| parts.take_body()) {
                *answer.body_mut() = body;
            }
            let call = Arc::new(call);
            let count = ResponseQuota {
                quota_key: caller,
                byte_quota: bytes,
                total_bytes: whole,
                total_permit: None,
                call_permit: call,
            };
            let count = (!is_stream).then_some(count);
            Ok(answer.map(|body| Body::new(CountedResponseBody::new(body, count))))
        })
    }
}

#[cfg(test)]
mod tests;
