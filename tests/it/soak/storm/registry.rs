//! Registry of the storm: each environment has an executor behind the brokers.

use std::path::PathBuf;

use caproot_client::fleet::RegistryFuture;
use caproot_client::{ClientCredentials, ExecutorConfig, ExecutorRegistry};

use super::StormResult;
use super::executors::spiffe_id;

/// Registry in which each environment has an executor, reached by its id.
pub(crate) struct StormRegistry {
    pub(crate) ca: PathBuf,
    pub(crate) executors: usize,
}

impl ExecutorRegistry for StormRegistry {
    fn find_executor<'a>(&'a self, environment_id: &'a str) -> RegistryFuture<'a> {
        let find = || -> StormResult<Option<ExecutorConfig>> {
            let environment = environment_id
                .strip_prefix('e')
                .ok_or("no executor")?
                .parse()?;
            if environment >= self.executors {
                return Ok(None);
            }
            let endpoint = format!("tls:{environment_id}.executors.example:7420").parse()?;
            let credentials = ClientCredentials {
                ca: Some(self.ca.clone()),
                spiffe_id: Some(spiffe_id(environment).parse()?),
                ..ClientCredentials::default()
            };
            Ok(Some(ExecutorConfig {
                credentials,
                ..ExecutorConfig::new(endpoint)
            }))
        };
        let found = find().map_err(|error| error.to_string());
        Box::pin(std::future::ready(found))
    }
}
