//! The daemon as a value: `build` binds, `run` serves until it is told to stop. Leaves flags,
//! signals and printing to `cli`.

mod accept;
mod connection;
mod descriptors;
mod groups;
mod heap;
mod http;
mod listen;
mod seldom;

use crate::config::Config;
use crate::domain::limits::MAX_ANSWER_BYTES;
use crate::keeper::{Keeper, Settings};
use crate::proto::{self, caproot::v1::capability_service_server as server};
use crate::rpc::{Door, Service};
use accept::{Gate, Listener};
use http::Server;
use listen::Bound;
use server::{CapabilityServiceServer, SERVICE_NAME};
use std::fmt;
use std::future::Future;
use std::time::{Duration, SystemTime};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

/// What calls that are under way when the daemon is told to stop may still take.
const DRAIN: Duration = Duration::from_secs(10);

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
    health: HealthReporter,
    stopping: watch::Sender<bool>,
}

/// Binds everything that the configuration names.
pub async fn build(config: Config) -> Result<App, StartError> {
    let mut listeners = Vec::with_capacity(config.listeners.len());
    for listener in &config.listeners {
        listeners.push(Bound::new(listener).await?);
    }
    let epoch = random().map_err(|e| StartError::internal(format!("no randomness: {e}")))?;
    let mut config = config;
    heap::settle();
    descriptors::make_room(&mut config.limits);
    let rules = config.rules();
    let limits = config.limits;
    let keeper = Keeper::new(
        Settings {
            environments: config.environment_ids,
            allowed: config.allowed,
            published: config.published,
            rules,
            timing: config.timing,
            faults: config.faults,
        },
        epoch,
    );
    let stopping = watch::Sender::new(false);
    let service = Service::new(keeper, SystemTime::now(), stopping.subscribe());
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_service_status(SERVICE_NAME, ServingStatus::Serving).await;
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let broken = |e: tonic_reflection::server::Error| StartError::internal(e.to_string());
    let service = CapabilityServiceServer::new(service)
        .max_decoding_message_size(limits.max_request_bytes())
        .max_encoding_message_size(MAX_ANSWER_BYTES);
    let routes = Routes::new(service)
        .add_service(health_service)
        .add_service(reflection().build_v1().map_err(broken)?)
        .add_service(reflection().build_v1alpha().map_err(broken)?);
    let server = Server::new(routes, &Door::new(&limits));
    Ok(App { listeners, server, gate: Gate::new(&limits), health, stopping })
}

impl App {
    /// The addresses that were bound, as `unix:/…` or `tcp:127.0.0.1:43210`.
    #[must_use]
    pub fn listening(&self) -> Vec<String> {
        self.listeners.iter().map(Bound::address).collect()
    }

    /// Serves until `stop` is done; then lets calls under way end, for a while.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) -> Result<(), StartError> {
        let Self { listeners, server, gate, health, stopping } = self;
        let mut servers = JoinSet::new();
        // Taken away last, once nobody is served any more.
        let mut claims = Vec::new();
        for listener in listeners {
            let listener = match listener {
                Bound::Unix(listener, claim) => {
                    claims.push(claim);
                    Listener::Unix(listener)
                }
                Bound::Tcp(listener) => Listener::Tcp(listener),
            };
            servers.spawn(gate.clone().serve(listener, server.clone(), stopping.subscribe()));
        }
        tokio::select! {
            () = stop => {}
            Some(ended) = servers.join_next() => {
                return Err(StartError::internal(format!("a listener ended by surprise: {ended:?}")));
            }
        }
        tracing::info!("stopping");
        health.set_service_status("", ServingStatus::NotServing).await;
        health.set_service_status(SERVICE_NAME, ServingStatus::NotServing).await;
        stopping.send_replace(true);
        let drained = async { while servers.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN, drained).await.is_err() {
            tracing::warn!("calls were still under way after {DRAIN:?}; they are cut off");
        }
        Ok(())
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

    /// The exit code of a process that ends by this: 73 (`EX_CANTCREAT`) for a listener that cannot
    /// be made, 70 (`EX_SOFTWARE`) for a defect.
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
