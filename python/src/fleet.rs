//! Fleets that a Python program describes: one daemon, a table, a file, or a Python function.

use crate::callback::CallbackTarget;
use crate::failure::Failure;
use crate::mailbox::{Mailbox, MailboxShared};
use crate::process_bound::ProcessBound;
use crate::reply::{Reply, to_object};
use caproot_client::fleet::{ExecutorRegistry, RegistryFuture};
use caproot_client::{
    Client, ClientCredentials, ClientToken, ExecutorConfig, Fleet as ClientFleet, SpiffeId,
    find_default_endpoint, published_selection,
};
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::proto::caproot::v1::SelectedCapabilityRoot;
use pyo3::prelude::*;
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// How long the search waits for a default socket.
const SOCKET_TIMEOUT: Duration = Duration::from_secs(2);

/// Time limit of the function that finds an executor.
const FIND_TIMEOUT: Duration = Duration::from_secs(10);

/// Fleet of a Python program.
#[pyclass(frozen)]
pub struct Fleet {
    pub inner: ProcessBound<OpenFleet>,
}

/// Fleet, and whether one executor has all environments.
#[derive(Debug, Clone)]
pub struct OpenFleet {
    pub fleet: ClientFleet,
    is_single: bool,
}

/// Published roots of a fleet.
pub struct PublishedRoots {
    pub roots: Vec<SelectedCapabilityRoot>,
    /// A sentence for each executor that does not answer.
    pub omitted: Vec<String>,
}

/// Description of a fleet.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", deny_unknown_fields)]
enum FleetSpec {
    /// One daemon; the first default socket that answers if there is no address.
    Single { executor: ExecutorSpec },
    /// Executors by environment.
    Executors {
        executors: BTreeMap<String, ExecutorSpec>,
    },
    /// Fleet file.
    File { path: PathBuf },
    /// Python function that returns the executor of an environment.
    Callback {
        handler: u64,
        environments: Vec<String>,
        is_single: bool,
    },
}

/// Description of an executor.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ExecutorSpec {
    address: Option<String>,
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    server_name: Option<String>,
    spiffe_id: Option<String>,
    token: Option<String>,
    token_file: Option<PathBuf>,
    /// Seconds.
    timeout: Option<f64>,
}

/// Registry in which one executor has all environments.
struct SingleRegistry(ExecutorConfig);

/// Registry in Python.
struct CallbackRegistry {
    target: CallbackTarget,
    environments: Vec<String>,
}

#[pymethods]
impl Fleet {
    /// Opens a fleet by its description, a JSON text.
    #[staticmethod]
    fn open<'py>(
        py: Python<'py>,
        mailbox: &Mailbox,
        operation: u64,
        spec: &str,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let fleet = serde_json::from_str(spec)
            .map_err(|error| Failure::config(vec![format!("invalid fleet: {error}")]))?;
        let shared = mailbox.shared()?;
        let open = open_fleet(fleet, shared.clone());
        let opened = shared.operate(operation, async move { open.await.map(Reply::Fleet) });
        to_object(py, opened)
    }

    /// Returns the environments that the fleet can list.
    fn environment_ids(&self) -> PyResult<Vec<String>> {
        Ok(self.inner.get()?.fleet.environment_ids())
    }
}

impl OpenFleet {
    /// Returns the published roots of the executors, and a sentence for each executor that does not
    /// answer.
    pub async fn published_roots(&self, timeout: Duration) -> Result<PublishedRoots, Failure> {
        if !self.is_single {
            let published = self.fleet.published_roots(timeout).await;
            let omitted = published.omitted.iter().map(|omitted| {
                let id = &omitted.environment_id;
                format!(
                    "the executor of the environment {id:?} is omitted: {}",
                    omitted.reason
                )
            });
            return Ok(PublishedRoots {
                roots: published.roots,
                omitted: omitted.collect(),
            });
        }

        let list_roots = async {
            let executor = self.fleet.find_executor("").await?;
            let mut client =
                Client::connect(&executor.endpoint, &executor.credentials, executor.timeout)
                    .await?;
            Ok(client.list_roots().await?)
        };

        let listed = tokio::time::timeout(timeout, list_roots).await;
        let published = listed.unwrap_or_else(|_| {
            let seconds = timeout.as_secs_f64();
            let sentence = format!("the daemon did not answer within {seconds} s");
            Err(Failure::unavailable(sentence))
        })?;
        Ok(PublishedRoots {
            roots: published_selection(published, None),
            omitted: Vec::new(),
        })
    }
}

async fn open_fleet(spec: FleetSpec, mailbox: Arc<MailboxShared>) -> Result<OpenFleet, Failure> {
    let mut is_one = false;
    let fleet = match spec {
        FleetSpec::Single { executor } => {
            is_one = true;
            let addressed = executor.with_default_address().await?;
            let config = addressed.to_config("").map_err(Failure::config)?;
            ClientFleet::new(SingleRegistry(config))
        }
        FleetSpec::Executors { executors } => {
            ClientFleet::from_executors(check_executors(executors)?)
        }
        FleetSpec::File { path } => ClientFleet::from_file(&path).await?,
        FleetSpec::Callback {
            handler,
            environments,
            is_single,
        } => {
            is_one = is_single;
            ClientFleet::new(CallbackRegistry {
                target: CallbackTarget { mailbox, handler },
                environments,
            })
        }
    };

    Ok(OpenFleet {
        fleet,
        is_single: is_one,
    })
}

