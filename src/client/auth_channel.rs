//! A channel as calls go through it: each takes the token along, and one that fails because the daemon
//! wants TLS says so. Leaves opening it to `connect`.

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

/// The daemon speaks TLS where it was spoken to without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("what answers speaks TLS, and is spoken to without")]
pub struct TlsRequired;

impl TlsRequired {
    /// Whether a call ended for this.
    #[must_use]
    pub fn is_cause_of(status: &Status) -> bool {
        status.source().is_some_and(<dyn Error>::is::<Self>)
    }
}

/// A channel, what goes with each call, and what was heard on it.
#[derive(Debug, Clone)]
pub(super) struct AuthChannel {
    channel: Channel,
    token: BearerToken,
    alert_flag: TlsAlertFlag,
}

impl AuthChannel {
    pub(super) fn new(channel: Channel, token: BearerToken, alert_flag: TlsAlertFlag) -> Self {
        Self { channel, token, alert_flag }
    }
}

/// Whether an alert of TLS was heard on a connection without. What a broken connection leaves of its
/// cause depends on the moment, so it is noted beside it.
#[derive(Debug, Clone, Default)]
pub(super) struct TlsAlertFlag(Arc<AtomicBool>);

impl TlsAlertFlag {
    pub(super) fn record_alert(&self) {
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
        let (call, heard) = (self.channel.call(request), self.alert_flag.clone());
        Box::pin(async move {
            call.await.map_err(|error| {
                let wants_tls = heard.0.load(Ordering::Relaxed);
                if wants_tls { TlsRequired.into() } else { error.into() }
            })
        })
    }
}
