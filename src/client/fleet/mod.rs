//! Fleet: finds the executor of an environment id, and keeps a client of each executor.

mod file;

pub use file::{FleetFileError, FleetFileErrors};

use super::call::Client;
use super::connect::ConnectError;
use super::credentials::ClientCredentials;
use crate::net::endpoint::DaemonEndpoint;
use crate::proto::caproot::v1::{ListSkillsRequest, ListSkillsResponse, SelectedCapabilityRoot};
use futures_util::{StreamExt as _, stream};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// Default timeout of a call.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of executors that are asked at once.
const MAX_CONCURRENT_EXECUTORS: usize = 64;

/// Address and credentials of one executor's daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutorConfig {
    /// Endpoint of the daemon.
    pub endpoint: DaemonEndpoint,
    /// Credentials of the client, and the trust in the daemon's certificate.
    pub credentials: ClientCredentials,
    /// Deadline of each call including retries; 30 s by default.
    pub timeout: Duration,
}

impl ExecutorConfig {
    /// Creates a configuration without credentials and with the default timeout.
    #[must_use]
    pub fn new(endpoint: DaemonEndpoint) -> Self {
        Self { endpoint, credentials: ClientCredentials::default(), timeout: DEFAULT_TIMEOUT }
    }
}

/// Future result of an [`ExecutorRegistry`].
pub type RegistryFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Option<ExecutorConfig>, String>> + Send + 'a>>;

/// Registry of the executors of environments: a table in code, a file, or a service of the
/// platform.
pub trait ExecutorRegistry: Send + Sync + 'static {
    /// Returns the executor of the environment, `None` if there is none, or an error in one
    /// sentence if it is unknown now. Each environment is looked up once, because its client is
    /// kept.
    fn find_executor<'a>(&'a self, environment_id: &'a str) -> RegistryFuture<'a>;
}

impl ExecutorRegistry for BTreeMap<String, ExecutorConfig> {
    fn find_executor<'a>(&'a self, environment_id: &'a str) -> RegistryFuture<'a> {
        Box::pin(std::future::ready(Ok(self.get(environment_id).cloned())))
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
    /// The credentials cannot be used.
    #[error("the executor of the environment {environment_id:?} cannot be used: {cause}")]
    Connect {
        /// Environment.
        environment_id: String,
        /// Error of the connection.
        cause: ConnectError,
    },
}

/// Progress of one executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListStage {
    /// The executor waits for a free slot, or for its connection.
    Connecting,
    /// Its published roots are being listed.
    ListingRoots,
    /// Its skills are being listed.
    ListingSkills,
    /// It responded.
    Done,
    /// It did not respond.
    Failed,
}

/// Result of one executor.
#[derive(Debug)]
pub struct ExecutorListing {
    /// Environment of the executor.
    pub environment_id: String,
    /// Its skills, or an error in one sentence.
    pub outcome: Result<ListSkillsResponse, String>,
}

/// Executors by environment id. An environment belongs only to the executor that the registry
/// named: if that executor cannot be reached, its skills are missing, and no other executor
/// replaces it. A clone is cheap and shares the connections.
///
/// A fleet is made of a table, of a file, or of an [`ExecutorRegistry`] for executors that come and
/// go:
///
/// ```
/// use caproot::client::{ExecutorConfig, Fleet};
/// use std::fs;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let workspace = ExecutorConfig::new("unix:/run/caproot/caproot.sock".parse()?);
/// let fleet = Fleet::from_executors([("workspace".to_owned(), workspace)]);
/// assert_eq!(fleet.environment_ids(), ["workspace"]);
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("fleet.yaml");
/// let text = "
/// executors:
///   workspace:
///     endpoint: unix:/run/caproot/caproot.sock
///   build-farm:
///     endpoint: tls:build.example:50051
///     ca: ca.pem             # paths are relative to the file
///     cert: client.pem
///     key: client.key
///     timeout: 10s           # of each call with its retries; 30s by default
/// ";
/// fs::write(&path, text)?;
/// let fleet = Fleet::from_file(&path).await?;
/// assert_eq!(fleet.environment_ids(), ["build-farm", "workspace"]);
/// # Ok(())
/// # }
/// ```
///
/// `docs/orchestrate/fleet.md` lists all keys of the file.
#[derive(Clone)]
pub struct Fleet {
    registry: Arc<dyn ExecutorRegistry>,
    environment_ids: Arc<[String]>,
    clients: Arc<Mutex<BTreeMap<String, Client>>>,
}

impl Fleet {
    /// Creates a fleet of the executors in a registry.
    #[must_use]
    pub fn new(registry: impl ExecutorRegistry) -> Self {
        Self {
            registry: Arc::new(registry),
            environment_ids: Arc::default(),
            clients: Arc::default(),
        }
    }

