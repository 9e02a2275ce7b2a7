//! Flags of the client commands, and the client and roots that they select.

use super::executor::ConnectedExecutor;
use super::exit;
use super::failure::{CommandFailure, CommandResult as _};
use super::root_arg::{RootArg, select_roots};
use crate::agent::local::RootPreset;
use caproot_client::{
    Client, ClientCredentials, ClientToken, DaemonEndpoint, ExecutorConfig, SpiffeId, Trust,
    find_default_endpoint, parse_selected_roots,
};
use caproot_core::bounded_file;
use caproot_core::lock::{Lock, LockFile};
use caproot_core::net::endpoint::{EndpointAddress, ProcessEnv};
use caproot_core::proto::caproot::v1::SelectedCapabilityRoot;
use caproot_core::text::SentenceResult as _;
use caproot_session::{DEFAULT_RESULT_BYTES, MAX_RESULT_BYTES};
use clap::Args;
use clap::builder::{OsStringValueParser, PossibleValuesParser, TypedValueParser};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Maximum size of a `--selected` file.
const MAX_SELECTED_BYTES: u64 = 16 << 20;

/// Flag for the product of a list.
#[derive(Debug, Args)]
pub struct ProductArgs {
    /// Only skills for this product, or for every product
    #[arg(
        long,
        value_name = "PRODUCT",
        default_value = "",
        hide_default_value = true
    )]
    pub product: String,
}

/// Parses the limit of the result of a tool.
pub fn parse_result_bytes(text: &str) -> Result<usize, String> {
    let bytes = text.parse().ok();
    bytes
        .filter(|bytes| (DEFAULT_RESULT_BYTES..=MAX_RESULT_BYTES).contains(bytes))
        .ok_or_else(|| format!("expected {DEFAULT_RESULT_BYTES} to {MAX_RESULT_BYTES}"))
}

/// Flags of the lock that must approve the skills.
#[derive(Debug, Args)]
pub struct LockFileArgs {
    /// Only skills that this lock of `caproot lock` approves. The descriptions are those of the lock, and
    /// each file is verified. Replaces the lock of a fleet file
    #[arg(long, value_name = "FILE")]
    lock: Option<PathBuf>,
    /// With --lock: require an SSH signature of the lock in FILE.sig by a key of this file
    #[arg(long, value_name = "FILE", requires = "lock")]
    signers: Option<PathBuf>,
}

/// Reads a lock. With `signers`, the lock needs a good signature.
pub fn read_lock(file: &Path, signers: Option<&Path>) -> Result<Lock, CommandFailure> {
    Ok(LockFile::read(file, signers)?.lock)
}

impl LockFileArgs {
    /// Reads the lock, if there is one.
    pub fn read(&self) -> Result<Option<Arc<Lock>>, CommandFailure> {
        self.lock
            .as_deref()
            .map(|file| read_lock(file, self.signers.as_deref()).map(Arc::new))
            .transpose()
    }

    /// Returns the flags and their values, for the command line of another command.
    pub fn values(&self) -> Vec<(&'static str, String)> {
        let files = [("--lock", &self.lock), ("--signers", &self.signers)];
        files
            .into_iter()
            .filter_map(|(flag, file)| Some((flag, file.as_ref()?.display().to_string())))
            .collect()
    }

    /// Returns the skills that a session trusts.
    pub fn read_trust(&self) -> Result<Trust, CommandFailure> {
        Ok(self.read()?.map_or(Trust::All, Trust::Lock))
    }
}

