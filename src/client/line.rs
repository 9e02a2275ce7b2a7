//! A channel as calls go through it: each takes the token along, and one that fails because the daemon
//! wants TLS says so. Leaves opening it to `connect`.

use super::credentials::Bearer;
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
pub struct SpeaksTls;

impl SpeaksTls {
    /// Whether a call ended for this.
    #[must_use]
    pub fn ended(status: &Status) -> bool {
        status.source().is_some_and(<dyn Error>::is::<Self>)
    }
}

/// A channel, what goes with each call, and what was heard on it.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) channel: Channel,
    pub(super) bearer: Bearer,
    pub(super) heard: Alert,
}

/// Whether an alert of TLS was heard on a connection without. What a broken connection leaves of its
/// cause depends on the moment, so it is noted beside it.
#[derive(Debug, Clone, Default)]
pub(super) struct Alert(Arc<AtomicBool>);

impl Alert {
    pub(super) fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Service<http::Request<Body>> for Line {
    type Response = http::Response<Body>;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.channel.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        if let Some(token) = self.bearer.header() {
            request.headers_mut().insert(AUTHORIZATION, token);
        }
        let (call, heard) = (self.channel.call(request), self.heard.clone());
        Box::pin(async move {
            call.await.map_err(|error| {
                let wants_tls = heard.0.load(Ordering::Relaxed);
                if wants_tls { SpeaksTls.into() } else { error.into() }
            })
        })
    }
}