    /// Creates a fleet of these executors.
    pub fn from_executors(executors: impl IntoIterator<Item = (String, ExecutorConfig)>) -> Self {
        let executors: BTreeMap<_, _> = executors.into_iter().collect();
        let environment_ids = executors.keys().cloned().collect();
        Self { environment_ids, ..Self::new(executors) }
    }

    /// Reads the executors from a YAML or JSON file. Returns all errors at once.
    pub async fn from_file(path: &Path) -> Result<Self, FleetFileErrors> {
        Ok(Self::from_executors(file::read(path).await?))
    }

    /// Environment ids in byte order. Empty if the registry is not a table.
    #[must_use]
    pub fn environment_ids(&self) -> &[String] {
        &self.environment_ids
    }

    /// Returns the client of the environment's executor. It connects with its first call.
    pub async fn client(&self, environment_id: &str) -> Result<Client, FleetError> {
        if let Some(client) = self.clients.lock().await.get(environment_id) {
            return Ok(client.clone());
        }
        let environment = || environment_id.to_owned();
        // The lock is not held here: a slow registry does not delay other environments.
        let found =
            tokio::time::timeout(DEFAULT_TIMEOUT, self.registry.find_executor(environment_id))
                .await;
        let found = found.unwrap_or_else(|_| Err("the registry does not respond".to_owned()));
        let found =
            found.map_err(|cause| FleetError::Registry { environment_id: environment(), cause })?;
        let executor = found.ok_or_else(|| FleetError::UnknownEnvironment(environment()))?;
        let ExecutorConfig { endpoint, credentials, timeout } = &executor;
        let client = Client::connect_lazily(endpoint, credentials, *timeout).await;
        let client =
            client.map_err(|cause| FleetError::Connect { environment_id: environment(), cause })?;
        // If two callers created a client at once, the first client is kept.
        Ok(self.clients.lock().await.entry(environment()).or_insert(client).clone())
    }

    /// Lists the skills of many executors, in the byte order of their environment ids.
    ///
    /// Each of `roots` is listed by the executor of its environment. `None` means all roots that
    /// the executors of the fleet's table publish. `request` has the other parameters. `on_progress`
    /// receives the progress of each executor.
    pub async fn list_skills(
        &self,
        roots: Option<Vec<SelectedCapabilityRoot>>,
        request: &ListSkillsRequest,
        on_progress: &(dyn Fn(&str, ListStage) + Sync),
    ) -> Vec<ExecutorListing> {
        let requests: BTreeMap<String, Option<Vec<SelectedCapabilityRoot>>> = match roots {
            None => self.environment_ids.iter().map(|id| (id.clone(), None)).collect(),
            Some(roots) => {
                let by = group_by_environment(roots).into_iter();
                by.map(|(id, roots)| (id, Some(roots))).collect()
            }
        };
        let each = requests.into_iter().map(|(environment_id, roots)| async move {
            on_progress(&environment_id, ListStage::Connecting);
            let outcome =
                self.list_executor_skills(&environment_id, roots, request, on_progress).await;
            on_progress(
                &environment_id,
                if outcome.is_ok() { ListStage::Done } else { ListStage::Failed },
            );
            ExecutorListing { environment_id, outcome }
        });
        stream::iter(each).buffered(MAX_CONCURRENT_EXECUTORS).collect().await
    }

    async fn list_executor_skills(
        &self,
        environment_id: &str,
        roots: Option<Vec<SelectedCapabilityRoot>>,
        request: &ListSkillsRequest,
        on_progress: &(dyn Fn(&str, ListStage) + Sync),
    ) -> Result<ListSkillsResponse, String> {
        let mut client = self.client(environment_id).await.map_err(|error| error.to_string())?;
        let roots = if let Some(roots) = roots {
            roots
        } else {
            on_progress(environment_id, ListStage::ListingRoots);
            published_roots(&mut client).await?
        };
        on_progress(environment_id, ListStage::ListingSkills);
        let request = ListSkillsRequest { selected_capability_roots: roots, ..request.clone() };
        client.list_skills(&request).await.map_err(|error| error.to_string())
    }
}

/// Groups roots by environment. Roots without a location have the environment id `""`.
pub(crate) fn group_by_environment(
    roots: Vec<SelectedCapabilityRoot>,
) -> BTreeMap<String, Vec<SelectedCapabilityRoot>> {
    let mut by = BTreeMap::<String, Vec<SelectedCapabilityRoot>>::new();
    for root in roots {
        let location = root.location.as_ref();
        let environment = location.map_or_else(String::new, |l| l.environment_id.clone());
        by.entry(environment).or_default().push(root);
    }
    by
}

/// Returns the published roots of an executor as a selection.
async fn published_roots(client: &mut Client) -> Result<Vec<SelectedCapabilityRoot>, String> {
    let roots = client.list_roots().await.map_err(|error| error.to_string())?.roots;
    Ok(roots.into_iter().filter_map(|root| root.selected_capability_root).collect())
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet")
            .field("environment_ids", &self.environment_ids)
            .finish_non_exhaustive()
    }
}
