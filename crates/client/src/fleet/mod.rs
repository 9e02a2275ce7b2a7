//! Fleet: finds the executor of an environment id before each connection, and keeps a client of
//! each executor in use.

mod client_pool;
mod dial_limit;
mod executors;
mod file;
mod file_changes;
mod file_registry;
mod listing;
mod mirror_pool;
#[cfg(feature = "nats")]
mod nats_dialer;
mod pattern;
mod routes;
mod stats;

pub use dial_limit::DialLimits;
pub use executors::{
    DialFuture, ExecutorConfig, ExecutorDialer, ExecutorRegistry, FleetError, RegistryFuture,
};
pub use listing::{
    ExecutorListing, ListStage, OmittedExecutor, PublishedSelection, group_by_environment,
    wrong_environment,
};
#[cfg(feature = "nats")]
pub use nats_dialer::NatsDialer;
pub use stats::FleetStats;

use super::call::Client;
use super::mirror::{
    DEFAULT_MAX_BYTES, Mirror, MirrorSelection, ResumePoint, ResumeReconciler, SharedCatalogs,
    SharingExecutor,
};
use crate::Trust;
use crate::connect::channel::{ConnectError, connect_within};
use crate::connect::credentials::BearerToken;
use caproot_core::document::ConfigErrors;
use caproot_core::proto::caproot::v1::SelectedCapabilityRoot;
use client_pool::ClientPool;
use dial_limit::DialQueue;
use executors::DEFAULT_TIMEOUT;
use file_registry::FileRegistry;
use mirror_pool::MirrorPool;
use routes::{EnvironmentConnector, ExecutorRoutes};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Executors by environment id. An environment belongs only to the executor that the registry
/// named: if that executor cannot be reached, its skills are missing, and no other executor
/// replaces it. A clone is cheap and shares the connections.
///
/// A fleet is made of a table, of a file, or of an [`ExecutorRegistry`] for executors that come and
/// go:
///
/// ```
/// use caproot_client::{ExecutorConfig, Fleet};
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
/// pattern:                   # of all other executors
///   endpoint: tls:{id}.executors.example:7420
///   spiffe_id: spiffe://agents.example/executor/{id}
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
    routes: ExecutorRoutes,
    clients: Arc<ClientPool>,
    mirrors: Arc<MirrorPool>,
    catalogs: SharedCatalogs,
    /// Fleet file, if there is one.
    file: Option<FileRegistry>,
}

impl Fleet {
    /// Creates a fleet of the executors in a registry.
    #[must_use]
    pub fn new(registry: impl ExecutorRegistry) -> Self {
        Self {
            routes: ExecutorRoutes::new(registry),
            clients: Arc::default(),
            mirrors: Arc::default(),
            catalogs: SharedCatalogs::new(DEFAULT_MAX_BYTES),
            file: None,
        }
    }

    /// Creates a fleet of these executors.
    pub fn from_executors(executors: impl IntoIterator<Item = (String, ExecutorConfig)>) -> Self {
        Self::new(executors.into_iter().collect::<BTreeMap<_, _>>())
    }

    /// Creates a fleet in which one executor has all environments of the roots.
    #[must_use]
    pub fn from_single_executor(
        executor: &ExecutorConfig,
        roots: &[SelectedCapabilityRoot],
    ) -> Self {
        let environment_ids = group_by_environment(roots.to_vec()).into_keys();
        Self::from_executors(environment_ids.map(|id| (id, executor.clone())))
    }

    /// Reads the executors from a YAML or JSON file. Returns all errors at once. Needs a tokio
    /// runtime.
    ///
    /// The file is read again when it changes. Connections to executors with another entry are
    /// closed, and opened again by the new entry. If the changed file has an error, the executors
    /// of its last valid version stay in use, and the error is logged and in [`Fleet::stats`].
    pub async fn from_file(path: &Path) -> Result<Self, ConfigErrors> {
        let file = FileRegistry::open(path).await?;
        let mut fleet = Self::new(file.clone());
        #[cfg(feature = "nats")]
        {
            let table = file.table.clone();
            let dialer = NatsDialer::with_changing_config(move || table.borrow().broker.clone());
            fleet.routes.nats_dialer = Some(Arc::new(dialer));
        }
        fleet.file = Some(file);
        Ok(fleet)
    }

    /// Returns the skills that new sessions trust: those of the lock in the fleet file, or all skills.
    #[must_use]
    pub fn trust(&self) -> Trust {
        let file = self.file.as_ref();
        file.map_or(Trust::All, |file| file.table.borrow().trust.clone())
    }

    /// Opens each connection through a dialer. Returns another fleet without clients.
    #[must_use]
    pub fn with_dialer(mut self, dialer: impl ExecutorDialer) -> Self {
        self.routes.dialer = Some(Arc::new(dialer));
        self.without_clients()
    }

    /// Sets the limits of dials. Returns another fleet without clients.
    #[must_use]
    pub fn with_dial_limits(mut self, limits: DialLimits) -> Self {
        self.routes.queue = Arc::new(DialQueue::new(limits));
        self.without_clients()
    }

    fn without_clients(self) -> Self {
        Self {
            clients: Arc::default(),
            mirrors: Arc::default(),
            ..self
        }
    }

