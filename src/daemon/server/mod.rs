//! The daemon as a library: [`build_daemon`] binds sockets and creates a [`BoundDaemon`], and
//! [`BoundDaemon::run`] serves until shutdown. For example, a test of an orchestrator runs a daemon in
//! its own process:
//!
//! ```
//! use caproot_client::{Client, ClientCredentials};
//! use caproot::daemon::config::{Config, RootFlag, ServeFlags};
//! use caproot_core::net::endpoint::ProcessEnv;
//! use std::time::Duration;
//! use tokio::sync::oneshot;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let flags = ServeFlags {
//!     roots: vec![RootFlag { id: Some("demo".to_owned()), dir: "tests/trees/demo".into() }],
//!     listen: vec!["tcp:127.0.0.1:0".to_owned()],
//!     ..ServeFlags::default()
//! };
//! let config = Config::from_flags(flags, &ProcessEnv::from_process())?;
//! let daemon = caproot::daemon::server::build_daemon(config).await?;
//! let endpoint = daemon.listen_addresses()[0].parse()?;
//! let (stop, stopped) = oneshot::channel::<()>();
//! let running = tokio::spawn(daemon.run(async { drop(stopped.await) }));
//!
//! let credentials = ClientCredentials::default();
//! let mut client = Client::connect(&endpoint, &credentials, Duration::from_secs(30)).await?;
//! assert_eq!(client.list_roots().await?.roots.len(), 1);
//!
//! // The daemon lets calls in flight end, and then returns.
//! drop((client, stop));
//! running.await??;
//! # Ok(())
//! # }
//! ```

mod accept;
#[doc(hidden)]
pub mod authority_compat;
mod coalescing_io;
mod connection;
mod denied_roots;
mod embedded;
mod groups;
mod handshake;
mod heap;
mod http;
mod inherited;
mod layers;
mod listen;
mod metrics_server;
mod open_file_limit;
mod reflection;
mod reload;
mod reload_plan;
mod service_manager;
mod socket_watch;
mod tls;
mod unread;

pub use embedded::{EmbeddedConnector, EmbeddedDaemon};
pub use heap::set_mmap_threshold;
pub use inherited::take_inherited_sockets;
pub use listen::check_listeners;
pub use metrics_server::serve_metrics_at;
pub use reload::{ConfigFile, ReloadSource};
pub use reload_plan::{ConfigFileCheck, ConfigLoader, SandboxReadCheck};
pub use service_manager::{has_service_manager, notify_ready_with};

use crate::daemon::catalog::{CatalogStore, CatalogStoreConfig};
use crate::daemon::config::Config;
use crate::daemon::grpc::{
    AuditLog, AuthLayer, ConnectionQuota, DaemonInfo, GrpcService, LoadLimitLayer, Quota,
    RpcDispatcher,
};
use crate::daemon::model::{ConfigState, SandboxStatus};
use crate::daemon::readiness::ReadinessChecker;
use crate::daemon::telemetry::{Metrics, ScrapeCollector, ScrapeEndpoint, log_root_health};
use accept::{ConnectionLimiter, ConnectionSource};
use caproot_core::proto::caproot::v1::capability_service_server::SERVICE_NAME;
use futures_util::future::OptionFuture;
use http::Http2Server;
use layers::layer_services;
use listen::{BoundListener, RuntimeListener};
use reload::{ConfigReloader, auth_config, policy_config};
use rustix::rand::{GetRandomFlags, getrandom};
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tls::ReloadableTls;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

/// Longest time for which calls in flight may continue after shutdown began.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Version and build, as printed by `--version`.
pub const BUILD_INFO: &str = env!("CAPROOT_BUILD");

/// Error that keeps a daemon from starting or ends a daemon. Prints as one sentence.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct StartError {
    message: String,
    exit_code: u8,
}

/// Daemon whose sockets are bound and which does not serve yet.
#[derive(Debug)]
pub struct BoundDaemon {
    grpc_listeners: Vec<RuntimeListener>,
    metrics_listener: Option<RuntimeListener>,
    server: Http2Server,
    connection_limiter: ConnectionLimiter,
    tls: Option<Arc<ReloadableTls>>,
    health: HealthReporter,
    shutdown: CancellationToken,
    metrics: ScrapeEndpoint,
    store: CatalogStore,
    readiness: ReadinessChecker,
    reloader: ConfigReloader,
    config_state: watch::Receiver<ConfigState>,
}