/// Flags of the connection to a daemon.
#[derive(Debug, Args)]
pub struct ConnectionArgs {
    /// Address of the daemon: unix:PATH, tcp:HOST:PORT or tls:HOST:PORT [default: the first default
    /// socket that answers]
    #[arg(long, value_name = "ENDPOINT", env = "CAPROOT_ENDPOINT")]
    pub endpoint: Option<DaemonEndpoint>,
    /// Timeout of each call to the daemon, such as 10s or 1m
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_timeout)]
    timeout: Duration,
    /// With tls:HOST:PORT: authorities (PEM) that the daemon's certificate must come from [default:
    /// the authorities of this machine]
    #[arg(long, value_name = "FILE", env = "CAPROOT_CA")]
    ca: Option<PathBuf>,
    /// With tls:HOST:PORT: client certificate (PEM), followed by its intermediate certificates
    #[arg(long, value_name = "FILE", env = "CAPROOT_CERT", requires = "key")]
    cert: Option<PathBuf>,
    /// Key of --cert (PEM)
    #[arg(long, value_name = "FILE", env = "CAPROOT_KEY", requires = "cert")]
    key: Option<PathBuf>,
    /// With tls:HOST:PORT: name that the daemon's certificate must have [default: HOST]
    #[arg(long, value_name = "NAME")]
    server_name: Option<String>,
    /// With tls:HOST:PORT: SPIFFE ID that the daemon's certificate must have
    #[arg(long, value_name = "ID", conflicts_with = "server_name")]
    spiffe_id: Option<SpiffeId>,
    /// File with a token that is sent with each call, only over TLS, to a Unix socket or to a
    /// loopback address
    #[arg(long, value_name = "FILE", env = "CAPROOT_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// Fleet file (YAML or JSON), which maps environment ids to the endpoints and credentials of
    /// executors; replaces --endpoint and the other options of the connection
    #[arg(long, value_name = "FILE")]
    pub fleet: Option<PathBuf>,
    /// With --fleet: the executor, by its environment id. Without --fleet: the environment of the
    /// --root directories [default: the daemon's first environment]
    #[arg(long, value_name = "ID")]
    environment_id: Option<String>,
}

/// Parses a timeout.
pub fn parse_timeout(text: &str) -> Result<Duration, String> {
    let span = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    // A gRPC deadline has at most eight digits; a day is far below that limit.
    let fits = !span.is_zero() && span <= Duration::from_hours(24);
    fits.then_some(span)
        .ok_or_else(|| "must be more than zero and at most a day".to_owned())
}

impl ConnectionArgs {
    /// Returns the fleet file, if the command uses every executor of the fleet.
    pub fn whole_fleet(&self) -> Option<&Path> {
        self.fleet
            .as_deref()
            .filter(|_| self.environment_id.is_none())
    }

    /// Whether no flag or variable names an executor, so that the default sockets are tried.
    pub fn is_default(&self) -> bool {
        self.endpoint.is_none() && self.fleet.is_none()
    }

    /// Whether the command connects to a Unix socket.
    pub fn is_unix_socket(&self) -> bool {
        let address = self.endpoint.as_ref().map(DaemonEndpoint::address);
        // The default sockets are Unix sockets.
        let is_unix = address.is_none_or(|at| matches!(at, EndpointAddress::Unix(_)));
        is_unix && self.fleet.is_none()
    }

    /// Returns the flags of the endpoint and their values, for the command line of another command on this
    /// machine.
    pub fn endpoint_values(&self) -> Vec<(&'static str, String)> {
        let endpoint = self.endpoint.as_ref().map(ToString::to_string);
        let token = self
            .token_file
            .as_ref()
            .map(|file| file.display().to_string());
        [("--endpoint", endpoint), ("--token-file", token)]
            .into_iter()
            .filter_map(|(flag, value)| Some((flag, value?)))
            .collect()
    }

    /// Connects, and checks that an executor of a fleet has the environment of the command line.
    pub async fn connect(&self, env: &ProcessEnv) -> Result<ConnectedExecutor, CommandFailure> {
        let mut executor = self.connect_unchecked(env).await?;
        executor.check_environment().await?;
        Ok(executor)
    }

    /// Connects to the executor of the command line, without a call.
    pub async fn connect_unchecked(
        &self,
        env: &ProcessEnv,
    ) -> Result<ConnectedExecutor, CommandFailure> {
        if let (Some(file), Some(id)) = (&self.fleet, &self.environment_id) {
            return ConnectedExecutor::connect_in_fleet(file, id).await;
        }
        self.connect_to(self.executor_config(self.endpoint.as_ref(), env).await?)
            .await
    }

    /// Connects to a daemon outside a fleet.
    pub async fn connect_to(
        &self,
        config: ExecutorConfig,
    ) -> Result<ConnectedExecutor, CommandFailure> {
        ConnectedExecutor::connect(config, self.environment_id.clone()).await
    }

