//! Registry of executors whose addresses the program knows.

use super::event::CallEvent;
use super::tools::ToolCallbacks;
use crate::cli::args::parse_timeout;
use caproot_client::fleet::{ExecutorRegistry, RegistryFuture};
use caproot_client::{
    ClientCredentials, ClientToken, ConnectError, ExecutorConfig, find_default_endpoint,
};
use caproot_core::net::endpoint::{DaemonEndpoint, ProcessEnv};
use caproot_core::text::quote_value;
use schemars::JsonSchema;
use serde::Deserialize;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long the program may take to find an executor.
const FIND_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the search waits for a default socket.
const SOCKET_TIMEOUT: Duration = Duration::from_secs(2);

/// Registry that asks the program before each connection.
pub struct ProgramRegistry {
    pub callbacks: Arc<ToolCallbacks>,
    /// Key of the executors in the events.
    pub key: String,
    /// Environments of a session without a selection, in byte order.
    pub environments: Vec<String>,
}

/// Executor that the program found.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FoundExecutor {
    /// Address of the daemon: `unix:PATH`, `tcp:HOST:PORT` or `tls:HOST:PORT`. The default is the first
    /// default socket that answers.
    endpoint: Option<String>,
    /// Authorities (PEM) that the daemon's certificate must come from.
    ca: Option<PathBuf>,
    /// Client certificate (PEM).
    cert: Option<PathBuf>,
    /// Key of the certificate (PEM).
    key: Option<PathBuf>,
    /// Name that the daemon's certificate must have. The default is the host.
    server_name: Option<String>,
    /// SPIFFE ID that the daemon's certificate must have.
    spiffe_id: Option<String>,
    /// Token of each call.
    token: Option<String>,
    /// File with the token.
    token_file: Option<PathBuf>,
    /// Timeout of each call, such as `10s`. The default is `30s`.
    timeout: Option<String>,
}

/// Checked configuration of an executor, whose address may be missing.
pub struct FoundConfig {
    endpoint: Option<DaemonEndpoint>,
    credentials: ClientCredentials,
    timeout: Option<Duration>,
}

impl FoundExecutor {
    /// Returns the configuration, or all mistakes, each after a prefix.
    pub fn to_config(&self, prefix: &str) -> Result<FoundConfig, Vec<String>> {
        let mut mistakes = Vec::new();
        let endpoint = parse_field("endpoint", self.endpoint.as_deref(), &mut mistakes);
        let spiffe_id = parse_field("spiffe_id", self.spiffe_id.as_deref(), &mut mistakes);
        let timeout = self.timeout.as_deref().map(parse_timeout).transpose();
        if let Err(reason) = &timeout {
            mistakes.push(format!("timeout: {reason}"));
        }
        if self.cert.is_some() != self.key.is_some() {
            mistakes.push("`cert` and `key` belong together: set both".to_owned());
        }
        if self.token.is_some() && self.token_file.is_some() {
            mistakes.push("`token` and `token_file` are both set: set one".to_owned());
        }
        if !mistakes.is_empty() {
            return Err(mistakes
                .iter()
                .map(|mistake| format!("{prefix}{mistake}"))
                .collect());
        }

        Ok(FoundConfig {
            endpoint,
            credentials: ClientCredentials {
                ca: self.ca.clone(),
                identity: self.cert.clone().zip(self.key.clone()),
                server_name: self.server_name.clone(),
                spiffe_id,
                token: self
                    .token
                    .clone()
                    .map(ClientToken::Value)
                    .or(self.token_file.clone().map(ClientToken::File)),
                socket_users: None,
            },
            timeout: timeout.unwrap_or_default(),
        })
    }
}

impl FoundConfig {
    /// Returns the configuration with the first default socket that answers, unless there is an address.
    pub async fn with_address(self) -> Result<ExecutorConfig, ConnectError> {
        let endpoint = match self.endpoint {
            Some(endpoint) => endpoint,
            None => find_default_endpoint(&ProcessEnv::from_process(), SOCKET_TIMEOUT).await?,
        };
        let config = ExecutorConfig::new(endpoint);
        Ok(ExecutorConfig {
            credentials: self.credentials,
            timeout: self.timeout.unwrap_or(config.timeout),
            ..config
        })
    }
}

/// Returns the parsed text, and adds a mistake if the text is not valid.
fn parse_field<T: FromStr<Err: fmt::Display>>(
    name: &str,
    text: Option<&str>,
    mistakes: &mut Vec<String>,
) -> Option<T> {
    let text = text?;
    let record_mistake = |error: T::Err| {
        let shown = quote_value(text);
        mistakes.push(format!("{name}: invalid value {shown}: {error}"));
    };
    text.parse().map_err(record_mistake).ok()
}

impl ExecutorRegistry for ProgramRegistry {
    fn find_executor<'a>(&'a self, environment_id: &'a str) -> RegistryFuture<'a> {
        Box::pin(async move {
            let asked = self.callbacks.ask_value(|call| CallEvent::FindExecutor {
                call,
                key: self.key.clone(),
                environment_id: environment_id.to_owned(),
            });
            let found = timeout(FIND_TIMEOUT, asked).await.map_err(|_| {
                let span = humantime::format_duration(FIND_TIMEOUT);
                format!("the program did not answer within {span}")
            })?;
            // The text of an exception may have secrets, and the reason reaches the model.
            let found: Option<FoundExecutor> = found.map_err(|reason| {
                tracing::warn!("no executor of environment {environment_id:?}: {reason}");
                "the function of the program that finds executors failed; see its log".to_owned()
            })?;
            let Some(executor) = found else {
                return Ok(None);
            };
            let config = executor.to_config("").map_err(|found| found.join("; "))?;
            config
                .with_address()
                .await
                .map(Some)
                .map_err(|error| error.to_string())
        })
    }

    fn environment_ids(&self) -> Vec<String> {
        self.environments.clone()
    }
}