/// Reason why a daemon ended without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitReason {
    /// The caller requested the shutdown.
    Stopped,
    /// A reload changed keys that only a new process can apply.
    NeedsRestart,
}

/// Bound or inherited listeners that are not registered with a runtime yet.
#[derive(Debug, Default)]
pub struct BoundListeners {
    grpc: Vec<BoundListener>,
    metrics: Option<BoundListener>,
}

/// Binds the listeners of the configuration, in addition to the inherited ones. Needs no runtime,
/// so that a process can bind before it enters the sandbox, and enter the sandbox while it has one
/// thread.
pub fn bind_listeners(
    config: &Config,
    inherited: BoundListeners,
) -> Result<BoundListeners, StartError> {
    open_file_limit::require_open_files(config)?;

    // Inherited sockets come first: a client finds them before the daemon has started.
    let mut listeners = inherited;
    for address in &config.listeners {
        let listener = BoundListener::bind(address, &config.socket_access)?;
        listeners.grpc.push(listener);
    }

    // The configuration rejects `metrics.listen` next to an inherited socket for metrics.
    if let Some(address) = &config.metrics {
        listeners.metrics = Some(BoundListener::bind(address, &config.socket_access)?);
    }
    Ok(listeners)
}

/// Binds the listeners and builds a daemon without a sandbox.
pub async fn build_daemon(config: Config) -> Result<BoundDaemon, StartError> {
    let listeners = bind_listeners(&config, BoundListeners::default())?;
    build_daemon_on(listeners, config, SandboxStatus::default()).await
}

/// Builds a daemon on bound listeners. The daemon reports `sandbox` to callers.
pub async fn build_daemon_on(
    listeners: BoundListeners,
    config: Config,
    sandbox: SandboxStatus,
) -> Result<BoundDaemon, StartError> {
    // The warnings come first: they may explain the error of a later step.
    log_config_warnings(&config);

    // The certificates were checked with the configuration, but may have changed since. An error here
    // ends the start before a listener is registered.
    let tls = load_tls(&config)?;

    // The listeners were bound before the sandbox, without a runtime. Clients can connect already, and
    // wait in the backlog of the kernel until the daemon runs.
    let grpc_listeners: Vec<_> = listeners
        .grpc
        .into_iter()
        .map(RuntimeListener::from_bound)
        .collect::<Result<_, _>>()?;
    let metrics_listener = listeners
        .metrics
        .map(RuntimeListener::from_bound)
        .transpose()?;

    // The limit of open files may lower `max_connections`. So this step comes before all parts that
    // take limits, and after the listeners, whose number divides the files.
    let mut limits = config.limits.clone();
    let capacity = open_file_limit::raise_open_file_limit(&mut limits, grpc_listeners.len());

    // Before the first large block is freed: glibc raises its threshold then.
    set_mmap_threshold();

    let first_call_timeout = config.connection_timing.first_call_timeout;
    let connection_quota = ConnectionQuota::new(&limits, first_call_timeout);
    let connection_limiter = ConnectionLimiter::new(connection_quota, capacity);

    // The parts that a reload changes are created together; the other parts below use their clones.
    let audit = AuditLog::new(config.audit);
    let auth_layer = AuthLayer::new(auth_config(&config), audit.clone());
    let store = CatalogStore::new(
        CatalogStoreConfig {
            fault_injector: config.faults.clone(),
            opener: config.opener,
            policy: policy_config(&config, limits.clone()),
        },
        random_epoch()?,
    );

    // The watcher starts before the first scan, so that `GetExecutor` names the right backend from the
    // first call on.
    store.start_watcher();

    // The metrics and the service report the same state of the configuration.
    let start_time = SystemTime::now();
    let (state_sender, config_state) = watch::channel(ConfigState {
        read_at: reload::unix_time(),
        ..ConfigState::default()
    });
    let metrics = Metrics::new(ScrapeCollector {
        store: store.clone(),
        started_at: start_time,
        config: config_state.clone(),
        certificate_expiry: tls.as_ref().map(|tls| tls.expires_at.subscribe()),
    });

    // The service is `SERVING` before a listener accepts, so that no health check fails during the
    // start.
    let (health, health_service) = tonic_health::server::health_reporter();
    health
        .set_service_status(SERVICE_NAME, ServingStatus::Serving)
        .await;

    // The server comes last, because its services and layers use the parts above.
    let shutdown = CancellationToken::new();
    let info = DaemonInfo {
        start_time,
        build: BUILD_INFO,
        sandbox,
        config_state: config_state.clone(),
    };
    let readiness = ReadinessChecker::new(&config.readiness);
    let capabilities = RpcDispatcher::new(
        GrpcService::new(
            store.clone(),
            readiness.clone(),
            info,
            Quota::for_streams(&limits),
            shutdown.clone(),
        ),
        audit,
    );
    let load_limit = LoadLimitLayer::new(&limits, auth_layer.clone());
    let service = layer_services(
        metrics.calls,
        &load_limit,
        &auth_layer,
        capabilities,
        health_service,
    );
    let server = Http2Server::new(service, config.connection_timing);
    let reloader = ConfigReloader {
        store: store.clone(),
        auth_layer,
        tls: tls.clone(),
        limits,
        config,
        config_state: state_sender,
        hung_reads: Vec::new(),
    };

    Ok(BoundDaemon {
        grpc_listeners,
        metrics_listener,
        server,
        connection_limiter,
        tls,
        health,
        shutdown,
        metrics: metrics.endpoint,
        store,
        readiness,
        reloader,
        config_state,
    })
}

