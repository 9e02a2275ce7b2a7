//! Daemons that `caproot exec` trusts, and the file in which an operator fixes the daemon and the lock.

use crate::cli::args::{ConnectionArgs, read_lock};
use crate::cli::executor::ConnectedExecutor;
use crate::cli::exit;
use crate::cli::failure::CommandFailure;
use crate::daemon::config::{read_config_file, service_uid};
use caproot_client::{DaemonEndpoint, ExecutorConfig};
use caproot_core::document::{self, ConfigErrors, DocumentReader};
use caproot_core::lock::Lock;
use caproot_core::net::endpoint::{EndpointAddress, ProcessEnv};
use std::path::{Path, PathBuf};

/// Keys of the file.
const EXEC_KEYS: [&str; 4] = ["endpoint", "ca", "lock", "signers"];
/// Ways to use a daemon that the command does not trust.
const TRUST_HINT: &str = "use the Unix socket of a daemon of root, of this user or of the service's \
     user, tls: with an authority of this machine, or --lock FILE";

/// Values that the operator fixes. Flags and variables cannot replace them.
#[derive(Debug, Default)]
pub struct ExecRules {
    file: PathBuf,
    endpoint: Option<DaemonEndpoint>,
    ca: Option<PathBuf>,
    lock_file: Option<PathBuf>,
    signers: Option<PathBuf>,
    /// Lock of the operator, or of the flags.
    pub lock: Option<Lock>,
}

impl ExecRules {
    /// Reads `/etc/caproot-exec.yaml`, and the lock of the operator or of the flags. The directory `/etc/caproot`
    /// is closed to most users. Without the file, nothing is fixed.
    pub fn load(
        lock: Option<&Path>,
        signers: Option<&Path>,
        env: &ProcessEnv,
    ) -> Result<Self, CommandFailure> {
        let file = env.etc.join("caproot-exec.yaml");
        // A file that cannot be examined may fix something.
        let mut rules = if file.try_exists().is_ok_and(|exists| !exists) {
            Self::default()
        } else {
            let text = read_config_file(&file).map_err(ConfigErrors::from);
            text.and_then(|text| Self::parse(&file, &text))
                .map_err(|errors| CommandFailure::from(errors).with_exit_code(exit::NOT_STARTED))?
        };

        let lock = rules.fixed_value("--lock", rules.lock_file.as_deref(), lock)?;
        let signers = rules.fixed_value("--signers", rules.signers.as_deref(), signers)?;
        rules.lock = lock.map(|file| read_lock(file, signers)).transpose()?;
        Ok(rules)
    }

    fn parse(file: &Path, text: &str) -> Result<Self, ConfigErrors> {
        let node = document::parse_file(file, text)?;
        let mut errors = ConfigErrors::default();
        let mut reader = DocumentReader {
            file,
            errors: &mut errors,
        };
        let top = reader.top_section(&node, EXEC_KEYS);

        let endpoint = top
            .get("endpoint")
            .and_then(|item| reader.parsed(&item, str::parse));
        let base = file.parent().unwrap_or(Path::new(""));
        let mut path = |key| reader.text(&top.get(key)?).map(|text| base.join(text));
        let rules = Self {
            file: file.to_owned(),
            endpoint,
            ca: path("ca"),
            lock_file: path("lock"),
            signers: path("signers"),
            lock: None,
        };
        errors.or_value(rules)
    }

    /// Connects to the daemon. Without a lock, the daemon must be trusted: a lock approves each byte of
    /// the script.
    pub async fn connect(
        &self,
        connection: &ConnectionArgs,
        env: &ProcessEnv,
    ) -> Result<ConnectedExecutor, CommandFailure> {
        if connection.fleet.is_some() {
            if self.endpoint.is_some() {
                return Err(self.widened("--fleet"));
            }
            let executor = connection.connect(env).await?;
            if self.lock.is_none() && !is_machine_tls(&executor.config) {
                return Err(untrusted(&executor.config.endpoint));
            }
            return Ok(executor);
        }

        let (fixed, given) = (self.endpoint.as_ref(), connection.endpoint.as_ref());
        let endpoint = self.fixed_value("--endpoint", fixed, given)?;
        let mut config = connection.executor_config(endpoint, env).await?;
        let ca = config.credentials.ca.take();
        config.credentials.ca = self
            .fixed_value("--ca", self.ca.as_ref(), ca.as_ref())?
            .cloned();

        if self.lock.is_none() {
            match config.endpoint.address() {
                EndpointAddress::Unix(_) => {
                    // Any user may have made the path, so the server's user is checked.
                    let mut users = vec![0, env.uid];
                    users.extend(service_uid());
                    config.credentials.socket_users = Some(users);
                }
                // An authority that the operator fixed is as good as one of this machine.
                EndpointAddress::Tls(_) if self.ca.is_some() || is_machine_tls(&config) => {}
                EndpointAddress::Tls(_) | EndpointAddress::Tcp(_) => {
                    return Err(untrusted(&config.endpoint));
                }
            }
        }
        connection.connect_to(config).await
    }

    /// Returns the value of the operator, or that of a flag. A flag may only repeat the value.
    fn fixed_value<'a, T: PartialEq + ?Sized>(
        &self,
        flag: &str,
        fixed: Option<&'a T>,
        given: Option<&'a T>,
    ) -> Result<Option<&'a T>, CommandFailure> {
        match (fixed, given) {
            (Some(fixed), Some(given)) if fixed != given => Err(self.widened(flag)),
            (fixed, given) => Ok(fixed.or(given)),
        }
    }

    fn widened(&self, flag: &str) -> CommandFailure {
        let sentence = format!(
            "{flag} or its variable cannot be used: {} fixes the value",
            self.file.display()
        );
        CommandFailure::new(exit::NOT_STARTED, sentence)
    }
}

/// Whether the daemon has a certificate of an authority of this machine.
fn is_machine_tls(config: &ExecutorConfig) -> bool {
    let is_tls = matches!(config.endpoint.address(), EndpointAddress::Tls(_));
    is_tls && config.credentials.ca.is_none()
}

fn untrusted(endpoint: &DaemonEndpoint) -> CommandFailure {
    let sentence = format!(
        "the daemon at {endpoint} is not trusted to send a script: any user or machine may serve \
         this address"
    );
    CommandFailure::new(exit::NOT_STARTED, sentence).with_hint(TRUST_HINT)
}

#[cfg(test)]
mod tests {
    use super::ExecRules;
    use std::path::{Path, PathBuf};

    #[test]
    fn flags_cannot_replace_the_values_of_the_operator() {
        let file = Path::new("/etc/caproot-exec.yaml");
        let text = "endpoint: unix:/run/c.sock\nlock: caproot/approved.lock\n";
        let rules = ExecRules::parse(file, text).expect("rules");
        assert_eq!(
            rules.lock_file,
            Some(PathBuf::from("/etc/caproot/approved.lock"))
        );
        for (given, is_good) in [
            (None, true),
            (Some("unix:/run/c.sock"), true),
            (Some("unix:/tmp/c.sock"), false),
        ] {
            let given = given.map(|text| text.parse().expect("an endpoint"));
            let value = rules.fixed_value("--endpoint", rules.endpoint.as_ref(), given.as_ref());
            assert_eq!(value.is_ok(), is_good, "{given:?}");
        }

        let errors = ExecRules::parse(file, "lock: a\ncopies: b\n").expect_err("an unknown key");
        assert!(
            errors
                .iter()
                .any(|error| error.to_string().contains("copies"))
        );
    }
}
