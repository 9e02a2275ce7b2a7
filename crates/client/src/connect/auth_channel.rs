//! Channel that adds the bearer token to each call, and reports a call that failed because the
//! daemon requires TLS.

use super::credentials::BearerToken;
use http::header::AUTHORIZATION;
use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tonic::Status;
use tonic::body::Body;
use tonic::transport::Channel;
use tower::Service;

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
    channel: Channel,
    token: BearerToken,
    alert_flag: TlsAlertFlag,
}

impl AuthChannel {
    pub fn new(channel: Channel, token: BearerToken, alert_flag: TlsAlertFlag) -> Self {
        Self {
            channel,
            token,
            alert_flag,
        }
    }

    /// Reads the token again. Returns whether the token changed.
    pub async fn reload_token(&self) -> bool {
        self.token.reload().await
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

impl Service<http::Request<Body>> for AuthChannel {
    type Response = http::Response<Body>;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.channel.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        if let Some(token) = self.token.header() {
            request.headers_mut().insert(AUTHORIZATION, token);
        }
        let call = self.channel.call(request);
        let alert_flag = self.alert_flag.clone();
        Box::pin(async move {
            call.await.map_err(|error| {
                let wants_tls = alert_flag.0.load(Ordering::Relaxed);
                if wants_tls {
                    TlsRequired.into()
                } else {
                    error.into()
                }
            })
        })
    }
}
