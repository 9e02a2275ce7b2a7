//! Channel of a client's calls to an executor, which may move: each connection asks where the executor
//! is. A channel of tonic keeps the address of its first connection, so each connection has its own.

use super::auth_channel::{AuthChannel, TlsAlertFlag};
use super::channel::{http_origin, wait_for_first_bytes};
use super::credentials::BearerToken;
use super::dial::ConnectorError;
use super::executor_stream::{ConnectionLife, ExecutorStream};
use super::tls_probe::TlsProbeIo;
use caproot_core::net::endpoint::DaemonEndpoint;
use caproot_core::sync::Mutex;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use hyper_util::rt::TokioIo;
use std::fmt;
use std::future::{pending, ready};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio_util::task::AbortOnDropHandle;
use tonic::ConnectError;
use tonic::body::Body;
use tonic::transport::Uri;
use tower::{BoxError, Service};

/// Interval of pings on a connection. A machine that vanished closes no connection, so without
/// pings its executor would be asked at the old address until the kernel gives up.
pub const PING_INTERVAL: Duration = Duration::from_secs(30);
/// How long the answer to a ping may take before the connection is closed.
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Future of one connection attempt.
pub type ConnectFuture = BoxFuture<'static, Result<ExecutorConnection, ConnectorError>>;

/// Opens a connection, at the address that the executor has now.
pub trait ExecutorConnector: fmt::Debug + Send + Sync + 'static {
    /// Starts one attempt. The attempt must end by itself.
    fn connect(&self) -> ConnectFuture;

    /// Returns a future that completes when an attempt may succeed that failed before this call.
    /// The future of an executor that no registry names never completes.
    fn executor_announced(&self) -> BoxFuture<'static, ()> {
        Box::pin(pending())
    }
}

/// Open connection of an executor.
#[derive(Debug, Clone)]
pub struct ExecutorConnection {
    /// Channel on this connection only.
    pub channel: AuthChannel,
    pub life: Arc<ConnectionLife>,
    /// Deadline of each call.
    pub timeout: Duration,
}

/// Stream that was opened for a connection.
pub struct OpenedStream {
    pub endpoint: DaemonEndpoint,
    pub stream: TlsProbeIo,
    pub life: ConnectionLife,
    pub alert_flag: TlsAlertFlag,
    pub token: BearerToken,
    pub timeout: Duration,
    pub ping_interval: Duration,
    /// Completes when the executor has another address.
    pub moved: BoxFuture<'static, ()>,
}

/// Channel that opens a connection for a call if there is none. A clone is cheap and shares the
/// connection.
#[derive(Debug, Clone)]
pub struct ExecutorChannel {
    connector: Arc<dyn ExecutorConnector>,
    /// Latest attempt. All calls of its time wait for it.
    latest: Arc<Mutex<Option<ConnectAttempt>>>,
}

/// Attempt in progress, or its outcome.
type ConnectAttempt = Shared<ConnectFuture>;

impl ExecutorConnection {
    /// Starts HTTP/2 on a stream.
    pub async fn start(mut opened: OpenedStream) -> Result<Self, ConnectorError> {
        let life = Arc::new(opened.life);
        let first_bytes = opened.stream.first_bytes.take();
        let stream = ExecutorStream::new(opened.stream, life.clone(), opened.moved);

        let unused_io = Mutex::new(Some(TokioIo::new(stream)));
        let connection_life = life.clone();
        let connector = tower::service_fn(move |_: Uri| {
            // tonic asks for a second stream when this connection takes no more calls.
            ready(unused_io.lock().take().ok_or_else(|| {
                connection_life.retire();
                io::Error::new(ErrorKind::NotConnected, "the connection has ended")
            }))
        });

        let channel = http_origin(&opened.endpoint)?
            .http2_keep_alive_interval(opened.ping_interval)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true)
            .connect_with_connector(connector)
            .await?;
        wait_for_first_bytes(first_bytes).await?;

        let channel = AuthChannel {
            channel,
            token: opened.token,
            alert_flag: opened.alert_flag,
        };
        Ok(Self {
            channel,
            life,
            timeout: opened.timeout,
        })
    }
}

impl ExecutorChannel {
    /// Creates a channel that connects with its first call.
    pub fn new(connector: impl ExecutorConnector) -> Self {
        Self {
            connector: Arc::new(connector),
            latest: Arc::default(),
        }
    }

    /// Returns the open connection, or opens one. The attempt goes on if the caller gives up, and
    /// ends with the channel.
    pub async fn connection(&self) -> Result<ExecutorConnection, ConnectorError> {
        let attempt = self.current_attempt();
        attempt.await
    }

    /// Waits until an attempt to connect may succeed that failed before this call.
    pub async fn executor_announced(&self) {
        self.connector.executor_announced().await;
    }

    /// Returns whether a connection is open.
    pub fn is_connected(&self) -> bool {
        self.latest_connection()
            .is_some_and(|connection| connection.life.is_usable())
    }

    /// Returns the deadline of a call as of the latest connection, if there was one.
    pub fn call_timeout(&self) -> Option<Duration> {
        self.latest_connection()
            .map(|connection| connection.timeout)
    }

    /// Reads the token of the connection again. Returns whether the token changed.
    pub async fn reload_token(&self) -> bool {
        match self.latest_connection() {
            Some(connection) => connection.channel.token.reload().await,
            None => false,
        }
    }

    fn current_attempt(&self) -> ConnectAttempt {
        let mut latest = self.latest.lock();
        let usable = latest.as_ref().filter(|attempt| match attempt.peek() {
            None => true,
            Some(Ok(connection)) => connection.life.is_usable(),
            Some(Err(_)) => false,
        });
        if let Some(attempt) = usable {
            return attempt.clone();
        }

        // The task goes on while no caller polls the attempt, so that no attempt keeps a permit.
        let task = AbortOnDropHandle::new(tokio::spawn(self.connector.connect()));
        let attempt = async move {
            task.await
                .unwrap_or_else(|error| Err(io::Error::other(error.to_string()).into()))
        };
        latest.insert(attempt.boxed().shared()).clone()
    }

    fn latest_connection(&self) -> Option<ExecutorConnection> {
        let latest = self.latest.lock();
        latest
            .as_ref()
            .and_then(|attempt| attempt.peek()?.as_ref().ok().cloned())
    }
}

impl Service<http::Request<Body>> for ExecutorChannel {
    type Response = http::Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    /// The future of the call waits for the connection and for its capacity.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let channel = self.clone();
        Box::pin(async move {
            let connected = channel.connection().await;
            // tonic reports this type as UNAVAILABLE, which is retryable.
            let connection = connected.map_err(|error| ConnectError(error.into()))?;
            connection.channel.call(request).await
        })
    }
}
