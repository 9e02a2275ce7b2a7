//! Executor that a command is connected to: the daemon at an endpoint, or one executor of a fleet.

use super::exit;
use super::failure::CommandFailure;
use super::fleet::{fleet_failure, read_fleet};
use caproot_client::fleet::{ExecutorRegistry, Fleet, RegistryFuture, wrong_environment};
use caproot_client::{Client, ExecutorConfig, published_selection};
use caproot_core::proto::caproot::v1::{GetExecutorResponse, SelectedCapabilityRoot};
use std::path::Path;

/// Executor of a command, with an open connection.
#[derive(Debug)]
pub struct ConnectedExecutor {
    pub client: Client,
    pub config: ExecutorConfig,
    /// Environment of the command line.
    environment_id: Option<String>,
    /// Fleet of the executor, with `--fleet`.
    fleet: Option<Fleet>,
}

/// Registry in which one executor has every environment: a session may select any root of the daemon.
pub struct EveryEnvironment(pub ExecutorConfig);

impl ExecutorRegistry for EveryEnvironment {
    fn find_executor<'a>(&'a self, _: &'a str) -> RegistryFuture<'a> {
        Box::pin(std::future::ready(Ok(Some(self.0.clone()))))
    }
}

impl ConnectedExecutor {
    /// Connects to a daemon outside a fleet.
    pub async fn connect(
        config: ExecutorConfig,
        environment_id: Option<String>,
    ) -> Result<Self, CommandFailure> {
        let ExecutorConfig {
            endpoint,
            credentials,
            timeout,
            ..
        } = &config;
        let client = Client::connect(endpoint, credentials, *timeout).await?;
        Ok(Self {
            client,
            config,
            environment_id,
            fleet: None,
        })
    }

    /// Connects to the executor of an environment in a fleet file. The client follows the executor to
    /// another address.
    pub async fn connect_in_fleet(
        file: &Path,
        environment_id: &str,
    ) -> Result<Self, CommandFailure> {
        let fleet = read_fleet(file).await?;
        let failure = |error| fleet_failure(error, &fleet, file);
        let config = fleet.find_executor(environment_id).await.map_err(failure)?;
        let client = fleet.connect(environment_id).await.map_err(failure)?;
        Ok(Self {
            client,
            config,
            environment_id: Some(environment_id.to_owned()),
            fleet: Some(fleet),
        })
    }

    /// Asks an executor of a fleet for its environments, and fails if the environment of the command
    /// line is not one of them. An executor outside a fleet is not asked.
    pub async fn check_environment(&mut self) -> Result<(), CommandFailure> {
        if self.fleet.is_none() {
            return Ok(());
        }
        let description = self.client.get_executor().await;
        let description =
            description.map_err(|error| CommandFailure::from(error).with_fleet_hint())?;
        self.check_description(&description)
    }

    /// Fails if an executor of a fleet has another environment than the one of the command line.
    pub fn check_description(
        &self,
        description: &GetExecutorResponse,
    ) -> Result<(), CommandFailure> {
        let id = self.fleet_environment();
        id.and_then(|id| wrong_environment(description, id))
            .map_or(Ok(()), |sentence| {
                Err(CommandFailure::new(exit::REJECTED, sentence))
            })
    }

    /// Returns the environment of `--root` directories: the one of the command line, or the daemon's
    /// first environment.
    pub async fn environment_id(&mut self) -> Result<String, CommandFailure> {
        if let Some(id) = &self.environment_id {
            return Ok(id.clone());
        }
        Ok(self
            .client
            .get_executor()
            .await?
            .environment_ids
            .into_iter()
            .next()
            .unwrap_or_default())
    }

    /// Returns the published roots, in the environment by which a fleet names the executor.
    pub async fn published_roots(&mut self) -> Result<Vec<SelectedCapabilityRoot>, CommandFailure> {
        Ok(published_selection(
            self.client.list_roots().await?,
            self.fleet_environment(),
        ))
    }

    /// Returns the roots that belong to the executor. In a fleet, other executors have the roots of
    /// other environments.
    pub fn own_roots(
        &self,
        mut roots: Vec<SelectedCapabilityRoot>,
    ) -> Result<Vec<SelectedCapabilityRoot>, CommandFailure> {
        let Some(id) = self.fleet_environment() else {
            return Ok(roots);
        };

        let had_roots = !roots.is_empty();
        roots.retain(|root| {
            root.location
                .as_ref()
                .is_some_and(|at| at.environment_id == id)
        });

        if had_roots && roots.is_empty() {
            let sentence = format!("no root of --selected is in the environment {id:?}");
            return Err(CommandFailure::new(exit::BAD_CONFIG, sentence)
                .with_hint("name the environment of the roots with --environment-id"));
        }
        Ok(roots)
    }

    /// Returns the fleet of a session on this executor.
    pub fn session_fleet(&self) -> Fleet {
        match &self.fleet {
            Some(fleet) => fleet.clone(),
            None => Fleet::new(EveryEnvironment(self.config.clone())),
        }
    }

    /// Returns the environment by which a fleet names the executor.
    pub fn fleet_environment(&self) -> Option<&str> {
        self.fleet.as_ref().and(self.environment_id.as_deref())
    }
}
