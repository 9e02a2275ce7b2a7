//! Limits of load, a tower layer around all services. Each call needs a permit, its request must
//! arrive in time, and its method ends at the deadline of the caller. Buffered bytes of requests
//! and responses count against a quota.

mod request_body;
mod response_body;

use super::auth::AuthLayer;
use super::connection_admission::ConnectionAdmission;
use super::errors::{
    call_deadline_exceeded, missing_peer, overloaded, too_many_connections, too_much_metadata,
};
use super::quota::{Quota, QuotaExceeded, QuotaPermit};
use super::requests::{CallTimeout, grpc_timeout};
use super::watch_stream::WATCH_METHOD_PATH;
use crate::daemon::model::limits::{MAX_BUFFERED_BYTES, MAX_BUFFERED_BYTES_PER_CALLER};
use crate::daemon::model::{Limits, PeerIdentity, QuotaKey};
use bytes::Bytes;
use http::request::Parts;
use http::{Extensions, HeaderMap, Request, Response};
use request_body::CountedRequestBody;
use response_body::CountedResponseBody;
use std::convert::Infallible;
use std::future::ready;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, timeout};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, StdError};
use tower::{Layer, Service};

/// Time limit for a whole request to arrive.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Path prefix of the reflection services. Their calls are bidirectional streams without a time
/// limit, and their clients end a request only after its response.
pub const REFLECTION_PREFIX: &str = "/grpc.reflection.";

/// Most bytes of the metadata of a request, names and values together. Common clients send under 1
/// KiB.
const MAX_METADATA_BYTES: usize = 16 << 10;
/// Limits of one connection without an accepted call. Its calls take no permit of a caller: a peer
/// without credentials may have the address of a caller.
const MAX_CALLS_OF_NEW_CONNECTION: usize = 32;
const MAX_BUFFERED_BYTES_OF_NEW_CONNECTION: usize = 512 << 10;

/// Layer that applies the load limits. All clones share the same quotas.
#[derive(Debug, Clone)]
pub struct LoadLimitLayer {
    quotas: LoadQuotas,
    /// Quotas of calls on connections without an accepted call, by connection.
    new_connection_quotas: LoadQuotas,
    auth: AuthLayer,
    request_timeout: Duration,
}

/// Quotas of calls in flight and of their buffered bytes.
#[derive(Debug, Clone)]
struct LoadQuotas {
    calls: Quota,
    bytes: Quota,
}

/// Permits of one call. Those of its bytes are still empty.
struct CallPermits {
    call: QuotaPermit,
    request_bytes: QuotaPermit,
    response_bytes: QuotaPermit,
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
    /// Creates a layer with unused quotas. `auth` decides which connections have an accepted call.
    #[must_use]
    pub fn new(limits: &Limits, auth: AuthLayer) -> Self {
        let quotas = LoadQuotas {
            calls: Quota::new(
                ("max_calls", limits.max_calls),
                ("max_calls_per_caller", limits.max_calls_per_caller),
            ),
            bytes: Quota::new(
                ("max_buffered_bytes", MAX_BUFFERED_BYTES),
                (
                    "max_buffered_bytes_per_caller",
                    MAX_BUFFERED_BYTES_PER_CALLER,
                ),
            ),
        };

        // The number of such connections limits the total.
        let new_connection_quotas = LoadQuotas {
            calls: Quota::new(
                ("max_calls", usize::MAX),
                ("max_calls_of_new_connection", MAX_CALLS_OF_NEW_CONNECTION),
            ),
            bytes: Quota::new(
                ("max_buffered_bytes", usize::MAX),
                (
                    "max_buffered_bytes_of_new_connection",
                    MAX_BUFFERED_BYTES_OF_NEW_CONNECTION,
                ),
            ),
        };

        Self {
            quotas,
            new_connection_quotas,
            auth,
            request_timeout: REQUEST_TIMEOUT,
        }
    }

