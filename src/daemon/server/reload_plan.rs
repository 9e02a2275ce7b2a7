//! Decision about a new config file: apply it, reject it, or leave it to a new process, always as a
//! whole.

use super::tls::{NewTls, ReloadableTls};
use crate::daemon::config::{Config, ConfigError, ConfigErrors, RestartRequired};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Most keys in the message about a restart.
const MAX_KEYS: usize = 20;

/// Function that loads the configuration. Blocks.
pub type ConfigLoader = Arc<dyn Fn() -> Result<Config, ConfigErrors> + Send + Sync>;
/// Function that returns whether the sandbox lets the process read below a directory. Blocks.
pub type SandboxReadCheck = Arc<dyn Fn(&Path) -> bool + Send + Sync>;
/// Function that returns every error that a new process would find in the config file. Blocks.
pub type ConfigFileCheck = Arc<dyn Fn() -> io::Result<ConfigErrors> + Send + Sync>;

/// Outcome of reading a new config file.
pub enum ReloadPlan {
    /// Apply the configuration; some keys keep their values until the next start.
    Apply(Box<NewConfig>),
    /// End this process: these keys need a new one.
    Restart(Vec<String>),
}

/// New configuration. Applying it cannot fail.
pub struct NewConfig {
    pub config: Config,
    pub restart: RestartRequired,
    /// `None` if TLS stays as it is.
    pub tls: Option<NewTls>,
}

/// Reads the file and decides whether to apply it, reject it, or leave it to a new process. Blocks.
pub fn plan_reload(
    load: &ConfigLoader,
    old: &Config,
    may_read: impl Fn(&Path) -> bool,
    tls: Option<Arc<ReloadableTls>>,
    check_file: Option<ConfigFileCheck>,
) -> Result<ReloadPlan, ConfigErrors> {
    let loaded = load().map(|config| config.restrict_to_reloadable(old, &may_read));

    // The sandbox may cause an error, such as for a certificate in another directory.
    let is_applicable = matches!(&loaded, Ok((_, restart)) if restart.keys.is_empty());
    let Some(check) = check_file.filter(|_| !is_applicable) else {
        return plan_apply(loaded?, tls);
    };

    let found = match check() {
        Ok(found) => found,
        Err(error) => {
            tracing::error!(%error, "checking the config file outside the sandbox failed");
            return plan_apply(loaded?, tls);
        }
    };

    let mut keys = match &loaded {
        Ok((_, restart)) => restart.keys.iter().map(|key| (*key).to_owned()).collect(),
        // The check does not see inherited sockets, whose errors name no file.
        Err(errors) if found.is_empty() && errors.iter().all(|m| m.file.is_some()) => {
            // The file may have been incomplete during the first load.
            match load().map(|config| config.restrict_to_reloadable(old, may_read)) {
                Ok((config, restart)) if restart.keys.is_empty() => {
                    return plan_apply((config, restart), tls);
                }
                _ => errors.iter().map(key_of_error).collect::<Vec<_>>(),
            }
        }
        Err(errors) => {
            // The check does not see inherited sockets, but sees the same flags.
            let elsewhere: Vec<_> = errors
                .iter()
                .filter(|error| error.file.is_none() && !found.contains(error))
                .cloned()
                .collect();
            return Err(found.into_iter().chain(elsewhere).collect());
        }
    };

    if !found.is_empty() {
        return Err(found);
    }
    keys.truncate(MAX_KEYS);
    Ok(ReloadPlan::Restart(keys))
}

fn key_of_error(error: &ConfigError) -> String {
    match &*error.key {
        "" => "the config file".to_owned(),
        key => key.to_owned(),
    }
}

/// Reads the certificate files, which is the last step that can fail.
fn plan_apply(
    (config, restart): (Config, RestartRequired),
    tls: Option<Arc<ReloadableTls>>,
) -> Result<ReloadPlan, ConfigErrors> {
    let tls = match tls.zip(config.tls.clone()) {
        None => None,
        Some((tls, files)) => tls
            .read_files(files)
            .map_err(|unusable| ConfigError::key("tls", unusable.to_string()))?,
    };

    Ok(ReloadPlan::Apply(Box::new(NewConfig {
        config,
        restart,
        tls,
    })))
}
