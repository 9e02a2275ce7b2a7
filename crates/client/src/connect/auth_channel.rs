//! Channel that adds the bearer token to each call, and reports a call that failed because the
//! daemon requires TLS.

use super::credentials::BearerToken;
use http::header::AUTHORIZATION;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tonic::Status;
use tonic::body::Body;
use tonic::transport::Channel;
use tower::{BoxError, ServiceExt as _};

/// The daemon requires TLS, and the connection has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server requires TLS, but the endpoint says `tcp:`")]
pub struct TlsRequired;

impl TlsRequired {
    /// Whether this error ended the call.
    #[must_use]
    pub fn is_cause_of(status: &Status) -> bool {
        status.source().is_some_and(<dyn Error>::is::<Self>)
    }
}

/// Channel with the token of each call, and with the flag of its connections.
#[derive(Debug, Clone)]
pub struct AuthChannel {
    pub channel: Channel,
    pub token: BearerToken,
    pub alert_flag: TlsAlertFlag,
}

impl AuthChannel {
    /// Makes a call.
    pub async fn call(
        self,
        mut request: http::Request<Body>,
    ) -> Result<http::Response<Body>, BoxError> {
        if let Some(token) = self.token.header() {
            request.headers_mut().insert(AUTHORIZATION, token);
        }
        self.channel.oneshot(request).await.map_err(|error| {
            if self.alert_flag.0.load(Ordering::Relaxed) {
                TlsRequired.into()
            } else {
                error.into()
            }
        })
    }
}

/// Flag: a connection without TLS received a TLS alert. The error of a broken connection depends on
/// timing, so the alert is recorded separately.
#[derive(Debug, Clone, Default)]
pub struct TlsAlertFlag(Arc<AtomicBool>);

impl TlsAlertFlag {
    pub fn record_alert(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