    /// Acquires the permits of a call. The first accepted call on a connection admits the
    /// connection.
    async fn acquire_permits(&self, head: &mut Parts) -> Result<CallPermits, Status> {
        let extensions = &head.extensions;
        let Some(connection) = extensions.get::<ConnectionAdmission>().cloned() else {
            return self.acquire_caller_permits(extensions);
        };
        if connection.is_admitted() {
            return self.acquire_or_spare(extensions, &connection);
        }

        let permits = self.acquire_spare_permits(&connection)?;
        let peer = extensions.get::<PeerIdentity>().cloned();
        let authentication = self.auth.authenticate(peer.as_ref(), &head.headers).await;
        let is_accepted = authentication.outcome.is_ok();
        head.extensions.insert(authentication);
        // A call that is not accepted goes on: the service may be public, or rejects the call.
        let Some(peer) = peer.filter(|_| is_accepted) else {
            return Ok(permits);
        };

        match connection.admit(&peer) {
            Ok(()) => {
                drop(permits);
                self.acquire_or_spare(&head.extensions, &connection)
            }
            Err(_) if connection.is_operator() => Ok(permits),
            Err(exceeded) => Err(too_many_connections(exceeded)),
        }
    }

    /// Acquires permits of the caller. If there are none for the operator, takes those of the
    /// connection, so that `caproot status` shows the state of a daemon under load.
    fn acquire_or_spare(
        &self,
        extensions: &Extensions,
        connection: &ConnectionAdmission,
    ) -> Result<CallPermits, Status> {
        match self.acquire_caller_permits(extensions) {
            Err(_) if connection.is_operator() => self.acquire_spare_permits(connection),
            permits => permits,
        }
    }

    fn acquire_caller_permits(&self, extensions: &Extensions) -> Result<CallPermits, Status> {
        self.quotas
            .acquire(&request_quota_key(extensions)?)
            .map_err(overloaded)
    }

    fn acquire_spare_permits(
        &self,
        connection: &ConnectionAdmission,
    ) -> Result<CallPermits, Status> {
        self.new_connection_quotas
            .acquire(&connection.quota_key())
            .map_err(overloaded)
    }
}

impl LoadQuotas {
    /// Acquires the permits of one call.
    fn acquire(&self, quota_key: &QuotaKey) -> Result<CallPermits, QuotaExceeded> {
        Ok(CallPermits {
            call: self.calls.acquire(quota_key, 1)?,
            request_bytes: self.bytes.acquire(quota_key, 0)?,
            response_bytes: self.bytes.acquire(quota_key, 0)?,
        })
    }
}

/// Checks the metadata of a call. Returns the timeout that the caller set.
fn check_metadata(headers: &HeaderMap) -> Result<Option<Duration>, Status> {
    let bytes: usize = headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len())
        .sum();
    if bytes > MAX_METADATA_BYTES {
        return Err(too_much_metadata(bytes, MAX_METADATA_BYTES));
    }
    Ok(grpc_timeout(headers)?)
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
    S: Clone + Send + 'static,
    S::Future: Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<StdError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Response<Body>, Infallible>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let call_timeout = match check_metadata(request.headers()) {
            Ok(call_timeout) => call_timeout,
            Err(status) => return Box::pin(ready(Ok(status.into_http()))),
        };
        request.extensions_mut().insert(CallTimeout(call_timeout));
        // Call the instance that was polled for readiness, not its clone.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let layer = self.layer.clone();

        let is_stream = request.uri().path() == WATCH_METHOD_PATH;
        let answer = async move {
            let (mut head, body) = request.into_parts();
            let permits = layer.acquire_permits(&mut head).await?;
            let is_reflection = head.uri.path().starts_with(REFLECTION_PREFIX);
            let deadline = (!is_reflection).then(|| Instant::now() + layer.request_timeout);
            let body = CountedRequestBody::new(body, permits.request_bytes, deadline);
            let request = Request::from_parts(head, Body::new(body));

            let Ok(response) = inner.call(request).await;
            if is_stream {
                // A stream has a permit of the stream quota instead, and buffers only a few chunks.
                return Ok(response);
            }
            Ok(response.map(|body| {
                let bytes = permits.response_bytes;
                Body::new(CountedResponseBody::new(body, bytes, permits.call))
            }))
        };
        Box::pin(async move {
            let answer = match call_timeout {
                None => answer.await,
                // Dropping the future cancels the method.
                Some(call_timeout) => timeout(call_timeout, answer)
                    .await
                    .unwrap_or_else(|_| Err(call_deadline_exceeded())),
            };
            Ok(answer.unwrap_or_else(Status::into_http))
        })
    }
}

#[cfg(test)]
mod tests;
