//! Which executor an environment id means, and a client of each. Leaves files that say so to `file`, and
//! asking many at once to `list`.

mod file;

pub use file::{FleetFileError, FleetFileErrors};

use super::call::Client;
use super::connect::ConnectError;
use super::credentials::ClientCredentials;
use crate::endpoint::DaemonEndpoint;
use crate::proto::caproot::v1::{ListSkillsRequest, ListSkillsResponse, SelectedCapabilityRoot};
use futures_util::{StreamExt as _, stream};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// The deadline of a call, where nobody says another.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
/// The most executors that are asked at once.
const MAX_CONCURRENT_EXECUTORS: usize = 64;

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

/// How far one executor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListStage {
    /// It waits for its turn, or is being connected to.
    Connecting,
    /// Its published roots are being asked for.
    ListingRoots,
    /// Its skills are being listed.
    ListingSkills,
    /// It answered.
    Done,
    /// It did not.
    Failed,
}

/// What one executor answered.
#[derive(Debug)]
pub struct ExecutorListing {
    /// Whose.
    pub environment_id: String,
    /// Its skills, or why there are none: one sentence.
    pub outcome: Result<ListSkillsResponse, String>,
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

    /// Lists the skills of many executors, in the byte order of their environment ids. `roots` are asked
    /// of the executors of their environments; `None` stands for whatever each executor of the fleet's
    /// table publishes. `request` says the rest. `told` hears how far each is.
    pub async fn list_skills(
        &self,
        roots: Option<Vec<SelectedCapabilityRoot>>,
        request: &ListSkillsRequest,
        told: &(dyn Fn(&str, ListStage) + Sync),
    ) -> Vec<ExecutorListing> {
        let asked: BTreeMap<String, Option<Vec<SelectedCapabilityRoot>>> = match roots {
            None => self.environment_ids.iter().map(|id| (id.clone(), None)).collect(),
            Some(roots) => {
                let by = group_by_environment(roots).into_iter();
                by.map(|(id, roots)| (id, Some(roots))).collect()
            }
        };
        let each = asked.into_iter().map(|(environment_id, roots)| async move {
            told(&environment_id, ListStage::Connecting);
            let outcome = self.list_executor_skills(&environment_id, roots, request, told).await;
            told(
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
        told: &(dyn Fn(&str, ListStage) + Sync),
    ) -> Result<ListSkillsResponse, String> {
        let mut client = self.client(environment_id).await.map_err(|error| error.to_string())?;
        let roots = if let Some(roots) = roots {
            roots
        } else {
            told(environment_id, ListStage::ListingRoots);
            published_roots(&mut client).await?
        };
        told(environment_id, ListStage::ListingSkills);
        let request = ListSkillsRequest { selected_capability_roots: roots, ..request.clone() };
        client.list_skills(&request).await.map_err(|error| error.to_string())
    }
}

/// Roots by the environments that they are in; those without a location are in one without a name.
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

/// The roots that an executor publishes, ready to be selected.
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
