//! The daemon as a value: `build` binds, `run` serves until it is told to stop. Leaves flags,
//! signals and printing to `cli`.

mod accept;
#[doc(hidden)]
pub mod authority;
mod coalescing_io;
mod connection;
mod embedded;
mod groups;
mod handshake;
mod handshake_log;
mod heap;
mod http;
mod inherited;
mod listen;
mod metrics_server;
mod open_file_limit;
mod rate_limited_log;
mod reload;
mod service_manager;
mod tls;
mod unread;

pub use embedded::{EmbeddedConnector, EmbeddedDaemon};
pub use listen::check_socket_directories;
pub use reload::{ConfigFile, ConfigFileCheck, ConfigLoader, ReloadSource, SandboxReadCheck};
pub use service_manager::has_service_manager;

pub use inherited::{InheritedSockets, take_inherited_sockets};

use crate::catalog::{CatalogStore, CatalogStoreConfig};
use crate::config::Config;
use crate::domain::limits::MAX_RESPONSE_BYTES;
use crate::domain::{ConfigState, SandboxStatus};
use crate::grpc::{
    AuditLog, AuditedService, AuthLayer, DaemonInfo, GrpcService, ListCompression, LoadLimitLayer,
    Quota,
};
use crate::proto::{self, caproot::v1::capability_service_server as server};
use crate::telemetry::{Metrics, log_root_health};
use accept::{ConnectionLimiter, ConnectionSource};
use http::Http2Server;
use listen::{BoundListener, RuntimeListener};
use reload::{ConfigReloader, ReloadTargets, auth_config, policy_config};
use server::{CapabilityServiceServer, SERVICE_NAME};
use std::fmt;
use std::future::{Future, pending};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tls::ReloadableTls;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;
use tonic::codec::CompressionEncoding::Gzip;
use tonic::service::RoutesBuilder;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

/// What calls that are under way when the daemon is told to stop may still take.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Of what it was built, as `--version` says it.
pub const BUILD_INFO: &str = env!("CAPROOT_BUILD");

/// Why a daemon does not start or ends by surprise. Prints as one sentence.
#[derive(Debug)]
pub struct StartError {
    message: String,
    exit_code: u8,
}

/// A daemon that is bound and does not serve yet.
#[derive(Debug)]
pub struct BoundDaemon {
    grpc_listeners: Vec<RuntimeListener>,
    server: Http2Server,
    connection_limiter: ConnectionLimiter,
    tls: Option<Arc<ReloadableTls>>,
    health: HealthReporter,
    shutdown: watch::Sender<bool>,
    metrics: Metrics,
    metrics_address: Option<RuntimeListener>,
    store: CatalogStore,
    reloader: ConfigReloader,
    config_state: watch::Receiver<ConfigState>,
}

/// Reason why a daemon ended without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitReason {
    /// It was told to stop.
    Stopped,
    /// A reload changed keys that only a new process can apply.
    NeedsRestart,
}

/// Listeners that are bound and that no runtime knows yet.
#[derive(Debug)]
pub struct BoundListeners {
    grpc: Vec<BoundListener>,
    metrics: Option<BoundListener>,
}

/// Binds everything that the configuration names, beside the sockets that were handed over. Needs no
/// runtime, so that a process can do this before it restricts itself, and that before it has a second
/// thread.
pub fn bind_listeners(
    config: &Config,
    inherited: InheritedSockets,
) -> Result<BoundListeners, StartError> {
    let lent = inherited.grpc.into_iter().map(|lent| Ok(BoundListener::Inherited(lent)));
    let served = config
        .listeners
        .iter()
        .map(|listener| BoundListener::bind(listener, &config.socket_access));
    let served = lent.chain(served).collect::<Result<_, _>>()?;
    let scraped = config
        .metrics
        .as_ref()
        .map(|listener| BoundListener::bind(listener, &config.socket_access));
    // The configuration names none where one was handed over.
    let scraped = scraped.transpose()?.or(inherited.metrics.map(BoundListener::Inherited));
    Ok(BoundListeners { grpc: served, metrics: scraped })
}

