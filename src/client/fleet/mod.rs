//! Which executor an environment id means, and a client of each. Leaves files that say so to `file`, and
//! asking many at once to `list`.

mod file;
mod list;

pub use file::{FleetFileError, FleetFileErrors};
pub(crate) use list::group_by_environment;
pub use list::{ExecutorListing, ListStage};

use super::call::Client;
use super::connect::ConnectError;
use super::credentials::ClientCredentials;
use crate::endpoint::DaemonEndpoint;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// The deadline of a call, where nobody says another.
pub(super) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// How one executor's daemon is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutorConfig {
    /// Where it listens.
    pub endpoint: DaemonEndpoint,
    /// What it is shown, and whom it must prove to be.
    pub credentials: ClientCredentials,
    /// The deadline of each call, repetitions included; 30 s by default.
    pub timeout: Duration,
}

impl ExecutorConfig {
    /// With nothing to show, and the default deadline.
    #[must_use]
    pub fn new(endpoint: DaemonEndpoint) -> Self {
        Self { endpoint, credentials: ClientCredentials::default(), timeout: DEFAULT_TIMEOUT }
    }
}

/// What a [`Registry`] answers with, in its own time.
pub type RegistryFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Option<ExecutorConfig>, String>> + Send + 'a>>;

/// Whatever knows which executor owns an environment: a table in code, a file, or a service of the
/// platform.
pub trait ExecutorRegistry: Send + Sync + 'static {
    /// The executor of this environment. `None`: there is none. An error, one sentence: it is not known
    /// now. Asked once for each environment whose executor it told; clients are kept.
    fn find_executor<'a>(&'a self, environment_id: &'a str) -> RegistryFuture<'a>;
}

impl ExecutorRegistry for BTreeMap<String, ExecutorConfig> {
    fn find_executor<'a>(&'a self, environment_id: &'a str) -> RegistryFuture<'a> {
        Box::pin(std::future::ready(Ok(self.get(environment_id).cloned())))
    }
}

/// Why there is no client for an environment. Displays as one sentence.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// No executor owns it.
    #[error("no executor is known for the environment {0:?}")]
    UnknownEnvironment(String),
    /// Whether one does is not known now.
    #[error("the executor of the environment {environment_id:?} cannot be looked up: {cause}")]
    Registry {
        /// Which.
        environment_id: String,
        /// What the registry said.
        cause: String,
    },
    /// Its credentials cannot be used.
    #[error("the executor of the environment {environment_id:?} cannot be used: {cause}")]
    Connect {
        /// Which.
        environment_id: String,
        /// Why not.
        cause: ConnectError,
    },
}

/// Many executors, by environment id. Each environment is only ever that of the one executor that the
/// registry named: where it cannot be reached there is nothing, and never somebody else's files. A clone
/// is cheap, and shares the connections.
#[derive(Clone)]
pub struct Fleet {
    registry: Arc<dyn ExecutorRegistry>,
    environment_ids: Arc<[String]>,
    clients: Arc<Mutex<BTreeMap<String, Client>>>,
}

impl Fleet {
    /// The executors that this registry knows.
    #[must_use]
    pub fn new(registry: impl ExecutorRegistry) -> Self {
        Self {
            registry: Arc::new(registry),
            environment_ids: Arc::default(),
            clients: Arc::default(),
        }
    }

    /// These executors.
    pub fn from_executors(executors: impl IntoIterator<Item = (String, ExecutorConfig)>) -> Self {
        let executors: BTreeMap<_, _> = executors.into_iter().collect();
        let environment_ids = executors.keys().cloned().collect();
        Self { environment_ids, ..Self::new(executors) }
    }

    /// The executors of a file in YAML or JSON, or everything that is wrong with it.
    pub async fn from_file(path: &Path) -> Result<Self, FleetFileErrors> {
        Ok(Self::from_executors(file::read(path).await?))
    }

    /// The environments, in byte order; none of a registry that is not a table.
    #[must_use]
    pub fn environment_ids(&self) -> &[String] {
        &self.environment_ids
    }

    /// A client of this environment's executor, which connects when it is first called.
    pub async fn client(&self, environment_id: &str) -> Result<Client, FleetError> {
        if let Some(client) = self.clients.lock().await.get(environment_id) {
            return Ok(client.clone());
        }
        let environment = || environment_id.to_owned();
        // A registry that does not answer holds up nobody else.
        let found =
            tokio::time::timeout(DEFAULT_TIMEOUT, self.registry.find_executor(environment_id))
                .await;
        let found = found.unwrap_or_else(|_| Err("the registry does not answer".to_owned()));
        let found =
            found.map_err(|cause| FleetError::Registry { environment_id: environment(), cause })?;
        let executor = found.ok_or_else(|| FleetError::UnknownEnvironment(environment()))?;
        let ExecutorConfig { endpoint, credentials, timeout } = &executor;
        let client = Client::connect_lazily(endpoint, credentials, *timeout).await;
        let client =
            client.map_err(|cause| FleetError::Connect { environment_id: environment(), cause })?;
        // Of two that asked at once, one client is kept.
        Ok(self.clients.lock().await.entry(environment()).or_insert(client).clone())
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet")
            .field("environment_ids", &self.environment_ids)
            .finish_non_exhaustive()
    }
}
