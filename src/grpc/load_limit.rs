//! Limits of load, a tower layer around all services. Each call needs a permit, its request must
//! arrive in time, and its method ends at the deadline of the caller. Buffered bytes of requests
//! and responses count against a quota.

mod request_body;
mod response_body;

use super::errors::{call_deadline_exceeded, missing_peer, overloaded};
use super::quota::{Quota, QuotaPermit};
use super::requests;
use super::watch_stream::WATCH_METHOD_PATH;
use crate::model::limits::{MAX_BUFFERED_BYTES, MAX_BUFFERED_BYTES_PER_CALLER};
use crate::model::{Limits, PeerIdentity, QuotaKey};
use bytes::Bytes;
use http::{Extensions, Request, Response};
use http_body::Body as _;
use request_body::CountedRequestBody;
use response_body::{CountedResponseBody, ResponseQuota};
use std::convert::Infallible;
use std::future::ready;
use std::pin::Pin;
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

/// Returns the quota key of a request. Every request carries the peer of its connection.
pub fn request_quota_key(extensions: &Extensions) -> Result<QuotaKey, Status> {
    extensions
        .get::<PeerIdentity>()
        .map(PeerIdentity::quota_key)
        .ok_or_else(missing_peer)
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
                (
                    "max_buffered_bytes_per_caller",
                    MAX_BUFFERED_BYTES_PER_CALLER,
                ),
            ),
            request_timeout: REQUEST_TIMEOUT,
        }
    }

    /// Sets the limits of calls in flight. Existing calls continue.
    pub fn set_limits(&self, limits: &Limits) {
        self.call_quota
            .set_limits(limits.max_calls, limits.max_calls_per_caller);
    }

    /// Acquires the permits for one call and for the bytes of its request.
    fn acquire_permits(
        &self,
        extensions: &Extensions,
    ) -> Result<(QuotaKey, QuotaPermit, QuotaPermit), Status> {
        let quota_key = request_quota_key(extensions)?;
        let call_permit = self.call_quota.acquire(&quota_key, 1).map_err(overloaded)?;
        let byte_permit = self.byte_quota.acquire(&quota_key, 0).map_err(overloaded)?;
        Ok((quota_key, call_permit, byte_permit))
    }
}

impl<S> Layer<S> for LoadLimitLayer {
    type Service = LoadLimit<S>;

    fn layer(&self, inner: S) -> LoadLimit<S> {
        LoadLimit {
            layer: self.clone(),
            inner,
        }
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
        let permits = self.layer.acquire_permits(request.extensions());
        let (quota_key, call_permit, byte_permit) = match permits {
            Ok(permits) => permits,
            Err(status) => return Box::pin(ready(Ok(status.into_http()))),
        };
        let is_reflection = request.uri().path().starts_with(REFLECTION_PREFIX);
        let is_stream = request.uri().path() == WATCH_METHOD_PATH;
        let request_deadline =
            (!is_reflection).then(|| Instant::now() + self.layer.request_timeout);
        let call_timeout = requests::grpc_timeout(request.headers());
        let request = request
            .map(|body| Body::new(CountedRequestBody::new(body, byte_permit, request_deadline)));
        let response = self.inner.call(request);
        let byte_quota = self.layer.byte_quota.clone();
        Box::pin(async move {
            let response = match call_timeout {
                None => response.await?,
                Some(call_timeout) => match timeout(call_timeout, response).await {
                    Ok(response) => response?,
                    // Dropping the future cancels the method.
                    Err(_) => return Ok(call_deadline_exceeded().into_http()),
                },
            };
            if is_stream {
                // A stream has a permit of the stream quota instead, and buffers only a few chunks.
                return Ok(response);
            }
            // The lower bound is in memory from the start.
            let buffered_bytes = response.body().size_hint().lower();
            let quota = ResponseQuota::new(quota_key, byte_quota, buffered_bytes, call_permit);
            Ok(response.map(|body| Body::new(CountedResponseBody::new(body, quota))))
        })
    }
}

#[cfg(test)]
mod tests;
