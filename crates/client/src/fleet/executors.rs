//! Executors of a fleet: their configuration, and the two traits by which a platform names and
//! reaches them.

use crate::connect::channel::ConnectError;
use crate::connect::credentials::ClientCredentials;
use caproot_core::net::byte_stream::ByteStream;
use caproot_core::net::endpoint::DaemonEndpoint;
use futures_util::future::BoxFuture;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

/// Default timeout of a call.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// Address and credentials of one executor's daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutorConfig {
    /// Endpoint of the daemon.
    pub endpoint: DaemonEndpoint,
    /// Credentials of the client, and the trust in the daemon's certificate.
    pub credentials: ClientCredentials,
    /// Deadline of each call including retries; 30 s by default.
    pub timeout: Duration,
    /// Whether the fleet reaches the executor through the NATS broker of its fleet file. The
    /// endpoint must be `tls:`, and is only the name in the daemon's certificate.
    pub via_nats: bool,
}

impl ExecutorConfig {
    /// Creates a configuration without credentials and with the default timeout.
    #[must_use]
    pub fn new(endpoint: DaemonEndpoint) -> Self {
        let credentials = ClientCredentials::default();
        Self {
            endpoint,
            credentials,
            timeout: DEFAULT_TIMEOUT,
            via_nats: false,
        }
    }
}

/// Future result of an [`ExecutorRegistry`].
pub type RegistryFuture<'a> = BoxFuture<'a, Result<Option<ExecutorConfig>, String>>;

/// Registry of the executors of environments: a table in code, a file, or a service of the
/// platform.
pub trait ExecutorRegistry: Send + Sync + 'static {
    /// Returns the executor of the environment, `None` if there is none, or an error in one
    /// sentence if it is unknown now. A fleet asks before each connection, so an executor that
    /// moved is found again when its connection ends.
    fn find_executor<'a>(&'a self, environment_id: &'a str) -> RegistryFuture<'a>;

    /// Returns a future that completes when [`ExecutorRegistry::find_executor`] has another answer
    /// than at the time of this call. The fleet then closes the connection to the old executor, and
    /// a mirror that waits for its next attempt connects within 1 s.
    /// By default never: a connection stays until it ends.
    fn executor_changed(&self, environment_id: &str) -> BoxFuture<'static, ()> {
        let _ = environment_id;
        Box::pin(std::future::pending())
    }

    /// Returns the environments that the registry can list, in byte order. Empty by default.
    fn environment_ids(&self) -> Vec<String> {
        Vec::new()
    }
}

impl ExecutorRegistry for BTreeMap<String, ExecutorConfig> {
    fn find_executor<'a>(&'a self, environment_id: &'a str) -> RegistryFuture<'a> {
        Box::pin(std::future::ready(Ok(self.get(environment_id).cloned())))
    }

    fn environment_ids(&self) -> Vec<String> {
        self.keys().cloned().collect()
    }
}

/// Future result of an [`ExecutorDialer`].
pub type DialFuture<'a> = BoxFuture<'a, io::Result<Box<dyn ByteStream>>>;

/// Way to the daemons of executors that have no address to connect to, such as a rendezvous, a
/// tunnel or a proxy.
///
/// The stream is not trusted: TLS runs inside, so the endpoint of each executor must be `tls:`. The
/// certificate must be for the host of the endpoint, or for the server name in the
/// credentials.
pub trait ExecutorDialer: Send + Sync + 'static {
    /// Opens a stream of bytes to the daemon of an environment. `endpoint` is the endpoint that the
    /// registry named. A fleet drops the future after 10 s.
    fn dial_executor<'a>(
        &'a self,
        environment_id: &'a str,
        endpoint: &'a DaemonEndpoint,
    ) -> DialFuture<'a>;

    /// Returns a future that completes when a dial may succeed that failed before this call, because
    /// the executor or the way to the executor came back. A mirror that waits for its next attempt
    /// then connects within 1 s, and not at the end of its delay. By default never.
    fn executor_announced(&self, environment_id: &str) -> BoxFuture<'static, ()> {
        let _ = environment_id;
        Box::pin(std::future::pending())
    }
}

/// Failure to create the client of an environment. Displays as one sentence.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// No executor has this environment.
    #[error("no executor is known for the environment {0:?}")]
    UnknownEnvironment(String),
    /// The registry failed.
    #[error("the executor of the environment {environment_id:?} cannot be looked up: {cause}")]
    Registry {
        /// Environment.
        environment_id: String,
        /// Error of the registry.
        cause: String,
    },
    /// The token cannot be used, or no connection can be opened.
    #[error("the executor of the environment {environment_id:?} cannot be used: {cause}")]
    Connect {
        /// Environment.
        environment_id: String,
        /// Error of the token or of the connection.
        cause: ConnectError,
    },
}