/// A daemon in a process that did not restrict itself.
pub async fn build_daemon(config: Config) -> Result<BoundDaemon, StartError> {
    let listeners = bind_listeners(&config, InheritedSockets::default())?;
    build_daemon_on(listeners, config, SandboxStatus::default()).await
}

/// A daemon on listeners that are bound, in a process that denied itself what `sandbox` says.
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
    let tls = tls.map_err(|e| StartError::config(e.to_string()))?.map(Arc::new);
    let BoundListeners { grpc: served, metrics: scraped } = listeners;
    let listeners =
        served.into_iter().map(RuntimeListener::from_bound).collect::<Result<_, _>>()?;
    let scraped = scraped.map(RuntimeListener::from_bound).transpose()?;
    let epoch = random().map_err(|e| StartError::internal(format!("no randomness: {e}")))?;
    heap::set_mmap_threshold();
    let mut limits = config.limits.clone();
    open_file_limit::raise_open_file_limit(&mut limits);
    let max_connections = limits.max_connections;
    let audit = AuditLog::new(config.audit);
    let admission = AuthLayer::new(auth_config(&config), audit.clone());
    let door = LoadLimitLayer::new(&limits);
    let gate = ConnectionLimiter::new(&limits);
    let streams = Quota::for_streams(&limits);
    let (faults, opener) = (config.faults.clone(), config.opener);
    let terms = policy_config(&config, limits);
    let keeper = CatalogStore::new(
        CatalogStoreConfig { policy: terms, fault_injector: faults, opener },
        epoch,
    );
    keeper.start_watcher();
    let stopping = watch::Sender::new(false);
    let started = SystemTime::now();
    let state = ConfigState { read_at: reload::unix_time(), ..ConfigState::default() };
    let (tell_state, state) = watch::channel(state);
    let metrics = Metrics::new(keeper.clone(), started, state.clone());
    let facts =
        DaemonInfo { start_time: started, build: BUILD_INFO, sandbox, config_state: state.clone() };
    let service = GrpcService::new(keeper.clone(), facts, streams.clone(), stopping.subscribe());
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_service_status(SERVICE_NAME, ServingStatus::Serving).await;
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            // grpcurl decodes the details of errors by these.
            .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
    };
    let broken = |e: tonic_reflection::server::Error| StartError::internal(e.to_string());
    let v1 = reflection().build_v1().map_err(broken)?;
    let v1alpha = reflection().build_v1alpha().map_err(broken)?;
    let service = CapabilityServiceServer::new(AuditedService::new(service, audit.clone()))
        .max_encoding_message_size(MAX_RESPONSE_BYTES);
    let service = ListCompression::new(service, keeper.clone());
    // Who compresses requests compresses all of them.
    let health_service = health_service.accept_compressed(Gzip);
    let v1 = v1.accept_compressed(Gzip);
    let v1alpha = v1alpha.accept_compressed(Gzip);
    let mut routes = RoutesBuilder::default();
    routes.add_service(admission.wrap_service(service));
    routes.add_service(admission.wrap_service_unless(|entry| entry.public_health, health_service));
    routes.add_service(admission.wrap_service_unless(|entry| entry.public_reflection, v1));
    routes.add_service(admission.wrap_service_unless(|entry| entry.public_reflection, v1alpha));
    let server = Http2Server::new(routes.routes(), &door, &metrics.layer(), config.keepalive);
    let parts = ReloadTargets {
        store: keeper.clone(),
        auth_layer: admission,
        audit,
        load_limit: door,
        connection_limiter: gate.clone(),
        stream_quota: streams,
        tls: tls.clone(),
    };
    let reloader = ConfigReloader::new(parts, config, max_connections, tell_state);
    Ok(BoundDaemon {
        grpc_listeners: listeners,
        server,
        connection_limiter: gate,
        tls,
        health,
        shutdown: stopping,
        metrics,
        metrics_address: scraped,
        store: keeper,
        reloader,
        config_state: state,
    })
}

