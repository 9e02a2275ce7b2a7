//! The daemon as a value: `build` binds, `run` serves until it is told to stop. Leaves flags,
//! signals and printing to `cli`.

mod accept;
#[doc(hidden)]
pub mod authority;
mod connection;
mod descriptors;
mod embedded;
mod gathered;
mod groups;
mod handshake;
mod handshake_log;
mod heap;
mod http;
mod inherited;
mod listen;
mod reload;
mod scraped;
mod seldom;
mod supervisor;
mod tls;
mod unread;

pub use embedded::{Embedded, Way};
pub use listen::check_listeners;
pub use reload::{CheckFile, ConfigFile, Load, MayRead, Reloads};
pub use supervisor::is_present as has_service_manager;

pub use inherited::{Inherited, inherit};

use crate::catalog::{Keeper, Settings};
use crate::config::Config;
use crate::domain::limits::MAX_ANSWER_BYTES;
use crate::domain::{ConfigState, Sandbox};
use crate::grpc::{Admission, Audit, Audited, Door, Facts, ListsCompressed, Places, Service};
use crate::proto::{self, caproot::v1::capability_service_server as server};
use crate::telemetry::{Metrics, tell_of_roots};
use accept::{Gate, Listener};
use http::Server;
use listen::{Bound, Taken};
use reload::{Parts, Reloader, entry, terms};
use server::{CapabilityServiceServer, SERVICE_NAME};
use std::fmt;
use std::future::{Future, pending};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tls::Tls;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;
use tonic::codec::CompressionEncoding::Gzip;
use tonic::service::RoutesBuilder;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

/// What calls that are under way when the daemon is told to stop may still take.
pub const DRAIN: Duration = Duration::from_secs(10);

/// Of what it was built, as `--version` says it.
pub const BUILD: &str = env!("CAPROOT_BUILD");

/// Why a daemon does not start or ends by surprise. Prints as one sentence.
#[derive(Debug)]
pub struct StartError {
    message: String,
    exit_code: u8,
}

/// A daemon that is bound and does not serve yet.
#[derive(Debug)]
pub struct App {
    listeners: Vec<Bound>,
    server: Server,
    gate: Gate,
    tls: Option<Arc<Tls>>,
    health: HealthReporter,
    stopping: watch::Sender<bool>,
    metrics: Metrics,
    scraped: Option<Bound>,
    keeper: Keeper,
    reloader: Reloader,
    state: watch::Receiver<ConfigState>,
}

/// Reason why a daemon ended without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It was told to stop.
    Stopped,
    /// A reload changed keys that only a new process can apply.
    NeedsNewProcess,
}

/// Listeners that are bound and that no runtime knows yet.
#[derive(Debug)]
pub struct Listeners {
    served: Vec<Taken>,
    scraped: Option<Taken>,
}

/// Binds everything that the configuration names, beside the sockets that were handed over. Needs no
/// runtime, so that a process can do this before it restricts itself, and that before it has a second
/// thread.
pub fn bind(config: &Config, inherited: Inherited) -> Result<Listeners, StartError> {
    let lent = inherited.served.into_iter().map(|lent| Ok(Taken::Lent(lent)));
    let served = config.listeners.iter().map(|listener| Taken::new(listener, &config.sockets));
    let served = lent.chain(served).collect::<Result<_, _>>()?;
    let scraped = config.metrics.as_ref().map(|listener| Taken::new(listener, &config.sockets));
    // The configuration names none where one was handed over.
    let scraped = scraped.transpose()?.or(inherited.scraped.map(Taken::Lent));
    Ok(Listeners { served, scraped })
}

/// A daemon in a process that did not restrict itself.
pub async fn build(config: Config) -> Result<App, StartError> {
    let listeners = bind(&config, Inherited::default())?;
    build_on(listeners, config, Sandbox::default()).await
}