    /// Sets the maximum size of the catalogs that the fleet keeps in memory after their last mirror
    /// ended; 64 MiB by default. Catalogs of mirrors in use are not limited by this. Returns another
    /// fleet without mirrors.
    #[must_use]
    pub fn with_max_idle_catalog_bytes(self, max_bytes: usize) -> Self {
        Self {
            catalogs: SharedCatalogs::new(max_bytes),
            mirrors: Arc::default(),
            ..self
        }
    }

    /// Returns the environments that the registry can list, in byte order.
    #[must_use]
    pub fn environment_ids(&self) -> Vec<String> {
        self.routes.registry.environment_ids()
    }

    /// Returns the client of the environment's executor. The client connects with its first call,
    /// and asks the registry again before each connection. Without a connection, this method asks
    /// the registry, too, and returns an error if the registry names no executor, or if the token
    /// cannot be read.
    ///
    /// The fleet keeps the client and its connection while a clone is in use, and 10 minutes longer.
    pub async fn client(&self, environment_id: &str) -> Result<Client, FleetError> {
        if let Some(client) = self
            .clients
            .find(environment_id)
            .filter(|client| client.channel.is_connected())
        {
            return Ok(client);
        }
        let executor = self.find_executor(environment_id).await?;
        let token = BearerToken::read(executor.credentials.token).await;
        token.map_err(|reason| FleetError::Connect {
            environment_id: environment_id.to_owned(),
            cause: ConnectError::Credentials(reason),
        })?;
        Ok(self.find_or_create_client(environment_id, executor.timeout))
    }

    /// Returns the client of the environment's executor with an open connection, or the reason why
    /// there is none. The client follows the executor to another address.
    pub async fn connect(&self, environment_id: &str) -> Result<Client, FleetError> {
        let executor = self.find_executor(environment_id).await?;
        let client = self.find_or_create_client(environment_id, executor.timeout);
        let connected = connect_within(executor.timeout, client.channel.connection()).await;
        connected.map_err(|error| FleetError::Connect {
            environment_id: environment_id.to_owned(),
            cause: ConnectError::from_connector(error, &executor.endpoint),
        })?;
        Ok(client)
    }

    /// Returns the address and the credentials that the environment's executor has now.
    pub async fn find_executor(&self, environment_id: &str) -> Result<ExecutorConfig, FleetError> {
        self.routes.find_executor(environment_id).await
    }

    /// Returns the client of an environment whose executor may be unknown yet. Each call fails with
    /// `UNAVAILABLE` and the reason until the registry names an executor. Needs a tokio runtime.
    #[must_use]
    pub fn lazy_client(&self, environment_id: &str) -> Client {
        self.find_or_create_client(environment_id, DEFAULT_TIMEOUT)
    }

    /// Returns the mirror of an environment's executor, which need not be there yet. All callers
    /// with the same selection share one mirror and its stream, so many sessions on one executor
    /// receive its catalog once. The order of the roots does not matter: the catalog has the roots in
    /// the byte order of their ids. The mirror ends with its last clone. Needs a tokio runtime.
    ///
    /// Mirrors of all executors share the memory of roots with equal catalogs, and a catalog that
    /// another mirror received is not transferred again. The executor only proves by a digest that it
    /// has the same catalog: its files are always read from itself.
    #[must_use]
    pub fn mirror(&self, environment_id: &str, mut selection: MirrorSelection) -> Mirror {
        selection.roots.sort_by(|a, b| a.id.cmp(&b.id));
        self.mirrors
            .find_or_start(environment_id, selection, |selection| {
                let client = self.lazy_client(environment_id);
                let executor = SharingExecutor::new(&self.catalogs, environment_id);
                Mirror::start_sharing(client, selection, Some(executor))
            })
    }

    /// Returns the mirror of [`Fleet::mirror`], with the changes since a position; see
    /// [`Mirror::resume`].
    #[must_use]
    pub fn resume_mirror(
        &self,
        environment_id: &str,
        selection: MirrorSelection,
        from: ResumePoint,
    ) -> Mirror {
        let client = self.lazy_client(environment_id);
        let resumed = ResumeReconciler::new(&client, &selection, from);
        self.mirror(environment_id, selection).resumed(resumed)
    }

    fn find_or_create_client(&self, environment_id: &str, timeout: Duration) -> Client {
        self.clients.find_or_insert(environment_id, || {
            let connector = EnvironmentConnector::new(&self.routes, environment_id);
            Client::from_connector(connector, timeout)
        })
    }

    /// Returns the numbers of the fleet at this moment.
    #[must_use]
    pub fn stats(&self) -> FleetStats {
        let ExecutorRoutes {
            queue, counters, ..
        } = &self.routes;
        let catalogs = self.catalogs.counts();
        let file = self
            .file
            .as_ref()
            .map(|file| file.status.lock().clone())
            .unwrap_or_default();

        FleetStats {
            file_rereads: file.rereads,
            file_error: file.error,
            clients: self.clients.len(),
            mirrors: self.mirrors.len(),
            catalogs: catalogs.catalogs,
            idle_catalog_bytes: catalogs.retained_bytes,
            catalog_hits: catalogs.hits,
            rejected_catalogs: catalogs.rejected,
            connections: counters.open_connections.load(Ordering::Relaxed),
            dials_in_progress: queue.in_progress.load(Ordering::Relaxed),
            waiting_dials: queue.waiting.load(Ordering::Relaxed),
            dials: counters.dials.load(Ordering::Relaxed),
            failed_dials: counters.failed_dials.load(Ordering::Relaxed),
        }
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet")
            .field("environment_ids", &self.environment_ids())
            .finish_non_exhaustive()
    }
}