/// Loads the certificates, if the configuration has TLS.
fn load_tls(config: &Config) -> Result<Option<Arc<ReloadableTls>>, StartError> {
    let Some(files) = config.tls.clone() else {
        return Ok(None);
    };
    ReloadableTls::load(files)
        .map(|tls| Some(Arc::new(tls)))
        .map_err(|error| StartError::config(error.to_string()))
}

/// Returns the epoch of this process.
fn random_epoch() -> Result<u64, StartError> {
    let mut bytes = [0; 8];
    getrandom(&mut bytes, GetRandomFlags::empty())
        .map_err(|e| StartError::internal(&format!("reading random bytes failed: {e}")))?;
    Ok(u64::from_ne_bytes(bytes))
}

fn log_config_warnings(config: &Config) {
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    if config.published_roots.is_empty() && !config.allowed_dirs.is_empty() {
        tracing::info!("no root is published; callers select directories below `allow`");
    }
}

impl BoundDaemon {
    /// Returns the addresses of the gRPC listeners, as `unix:/…` or `tcp:127.0.0.1:43210`.
    #[must_use]
    pub fn listen_addresses(&self) -> Vec<String> {
        self.grpc_listeners
            .iter()
            .map(RuntimeListener::address)
            .collect()
    }

    /// Returns the address of the listener for metrics, in the same format.
    #[must_use]
    pub fn metrics_address(&self) -> Option<String> {
        self.metrics_listener.as_ref().map(RuntimeListener::address)
    }

    /// Serves until `stop` completes, and then drains calls in flight for at most
    /// [`DRAIN_TIMEOUT`].
    pub async fn run(self, stop: impl Future<Output = ()> + Send) -> Result<(), StartError> {
        self.run_with_reloads(stop, ReloadSource::default())
            .await
            .map(drop)
    }