/// A daemon on listeners that are bound, in a process that denied itself what `sandbox` says.
pub async fn build_on(
    listeners: Listeners,
    config: Config,
    sandbox: Sandbox,
) -> Result<App, StartError> {
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    if config.published.is_empty() && !config.allowed.is_empty() {
        tracing::info!("no root is published; callers select directories below `allow`");
    }
    let tls = config.tls.clone().map(Tls::load).transpose();
    let tls = tls.map_err(|e| StartError::config(e.to_string()))?.map(Arc::new);
    let Listeners { served, scraped } = listeners;
    let listeners = served.into_iter().map(Bound::new).collect::<Result<_, _>>()?;
    let scraped = scraped.map(Bound::new).transpose()?;
    let epoch = random().map_err(|e| StartError::internal(format!("no randomness: {e}")))?;
    heap::settle();
    let mut limits = config.limits.clone();
    descriptors::make_room(&mut limits);
    let max_connections = limits.max_connections;
    let audit = Audit::new(config.audit);
    let admission = Admission::new(entry(&config), audit.clone());
    let door = Door::new(&limits);
    let gate = Gate::new(&limits);
    let streams = Places::of_streams(&limits);
    let (faults, opener) = (config.faults.clone(), config.opener);
    let terms = terms(&config, limits);
    let keeper = Keeper::new(Settings { terms, faults, opener }, epoch);
    keeper.start_watcher();
    let stopping = watch::Sender::new(false);
    let started = SystemTime::now();
    let state = ConfigState { read_at: reload::now(), ..ConfigState::default() };
    let (tell_state, state) = watch::channel(state);
    let metrics = Metrics::new(keeper.clone(), started, state.clone());
    let facts = Facts { started, build: BUILD, sandbox, config: state.clone() };
    let service = Service::new(keeper.clone(), facts, streams.clone(), stopping.subscribe());
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_service_status(SERVICE_NAME, ServingStatus::Serving).await;
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            // grpcurl decodes the details of errors by these.
            .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
    };
    let broken = |e: tonic_reflection::server::Error| StartError::internal(e.to_string());
    let v1 = reflection().build_v1().map_err(broken)?;
    let v1alpha = reflection().build_v1alpha().map_err(broken)?;
    let service = CapabilityServiceServer::new(Audited::new(service, audit.clone()))
        .max_encoding_message_size(MAX_ANSWER_BYTES);
    let service = ListsCompressed::new(service, keeper.clone());
    // Who compresses requests compresses all of them.
    let health_service = health_service.accept_compressed(Gzip);
    let v1 = v1.accept_compressed(Gzip);
    let v1alpha = v1alpha.accept_compressed(Gzip);
    let mut routes = RoutesBuilder::default();
    routes.add_service(admission.guard(service));
    routes.add_service(admission.guard_unless(|entry| entry.open_health, health_service));
    routes.add_service(admission.guard_unless(|entry| entry.open_reflection, v1));
    routes.add_service(admission.guard_unless(|entry| entry.open_reflection, v1alpha));
    let server = Server::new(routes.routes(), &door, &metrics.layer(), config.keepalive);
    let parts = Parts {
        keeper: keeper.clone(),
        admission,
        audit,
        door,
        gate: gate.clone(),
        streams,
        tls: tls.clone(),
    };
    let reloader = Reloader::new(parts, config, max_connections, tell_state);
    Ok(App {
        listeners,
        server,
        gate,
        tls,
        health,
        stopping,
        metrics,
        scraped,
        keeper,
        reloader,
        state,
    })
}

impl App {
    /// The addresses that were bound, as `unix:/…` or `tcp:127.0.0.1:43210`.
    #[must_use]
    pub fn listening(&self) -> Vec<String> {
        self.listeners.iter().map(Bound::address).collect()
    }

    /// Where Prometheus scrapes, spelled the same.
    #[must_use]
    pub fn scraped(&self) -> Option<String> {
        self.scraped.as_ref().map(Bound::address)
    }

    /// Serves until `stop` is done; then lets calls under way end, for at most [`DRAIN`].
    pub async fn run(self, stop: impl Future<Output = ()> + Send) -> Result<(), StartError> {
        self.run_reloading(stop, Reloads::default()).await.map(drop)
    }

    /// Serves as [`App::run`] does, and reloads its configuration on request.
    pub async fn run_reloading(
        self,
        stop: impl Future<Output = ()> + Send,
        reloads: Reloads,
    ) -> Result<Ending, StartError> {
        let Self { listeners, server, gate, tls, health, stopping, metrics, scraped, .. } = self;
        let Self { keeper, reloader, state, .. } = self;
        // Ends with the daemon, whatever it is doing.
        let _scraping = scraped.map(|bound| scraped::scrape(bound, metrics));
        let _telling = AbortOnDropHandle::new(tokio::spawn(tell_of_roots(keeper.clone())));
        let mut servers = JoinSet::new();
        // Taken away last, once nobody is served any more.
        let mut claims = Vec::new();
        for listener in listeners {
            let listener = match listener {
                Bound::Unix(listener, claim) => {
                    claims.extend(claim);
                    Listener::Unix(listener)
                }
                Bound::Tcp(listener) => Listener::Tcp(listener, tls.clone()),
            };
            servers.spawn(gate.clone().serve(listener, server.clone(), stopping.subscribe()));
        }
        let certificates = async {
            match &tls {
                Some(tls) => tls.follow().await,
                None => pending().await,
            }
        };
        let supervised = async {
            supervisor::begin(&keeper, &state).await;
            tokio::select! {
                () = supervisor::serve(&keeper, state.clone()) => {}
                () = reloader.serve(reloads) => {}
            }
        };
        let ending = tokio::select! {
            () = stop => Ending::Stopped,
            () = supervised => Ending::NeedsNewProcess,
            () = certificates => Ending::Stopped,
            Some(ended) = servers.join_next() => {
                return Err(StartError::internal(format!("a listener ended by surprise: {ended:?}")));
            }
        };
        supervisor::stopping(DRAIN);
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
        if tokio::time::timeout(DRAIN, drained).await.is_err() {
            tracing::warn!("calls were still under way after {DRAIN:?}; they are cut off");
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