impl BoundDaemon {
    /// The addresses that were bound, as `unix:/…` or `tcp:127.0.0.1:43210`.
    #[must_use]
    pub fn listen_addresses(&self) -> Vec<String> {
        self.grpc_listeners.iter().map(RuntimeListener::address).collect()
    }

    /// Where Prometheus scrapes, spelled the same.
    #[must_use]
    pub fn metrics_address(&self) -> Option<String> {
        self.metrics_address.as_ref().map(RuntimeListener::address)
    }

    /// Serves until `stop` is done; then lets calls under way end, for at most [`DRAIN`].
    pub async fn run(self, stop: impl Future<Output = ()> + Send) -> Result<(), StartError> {
        self.run_with_reloads(stop, ReloadSource::default()).await.map(drop)
    }

    /// Serves as [`App::run`] does, and reloads its configuration on request.
    pub async fn run_with_reloads(
        self,
        stop: impl Future<Output = ()> + Send,
        reloads: ReloadSource,
    ) -> Result<ExitReason, StartError> {
        let Self {
            grpc_listeners: listeners,
            server,
            connection_limiter: gate,
            tls,
            health,
            shutdown: stopping,
            metrics,
            metrics_address: scraped,
            ..
        } = self;
        let Self { store: keeper, reloader, config_state: state, .. } = self;
        // Ends with the daemon, whatever it is doing.
        let _scraping = scraped.map(|bound| metrics_server::serve_metrics(bound, metrics));
        let _telling = AbortOnDropHandle::new(tokio::spawn(log_root_health(keeper.clone())));
        let mut servers = JoinSet::new();
        // Taken away last, once nobody is served any more.
        let mut claims = Vec::new();
        for listener in listeners {
            let listener = match listener {
                RuntimeListener::Unix(listener, claim) => {
                    claims.extend(claim);
                    ConnectionSource::Unix(listener)
                }
                RuntimeListener::Tcp(listener) => ConnectionSource::Tcp(listener, tls.clone()),
            };
            servers.spawn(gate.clone().serve_connections(
                listener,
                server.clone(),
                stopping.subscribe(),
            ));
        }
        let certificates = async {
            match &tls {
                Some(tls) => tls.watch_files().await,
                None => pending().await,
            }
        };
        let supervised = async {
            service_manager::notify_ready(&keeper, &state).await;
            tokio::select! {
                () = service_manager::run_notifications(&keeper, state.clone()) => {}
                () = reloader.run(reloads) => {}
            }
        };
        let ending = tokio::select! {
            () = stop => ExitReason::Stopped,
            () = supervised => ExitReason::NeedsRestart,
            () = certificates => ExitReason::Stopped,
            Some(ended) = servers.join_next() => {
                return Err(StartError::internal(format!("a listener ended by surprise: {ended:?}")));
            }
        };
        service_manager::notify_stopping(DRAIN_TIMEOUT);
        tracing::info!("stopping");
        let mut health = health;
        for service in ["", SERVICE_NAME] {
            health.set_service_status(service, ServingStatus::NotServing).await;
            // Ends the streams that were told, and goes on saying it to those who ask.
            health.clear_service_status(service).await;
            health.set_service_status(service, ServingStatus::NotServing).await;
        }
        stopping.send_replace(true);
        let drained = async { while servers.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN_TIMEOUT, drained).await.is_err() {
            tracing::warn!("calls were still under way after {DRAIN_TIMEOUT:?}; they are cut off");
        }
        Ok(ending)
    }
}

fn random() -> rustix::io::Result<u64> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}

impl StartError {
    fn listener(message: String) -> Self {
        Self { message, exit_code: 73 }
    }

    fn internal(message: String) -> Self {
        Self { message, exit_code: 70 }
    }

    fn config(message: String) -> Self {
        Self { message, exit_code: 78 }
    }

    /// The exit code of a process that ends by this: 73 (`EX_CANTCREAT`) for a listener that cannot
    /// be made, 78 (`EX_CONFIG`) for certificates that cannot be used any more, 70 (`EX_SOFTWARE`) for
    /// a defect.
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