/// Returns the executors, or the mistakes of all.
fn check_executors(
    executors: BTreeMap<String, ExecutorSpec>,
) -> Result<BTreeMap<String, ExecutorConfig>, Failure> {
    let mut mistakes = Vec::new();
    let mut configs = BTreeMap::new();
    for (id, executor) in executors {
        match executor.to_config(&format!("executor {id:?}: ")) {
            Ok(config) => drop(configs.insert(id, config)),
            Err(found) => mistakes.extend(found),
        }
    }
    if mistakes.is_empty() {
        Ok(configs)
    } else {
        Err(Failure::config(mistakes))
    }
}

impl ExecutorSpec {
    /// Returns the executor with the first default socket that answers, unless there is an address.
    async fn with_default_address(self) -> Result<Self, Failure> {
        if self.address.is_some() {
            return Ok(self);
        }
        let found = find_default_endpoint(&ProcessEnv::from_process(), SOCKET_TIMEOUT).await;
        let endpoint = found.map_err(|error| Failure::unavailable(error.to_string()))?;
        Ok(Self {
            address: Some(endpoint.to_string()),
            ..self
        })
    }

    /// Returns the configuration, or all mistakes, each after a prefix.
    fn to_config(&self, prefix: &str) -> Result<ExecutorConfig, Vec<String>> {
        let mut mistakes = Vec::new();
        let endpoint = parse_text("address", self.address.as_deref(), &mut mistakes);
        let spiffe_id = parse_text("spiffe_id", self.spiffe_id.as_deref(), &mut mistakes);
        let timeout = self.timeout.map(parse_seconds).transpose();
        let timeout = timeout.unwrap_or_else(|reason| {
            mistakes.push(format!("timeout: {reason}"));
            None
        });

        if self.cert.is_some() != self.key.is_some() {
            mistakes.push("`cert` and `key` belong together: set both".to_owned());
        }
        if self.token.is_some() && self.token_file.is_some() {
            mistakes.push("`token` and `token_file` are both set: set one".to_owned());
        }

        match endpoint {
            Some(endpoint) if mistakes.is_empty() => {
                let mut config = ExecutorConfig::new(endpoint);
                config.credentials = self.to_credentials(spiffe_id);
                config.timeout = timeout.unwrap_or(config.timeout);
                Ok(config)
            }
            _ => Err(mistakes
                .iter()
                .map(|mistake| format!("{prefix}{mistake}"))
                .collect()),
        }
    }

    fn to_credentials(&self, spiffe_id: Option<SpiffeId>) -> ClientCredentials {
        let file_token = self.token_file.clone().map(ClientToken::File);
        ClientCredentials {
            ca: self.ca.clone(),
            identity: self.cert.clone().zip(self.key.clone()),
            server_name: self.server_name.clone(),
            spiffe_id,
            token: self.token.clone().map(ClientToken::Value).or(file_token),
            socket_users: None,
        }
    }
}

/// Returns the parsed text, and adds a mistake if it is not valid.
fn parse_text<T>(name: &str, text: Option<&str>, mistakes: &mut Vec<String>) -> Option<T>
where
    T: FromStr,
    T::Err: fmt::Display,
{
    let parsed = text?.parse();
    parsed
        .map_err(|error| mistakes.push(format!("{name}: {error}")))
        .ok()
}

/// Returns a duration of more than zero and at most a day.
pub fn parse_seconds(seconds: f64) -> Result<Duration, String> {
    let duration = Duration::try_from_secs_f64(seconds).ok();
    let duration =
        duration.filter(|duration| !duration.is_zero() && *duration <= Duration::from_hours(24));
    duration.ok_or_else(|| format!("{seconds} s is not more than zero and at most a day"))
}

impl ExecutorRegistry for SingleRegistry {
    fn find_executor<'a>(&'a self, _: &'a str) -> RegistryFuture<'a> {
        Box::pin(std::future::ready(Ok(Some(self.0.clone()))))
    }
}

impl ExecutorRegistry for CallbackRegistry {
    fn find_executor<'a>(&'a self, environment_id: &'a str) -> RegistryFuture<'a> {
        Box::pin(async move {
            let payload = json!({ "environment_id": environment_id }).to_string();
            let answer = self.target.call_within(FIND_TIMEOUT, payload).await?;
            let found: Option<ExecutorSpec> =
                serde_json::from_str(&answer).map_err(|error| error.to_string())?;
            let Some(executor) = found else {
                return Ok(None);
            };

            let addressed = executor.with_default_address().await;
            let executor = addressed.map_err(|failure| failure.sentences().join("; "))?;
            let config = executor.to_config("");
            config.map(Some).map_err(|mistakes| mistakes.join("; "))
        })
    }

    fn environment_ids(&self) -> Vec<String> {
        self.environments.clone()
    }
}
