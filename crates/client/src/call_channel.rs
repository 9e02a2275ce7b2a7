//! Channel of a client's calls: to one address, or to an executor that may move.

use super::auth_channel::AuthChannel;
use super::dial::BoxError;
use super::executor_channel::ExecutorChannel;
use futures_util::future::BoxFuture;
use std::task::{Context, Poll};
use std::time::Duration;
use tonic::ConnectError;
use tonic::body::Body;
use tower::{Service, ServiceExt as _};

/// Channel of a client's calls.
#[derive(Debug, Clone)]
pub enum CallChannel {
    /// One address for the life of the client.
    Fixed(AuthChannel),
    /// The address that the executor has at each connection.
    Executor(ExecutorChannel),
}

impl CallChannel {
    /// Reads the token again. If the file cannot be read, the old token stays. Returns whether the
    /// token changed.
    pub async fn reload_token(&self) -> bool {
        match self {
            Self::Fixed(channel) => channel.reload_token().await,
            Self::Executor(channel) => channel.reload_token().await,
        }
    }

    /// Waits until a connection may succeed that failed before this call. Never returns for a channel
    /// to one address.
    pub async fn executor_announced(&self) {
        match self {
            Self::Fixed(_) => std::future::pending().await,
            Self::Executor(channel) => channel.executor_announced().await,
        }
    }

    /// Returns the deadline of a call, if the registry of the executor named one.
    pub fn call_timeout(&self) -> Option<Duration> {
        match self {
            Self::Fixed(_) => None,
            Self::Executor(channel) => channel.call_timeout(),
        }
    }
}

impl Service<http::Request<Body>> for CallChannel {
    type Response = http::Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        match self {
            Self::Fixed(channel) => channel.poll_ready(context),
            // The future of the call waits for the connection and for its capacity.
            Self::Executor(_) => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        match self {
            Self::Fixed(channel) => channel.call(request),
            Self::Executor(channel) => {
                let channel = channel.clone();
                Box::pin(async move {
                    let connection = channel.connection().await;
                    let connection = connection.map_err(|error| ConnectError(error.into()))?;
                    connection.into_channel().oneshot(request).await
                })
            }
        }
    }
}