    /// Serves like [`BoundDaemon::run`], and reloads the configuration on request.
    pub async fn run_with_reloads(
        self,
        stop: impl Future<Output = ()> + Send,
        reloads: ReloadSource,
    ) -> Result<ExitReason, StartError> {
        let Self {
            mut grpc_listeners,
            mut metrics_listener,
            server,
            connection_limiter,
            tls,
            mut health,
            shutdown,
            metrics,
            store,
            readiness,
            reloader,
            config_state,
        } = self;

        // Ends the streams if this future is dropped.
        let _shutdown_guard = shutdown.clone().drop_guard();
        let _root_tasks_guard = store.guard_root_tasks();

        // Dropped last, so that the socket files exist until draining has ended.
        let sockets: Vec<_> = metrics_listener
            .iter_mut()
            .chain(&mut grpc_listeners)
            .filter_map(|listener| match listener {
                RuntimeListener::Unix(_, owned) => owned.take(),
                RuntimeListener::Tcp(_) => None,
            })
            .collect();

        // The tasks are aborted when this function returns.
        let _metrics_task =
            metrics_listener.map(|listener| metrics_server::serve_metrics(listener, metrics));
        let _readiness_task = AbortOnDropHandle::new(tokio::spawn(readiness.follow_changes()));
        let _health_log = AbortOnDropHandle::new(tokio::spawn(log_root_health(store.clone())));

        let mut servers = JoinSet::new();
        for listener in grpc_listeners {
            let source = match listener {
                RuntimeListener::Unix(listener, _) => ConnectionSource::Unix(listener),
                RuntimeListener::Tcp(listener) => ConnectionSource::Tcp(listener, tls.clone()),
            };
            let limiter = connection_limiter.clone();
            servers.spawn(limiter.serve_connections(source, server.clone(), shutdown.clone()));
        }

        let certificates = OptionFuture::from(tls.as_ref().map(ReloadableTls::watch_files));
        let exit_reason = tokio::select! {
            () = stop => ExitReason::Stopped,
            () = run_reloads(&store, &config_state, reloader, reloads) => ExitReason::NeedsRestart,
            Some(()) = certificates => ExitReason::Stopped,
            () = socket_watch::keep_socket_files(&sockets) => ExitReason::Stopped,
            Some(ended) = servers.join_next() => {
                return Err(StartError::internal(&format!("a listener task ended: {ended:?}")));
            }
        };

        service_manager::notify_stopping(DRAIN_TIMEOUT);
        tracing::info!("stopping");

        // Health changes before the streams end, so that a client that connects again at once finds
        // another daemon.
        report_not_serving(&mut health).await;
        shutdown.cancel();
        drain_calls(servers).await;
        Ok(exit_reason)
    }
}

/// Notifies the service manager, and reloads on request. Returns when a new process is needed.
async fn run_reloads(
    store: &CatalogStore,
    config_state: &watch::Receiver<ConfigState>,
    reloader: ConfigReloader,
    reloads: ReloadSource,
) {
    service_manager::notify_ready(store, config_state).await;
    tokio::select! {
        () = service_manager::run_notifications(store, config_state.clone()) => {}
        () = reloader.run(reloads) => {}
    }
}

/// Waits for calls in flight, at most for [`DRAIN_TIMEOUT`]. Aborts those that are left.
async fn drain_calls(mut servers: JoinSet<()>) {
    let drained = async { while servers.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN_TIMEOUT, drained).await.is_err() {
        tracing::warn!("calls in flight did not end within {DRAIN_TIMEOUT:?} and were aborted");
    }
}

/// Answers health checks with `NOT_SERVING` from now on.
async fn report_not_serving(health: &mut HealthReporter) {
    for service in ["", SERVICE_NAME] {
        health
            .set_service_status(service, ServingStatus::NotServing)
            .await;
        // Ends the Watch streams after they have sent NOT_SERVING. Setting the status again keeps
        // answering Check calls.
        health.clear_service_status(service).await;
        health
            .set_service_status(service, ServingStatus::NotServing)
            .await;
    }
}

impl StartError {
    fn listener(message: String) -> Self {
        Self {
            message,
            exit_code: 73,
        }
    }

    fn internal(message: &str) -> Self {
        Self {
            message: format!("internal error: {message}"),
            exit_code: 70,
        }
    }

    fn config(message: String) -> Self {
        Self {
            message,
            exit_code: 78,
        }
    }

    /// Returns the exit code for this error: 73 (`EX_CANTCREAT`) for a listener that cannot be
    /// bound, 78 (`EX_CONFIG`) for certificates that became unusable, 70 (`EX_SOFTWARE`) for an
    /// internal error.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        self.exit_code
    }
}
