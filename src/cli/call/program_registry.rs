//! Registry of executors whose addresses the program knows.

use super::event::CallEvent;
use super::tools::ToolCallbacks;
use crate::cli::args::parse_timeout;
use caproot_client::fleet::{ExecutorRegistry, RegistryFuture};
use caproot_client::{ClientCredentials, ClientToken, ExecutorConfig, SpiffeId};
use caproot_core::net::endpoint::DaemonEndpoint;
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long the program may take to find an executor.
const FIND_TIMEOUT: Duration = Duration::from_secs(10);

/// Registry that asks the program before each connection.
pub struct ProgramRegistry {
    pub callbacks: Arc<ToolCallbacks>,
    /// Environments of a session without a selection, in byte order.
    pub environments: Vec<String>,
}

/// Executor that the program found.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FoundExecutor {
    /// Address of the daemon: `unix:PATH`, `tcp:HOST:PORT` or `tls:HOST:PORT`.
    endpoint: String,
    /// Authorities (PEM) that the daemon's certificate must come from.
    #[serde(default)]
    ca: Option<PathBuf>,
    /// Client certificate (PEM).
    #[serde(default)]
    cert: Option<PathBuf>,
    /// Key of the certificate (PEM).
    #[serde(default)]
    key: Option<PathBuf>,
    /// Name that the daemon's certificate must have. The default is the host.
    #[serde(default)]
    server_name: Option<String>,
    /// SPIFFE ID that the daemon's certificate must have.
    #[serde(default)]
    spiffe_id: Option<String>,
    /// Token of each call.
    #[serde(default)]
    token: Option<String>,
    /// File with the token.
    #[serde(default)]
    token_file: Option<PathBuf>,
    /// Timeout of each call, such as `10s`. The default is `30s`.
    #[serde(default)]
    timeout: Option<String>,
}

impl FoundExecutor {
    /// Returns the configuration, or the first mistake as a sentence.
    fn into_config(self) -> Result<ExecutorConfig, String> {
        if self.cert.is_some() != self.key.is_some() {
            return Err("`cert` and `key` belong together: set both".to_owned());
        }
        if self.token.is_some() && self.token_file.is_some() {
            return Err("`token` and `token_file` are both set: set one".to_owned());
        }

        let endpoint: DaemonEndpoint = self
            .endpoint
            .parse()
            .map_err(|error| format!("endpoint: {error}"))?;
        let spiffe_id = self.spiffe_id.as_deref().map(str::parse::<SpiffeId>);
        let spiffe_id = spiffe_id
            .transpose()
            .map_err(|error| format!("spiffe_id: {error}"))?;
        let call_timeout = self.timeout.as_deref().map(parse_timeout);
        let call_timeout = call_timeout
            .transpose()
            .map_err(|reason| format!("timeout: {reason}"))?;

        let mut config = ExecutorConfig::new(endpoint);
        let file_token = self.token_file.map(ClientToken::File);
        config.credentials = ClientCredentials {
            ca: self.ca,
            identity: self.cert.zip(self.key),
            server_name: self.server_name,
            spiffe_id,
            token: self.token.map(ClientToken::Value).or(file_token),
            socket_users: None,
        };
        config.timeout = call_timeout.unwrap_or(config.timeout);
        Ok(config)
    }
}

impl ExecutorRegistry for ProgramRegistry {
    fn find_executor<'a>(&'a self, environment_id: &'a str) -> RegistryFuture<'a> {
        Box::pin(async move {
            let asked =
                self.callbacks
                    .ask_value::<Option<FoundExecutor>>(|call| CallEvent::FindExecutor {
                        call,
                        environment_id: environment_id.to_owned(),
                    });
            let found = timeout(FIND_TIMEOUT, asked).await;
            let found = found.map_err(|_| {
                let span = humantime::format_duration(FIND_TIMEOUT);
                format!("the program did not answer within {span}")
            })?;
            // The text of an exception may have secrets, and the reason reaches the model.
            let found = found.map_err(|reason| {
                tracing::warn!("no executor of environment {environment_id:?}: {reason}");
                "the function of the program that finds executors failed; see its log".to_owned()
            })?;
            found.map(FoundExecutor::into_config).transpose()
        })
    }

    fn environment_ids(&self) -> Vec<String> {
        self.environments.clone()
    }
}
