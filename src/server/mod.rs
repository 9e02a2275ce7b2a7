//! The daemon as a library: [`build_daemon`] binds sockets and creates a [`BoundDaemon`], and
//! [`BoundDaemon::run`] serves until shutdown. For example, a test of an orchestrator runs a daemon in
//! its own process:
//!
//! ```
//! use caproot_client::{Client, ClientCredentials};
//! use caproot::config::{Config, RootFlag, ServeFlags};
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
//! let config = Config::from_flags(flags, &ProcessEnv::from_process());
//! let config = config.map_err(|errors| format!("{errors:?}"))?;
//! let daemon = caproot::server::build_daemon(config).await?;
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
mod embedded;
mod groups;
mod handshake;
mod heap;
mod http;
mod inherited;
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
pub use inherited::{InheritedSockets, take_inherited_sockets};
pub use listen::check_listeners;
pub use metrics_server::serve_metrics_at;
pub use reload::{ConfigFile, ReloadSource};
pub use reload_plan::{ConfigFileCheck, ConfigLoader, SandboxReadCheck};
pub use service_manager::{has_service_manager, notify_ready_with};

use crate::catalog::{CatalogStore, CatalogStoreConfig};
use crate::config::Config;
use crate::grpc::{
    AuditLog, AuthLayer, AuthRules, ConnectionQuota, DaemonInfo, GrpcService, LoadLimitLayer,
    Quota, RpcDispatcher,
};
use crate::model::{ConfigState, SandboxStatus};
use crate::telemetry::{Metrics, log_root_health};
use accept::{ConnectionLimiter, ConnectionSource};
use caproot_core::proto::caproot::v1::capability_service_server::SERVICE_NAME;
use http::Http2Server;
use listen::{BoundListener, RuntimeListener};
use reflection::{reflection_v1, reflection_v1alpha};
use reload::{ConfigReloader, auth_config, policy_config};
use std::fmt;
use std::future::{Future, pending};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tls::ReloadableTls;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::codec::CompressionEncoding::Gzip;
use tonic::service::RoutesBuilder;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

/// Longest time for which calls in flight may continue after shutdown began.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Version and build, as printed by `--version`.
pub const BUILD_INFO: &str = env!("CAPROOT_BUILD");

/// Error that keeps a daemon from starting or ends a daemon. Prints as one sentence.
#[derive(Debug)]
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
    metrics: Metrics,
    store: CatalogStore,
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

/// Bound listeners that are not registered with a runtime yet.
#[derive(Debug)]
pub struct BoundListeners {
    grpc: Vec<BoundListener>,
    metrics: Option<BoundListener>,
}

/// Parts of the daemon that a reload changes.
#[derive(Debug)]
struct ReloadTargets {
    store: CatalogStore,
    auth_layer: AuthLayer,
    audit: AuditLog,
    load_limit: LoadLimitLayer,
    connection_quota: ConnectionQuota,
    stream_quota: Quota,
    tls: Option<Arc<ReloadableTls>>,
}

/// Binds the listeners of the configuration and takes over the inherited sockets. Needs no runtime,
/// so that a process can bind before it enters the sandbox, and enter the sandbox while it has one
/// thread.
pub fn bind_listeners(
    config: &Config,
    inherited: InheritedSockets,
) -> Result<BoundListeners, StartError> {
    open_file_limit::require_open_files(config)?;
    let bind = |address| BoundListener::bind(address, &config.socket_access);
    let inherited_grpc = inherited
        .grpc
        .into_iter()
        .map(|socket| Ok(BoundListener::Inherited(socket)));
    let grpc = inherited_grpc
        .chain(config.listeners.iter().map(bind))
        .collect::<Result<_, _>>()?;
    // The configuration rejects `metrics.listen` next to an inherited socket for metrics.
    let inherited_metrics = inherited.metrics.map(BoundListener::Inherited);
    let metrics = config
        .metrics
        .as_ref()
        .map(bind)
        .transpose()?
        .or(inherited_metrics);
    Ok(BoundListeners { grpc, metrics })
}

/// Binds the listeners and builds a daemon without a sandbox.
pub async fn build_daemon(config: Config) -> Result<BoundDaemon, StartError> {
    let listeners = bind_listeners(&config, InheritedSockets::default())?;
    build_daemon_on(listeners, config, SandboxStatus::default()).await
}

