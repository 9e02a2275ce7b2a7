//! Fleets that a Python program describes: one daemon, a table, a file, or a Python function.

use crate::callback::CallbackTarget;
use crate::failure::Failure;
use crate::mailbox::{Mailbox, MailboxShared};
use crate::process_bound::ProcessBound;
use crate::reply::{Reply, to_object};
use caproot_client::fleet::{ExecutorRegistry, RegistryFuture};
use caproot_client::{
    CallError, Client, ClientCredentials, ClientToken, DaemonEndpoint, ExecutorConfig,
    Fleet as ClientFleet, find_default_endpoint, published_selection,
};
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::proto::caproot::v1::SelectedCapabilityRoot;
use pyo3::prelude::*;
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How long the search waits for a default socket.
const SOCKET_TIMEOUT: Duration = Duration::from_secs(2);

/// Codes of gRPC for a caller whose identity the daemon does not accept.
const PERMISSION_DENIED: i32 = 7;
const UNAUTHENTICATED: i32 = 16;

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
        let spec = serde_json::from_str(spec)
            .map_err(|error| Failure::config(vec![format!("invalid fleet: {error}")]))?;
        let mailbox = mailbox.shared()?;
        let open = open_fleet(spec, mailbox.clone());
        let opened = mailbox.operate(operation, async move { open.await.map(Reply::Fleet) });
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
    pub async fn published_roots(
        &self,
        timeout: Duration,
    ) -> Result<(Vec<SelectedCapabilityRoot>, Vec<String>), Failure> {
        if !self.is_single {
            let published = self.fleet.published_roots(timeout).await;
            let omitted = published.omitted.iter().map(|omitted| {
                let id = &omitted.environment_id;
                format!(
                    "the executor of the environment {id:?} is omitted: {}",
                    omitted.reason
                )
            });
            return Ok((published.roots, omitted.collect()));
        }

        let list_roots = async {
            let executor = self.fleet.find_executor("").await;
            let executor = executor.map_err(|error| Failure::unavailable(error.to_string()))?;
            let client =
                Client::connect(&executor.endpoint, &executor.credentials, executor.timeout).await;
            let mut client = client.map_err(|error| Failure::unavailable(error.to_string()))?;
            let published = client.list_roots().await;
            published.map_err(|error| call_failure(&error))
        };
        let listed = tokio::time::timeout(timeout, list_roots).await;
        let listed = listed.unwrap_or_else(|_| {
            let seconds = timeout.as_secs_f64();
            let sentence = format!("the daemon did not answer within {seconds} s");
            Err(Failure::unavailable(sentence))
        })?;
        Ok((published_selection(listed, None), Vec::new()))
    }
}

async fn open_fleet(spec: FleetSpec, mailbox: Arc<MailboxShared>) -> Result<OpenFleet, Failure> {
    match spec {
        FleetSpec::Single { executor } => {
            let executor = executor.with_default_address().await?;
            let config = executor.to_config("").map_err(Failure::config)?;
            Ok(OpenFleet {
                fleet: ClientFleet::new(SingleRegistry(config)),
                is_single: true,
            })
        }
        FleetSpec::Executors { executors } => {
            let fleet = ClientFleet::from_executors(check_executors(executors)?);
            Ok(OpenFleet {
                fleet,
                is_single: false,
            })
        }
        FleetSpec::File { path } => Ok(OpenFleet {
            fleet: ClientFleet::from_file(&path).await?,
            is_single: false,
        }),
        FleetSpec::Callback {
            handler,
            environments,
            is_single,
        } => {
            let registry = CallbackRegistry {
                target: CallbackTarget { mailbox, handler },
                environments,
            };
            Ok(OpenFleet {
                fleet: ClientFleet::new(registry),
                is_single,
            })
        }
    }
}

/// Returns the failure of a call without a session.
fn call_failure(error: &CallError) -> Failure {
    let is_rejected = matches!(error, CallError::Status(status)
        if matches!(status.code() as i32, PERMISSION_DENIED | UNAUTHENTICATED));
    if is_rejected {
        let next = "Pass a token or a certificate that the daemon accepts.";
        return Failure::refused("NOT_ALLOWED", error.to_string(), next);
    }
    Failure::unavailable(error.to_string())
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
        let address = self.address.as_deref().unwrap_or_default();
        let endpoint = address
            .parse::<DaemonEndpoint>()
            .map_err(|error| mistakes.push(format!("{prefix}address: {error}")));
        let spiffe_id = self.spiffe_id.as_ref().and_then(|id| {
            id.parse()
                .map_err(|error| mistakes.push(format!("{prefix}spiffe_id: {error}")))
                .ok()
        });
        let identity = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => Some((cert.clone(), key.clone())),
            (None, None) => None,
            _ => {
                mistakes.push(format!(
                    "{prefix}`cert` and `key` belong together: set both"
                ));
                None
            }
        };
        let token = match (&self.token, &self.token_file) {
            (Some(token), None) => Some(ClientToken::Value(token.clone())),
            (None, Some(file)) => Some(ClientToken::File(file.clone())),
            (None, None) => None,
            (Some(_), Some(_)) => {
                mistakes.push(format!(
                    "{prefix}`token` and `token_file` are both set: set one"
                ));
                None
            }
        };
        let timeout = self.timeout.map(|seconds| {
            parse_seconds(seconds)
                .map_err(|reason| mistakes.push(format!("{prefix}timeout: {reason}")))
        });

        match endpoint {
            Ok(endpoint) if mistakes.is_empty() => {
                let mut config = ExecutorConfig::new(endpoint);
                config.credentials = ClientCredentials {
                    ca: self.ca.clone(),
                    identity,
                    server_name: self.server_name.clone(),
                    spiffe_id,
                    token,
                };
                if let Some(Ok(timeout)) = timeout {
                    config.timeout = timeout;
                }
                Ok(config)
            }
            _ => Err(mistakes),
        }
    }
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
            let answer = self.target.call(0, payload).await;
            let answer = answer.map_err(crate::callback::CallbackError::into_sentence)?;
            let spec: Option<ExecutorSpec> =
                serde_json::from_str(&answer).map_err(|error| error.to_string())?;
            let Some(spec) = spec else { return Ok(None) };
            let spec = spec.with_default_address().await;
            let spec = spec.map_err(|failure| failure.sentences().join("; "))?;
            let config = spec.to_config("").map_err(|mistakes| mistakes.join("; "))?;
            Ok(Some(config))
        })
    }

    fn environment_ids(&self) -> Vec<String> {
        self.environments.clone()
    }
}