    /// Returns the connection to a daemon outside a fleet: at an endpoint, or at the first default socket
    /// that answers.
    pub async fn executor_config(
        &self,
        endpoint: Option<&DaemonEndpoint>,
        env: &ProcessEnv,
    ) -> Result<ExecutorConfig, CommandFailure> {
        let endpoint = match endpoint {
            Some(endpoint) => endpoint.clone(),
            None => find_default_endpoint(env, self.timeout).await?,
        };

        Ok(ExecutorConfig {
            credentials: ClientCredentials {
                ca: self.ca.clone(),
                identity: self.cert.clone().zip(self.key.clone()),
                server_name: self.server_name.clone(),
                spiffe_id: self.spiffe_id.clone(),
                token: self.token_file.clone().map(ClientToken::File),
                socket_users: None,
            },
            timeout: self.timeout,
            ..ExecutorConfig::new(endpoint)
        })
    }
}

/// Flags of the selected roots. The default is the published roots.
#[derive(Debug, Args)]
pub struct SelectionArgs {
    /// Root: a directory on the executor, a file: URI or published:ID; repeat for more [default:
    /// every published root]
    #[arg(long, value_name = "[ID=]DIR", value_parser = root_arg_parser())]
    root: Vec<RootArg>,
    /// File (- for stdin) with the roots as JSON: an array of selected roots, or an object with a
    /// selectedCapabilityRoots array. With --fleet and --environment-id, only the roots of this
    /// environment
    #[arg(long, value_name = "FILE", conflicts_with = "root")]
    selected: Option<PathBuf>,
}

/// Flags of a daemon and its selected roots.
#[derive(Debug, Args)]
pub struct TargetArgs {
    #[command(flatten, next_help_heading = "Connection options")]
    pub connection: ConnectionArgs,
    #[command(flatten, next_help_heading = "Root options")]
    pub selection: SelectionArgs,
}

impl TargetArgs {
    /// Connects to the daemon, and returns the selected roots.
    pub async fn open(
        &self,
        env: &ProcessEnv,
    ) -> Result<(Client, Vec<SelectedCapabilityRoot>), CommandFailure> {
        let mut executor = self.connection.connect(env).await?;
        let roots = self.selection.selected_roots(&mut executor, env).await?;
        Ok((executor.client, roots))
    }
}

/// Returns a parser of `[ID=]DIR` that accepts bytes that are not UTF-8.
pub fn root_arg_parser() -> impl TypedValueParser<Value = RootArg> {
    OsStringValueParser::new().try_map(RootArg::parse)
}

/// Returns a parser of the name of a preset of roots.
pub fn preset_parser() -> impl TypedValueParser<Value = RootPreset> {
    PossibleValuesParser::new(RootPreset::NAMES)
        .try_map(|name| RootPreset::parse(&name).ok_or("unknown preset"))
}

impl SelectionArgs {
    /// Whether no flag selects a root, so that the published roots are selected.
    pub fn selects_published(&self) -> bool {
        self.root.is_empty() && self.selected.is_none()
    }

    /// Whether the roots are read from stdin.
    pub fn is_of_stdin(&self) -> bool {
        self.selected.as_deref() == Some(Path::new("-"))
    }

    /// Reads the roots of `--selected`, if the flag is set.
    pub fn roots_from_file(&self) -> Result<Option<Vec<SelectedCapabilityRoot>>, CommandFailure> {
        self.selected.as_deref().map(read_selected_file).transpose()
    }

    /// Returns the selected roots. Calls the daemon only for values that the flags do not have.
    pub async fn selected_roots(
        &self,
        executor: &mut ConnectedExecutor,
        env: &ProcessEnv,
    ) -> Result<Vec<SelectedCapabilityRoot>, CommandFailure> {
        if let Some(file) = &self.selected {
            return executor.own_roots(read_selected_file(file)?);
        }
        if self.root.is_empty() {
            return executor.published_roots().await;
        }
        select_roots(
            &self.root,
            &executor.environment_id().await?,
            env.current_dir.as_deref(),
        )
        .or_exit(exit::BAD_CONFIG)
    }
}

fn read_selected_file(file: &Path) -> Result<Vec<SelectedCapabilityRoot>, CommandFailure> {
    let bytes = if file == Path::new("-") {
        bounded_file::read_stream(io::stdin().lock(), MAX_SELECTED_BYTES)
    } else {
        bounded_file::read_file_or_pipe(file, MAX_SELECTED_BYTES)
    };
    bytes
        .and_then(bounded_file::decode_text)
        .map_err(|error| format!("the file {error}"))
        .and_then(|text| parse_selected_roots(&text))
        .context(format_args!("cannot use --selected {}", file.display()))
        .or_exit(exit::BAD_CONFIG)
}