/// Builds a daemon on bound listeners. The daemon reports `sandbox` to callers.
pub async fn build_daemon_on(
    listeners: BoundListeners,
    config: Config,
    sandbox: SandboxStatus,
) -> Result<BoundDaemon, StartError> {
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    if config.published_roots.is_empty() && !config.allowed_dirs.is_empty() {
        tracing::info!("no root is published; callers select directories below `allow`");
    }
    let tls = config.tls.clone().map(ReloadableTls::load).transpose();
    let tls = tls
        .map_err(|e| StartError::config(e.to_string()))?
        .map(Arc::new);
    let grpc_listeners: Vec<_> = listeners
        .grpc
        .into_iter()
        .map(RuntimeListener::from_bound)
        .collect::<Result<_, _>>()?;
    let metrics_listener = listeners
        .metrics
        .map(RuntimeListener::from_bound)
        .transpose()?;
    let epoch =
        random().map_err(|e| StartError::internal(&format!("reading random bytes failed: {e}")))?;
    heap::set_mmap_threshold();
    let mut limits = config.limits.clone();
    let capacity = open_file_limit::raise_open_file_limit(&mut limits, grpc_listeners.len());
    let max_connections = limits.max_connections;
    let audit = AuditLog::new(config.audit);
    let auth_layer = AuthLayer::new(auth_config(&config), audit.clone());
    let load_limit = LoadLimitLayer::new(&limits, auth_layer.clone());
    let first_call_timeout = config.connection_timing.first_call_timeout;
    let connection_quota = ConnectionQuota::new(&limits, first_call_timeout);
    let connection_limiter = ConnectionLimiter::new(connection_quota.clone(), capacity);
    let stream_quota = Quota::for_streams(&limits);
    let store_config = CatalogStoreConfig {
        fault_injector: config.faults.clone(),
        opener: config.opener,
        policy: policy_config(&config, limits),
    };
    let store = CatalogStore::new(store_config, epoch);
    store.start_watcher();
    let shutdown = CancellationToken::new();
    let start_time = SystemTime::now();
    let state = ConfigState {
        read_at: reload::unix_time(),
        ..ConfigState::default()
    };
    let (state_sender, config_state) = watch::channel(state);
    let expiry = tls.as_ref().map(|tls| tls.subscribe_expiry());
    let metrics = Metrics::new(store.clone(), start_time, config_state.clone(), expiry);
    let info = DaemonInfo {
        start_time,
        build: BUILD_INFO,
        sandbox,
        config_state: config_state.clone(),
    };
    let service = GrpcService::new(store.clone(), info, stream_quota.clone(), shutdown.clone());
    let service = RpcDispatcher::new(service, audit.clone());
    let (health, health_service) = tonic_health::server::health_reporter();
    health
        .set_service_status(SERVICE_NAME, ServingStatus::Serving)
        .await;
    // A client that compresses its requests compresses those to health, too.
    let health_service = health_service.accept_compressed(Gzip);
    let mut routes = RoutesBuilder::default();
    routes.add_service(auth_layer.wrap_service(service));
    routes.add_service(auth_layer.wrap_service_unless(|auth| auth.public_health, health_service));
    let is_public = |auth: &AuthRules| auth.public_reflection;
    routes.add_service(auth_layer.wrap_service_unless(is_public, reflection_v1()));
    routes.add_service(auth_layer.wrap_service_unless(is_public, reflection_v1alpha()));
    let server = Http2Server::new(
        routes.routes(),
        &load_limit,
        &metrics.layer(),
        config.connection_timing,
    );
    let targets = ReloadTargets {
        store: store.clone(),
        auth_layer,
        audit,
        load_limit,
        connection_quota,
        stream_quota,
        tls: tls.clone(),
    };
    let reloader = ConfigReloader::new(targets, config, max_connections, state_sender);
    Ok(BoundDaemon {
        grpc_listeners,
        metrics_listener,
        server,
        connection_limiter,
        tls,
        health,
        shutdown,
        metrics,
        store,
        reloader,
        config_state,
    })
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
            grpc_listeners,
            metrics_listener,
            server,
            connection_limiter,
            tls,
            ..
        } = self;
        let Self {
            mut health,
            shutdown,
            metrics,
            store,
            reloader,
            config_state,
            ..
        } = self;
        // Ends the streams if this future is dropped.
        let _shutdown_guard = shutdown.clone().drop_guard();
        // Dropped last, so that the socket files exist until draining has ended.
        let mut sockets = Vec::new();
        let metrics_listener = metrics_listener.map(|mut listener| {
            sockets.extend(listener.take_owned_socket());
            listener
        });
        // Both tasks are aborted when this function returns.
        let _metrics_task = metrics_listener
            .map(|listener| metrics_server::serve_metrics(listener, metrics.endpoint()));
        let _health_log = AbortOnDropHandle::new(tokio::spawn(log_root_health(store.clone())));
        let mut servers = JoinSet::new();
        for mut listener in grpc_listeners {
            sockets.extend(listener.take_owned_socket());
            let source = match listener {
                RuntimeListener::Unix(listener, _) => ConnectionSource::Unix(listener),
                RuntimeListener::Tcp(listener) => ConnectionSource::Tcp(listener, tls.clone()),
            };
            servers.spawn(connection_limiter.clone().serve_connections(
                source,
                server.clone(),
                shutdown.clone(),
            ));
        }
        let certificates = async {
            match &tls {
                Some(tls) => tls.watch_files().await,
                None => pending().await,
            }
        };
        let reloading = async {
            service_manager::notify_ready(&store, &config_state).await;
            tokio::select! {
                () = service_manager::run_notifications(&store, config_state.clone()) => {}
                () = reloader.run(reloads) => {}
            }
        };
        let exit_reason = tokio::select! {
            () = stop => ExitReason::Stopped,
            () = reloading => ExitReason::NeedsRestart,
            () = certificates => ExitReason::Stopped,
            () = socket_watch::keep_socket_files(&sockets) => ExitReason::Stopped,
            Some(ended) = servers.join_next() => {
                return Err(StartError::internal(&format!("a listener task ended: {ended:?}")));
            }
        };
        service_manager::notify_stopping(DRAIN_TIMEOUT);
        tracing::info!("stopping");
        for service in ["", SERVICE_NAME] {
            health
                .set_service_status(service, ServingStatus::NotServing)
                .await;
            // Ends the Watch streams after they have sent NOT_SERVING. Setting the status again
            // keeps answering Check calls.
            health.clear_service_status(service).await;
            health
                .set_service_status(service, ServingStatus::NotServing)
                .await;
        }
        shutdown.cancel();
        let drained = async { while servers.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN_TIMEOUT, drained).await.is_err() {
            tracing::warn!("calls in flight did not end within {DRAIN_TIMEOUT:?} and were aborted");
        }
        Ok(exit_reason)
    }
}

fn random() -> rustix::io::Result<u64> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
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

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for StartError {}
