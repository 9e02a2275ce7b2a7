//! The daemon as a value: `build` binds, `run` serves until it is told to stop. Leaves flags,
//! signals and printing to `cli`.

mod connection;
mod groups;
mod listen;

use crate::config::{Config, Keepalive};
use crate::keeper::{Keeper, Settings};
use crate::proto::{self, caproot::v1::capability_service_server as server};
use crate::rpc::Service;
use connection::Connection;
use listen::Bound;
use server::{CapabilityServiceServer, SERVICE_NAME};
use std::any::Any;
use std::fmt;
use std::future::Future;
use std::time::{Duration, SystemTime};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tonic::Status;
use tonic::body::Body;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tower_http::catch_panic::CatchPanicLayer;

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
    routes: Routes,
    health: HealthReporter,
    keepalive: Keepalive,
    stopping: watch::Sender<bool>,
}

/// Binds everything that the configuration names.
pub async fn build(config: Config) -> Result<App, StartError> {
    let mut listeners = Vec::with_capacity(config.listeners.len());
    for listener in &config.listeners {
        listeners.push(Bound::new(listener).await?);
    }
    let epoch = random().map_err(|e| StartError::internal(format!("no randomness: {e}")))?;
    let rules = config.rules();
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
    let routes = Routes::new(CapabilityServiceServer::new(service))
        .add_service(health_service)
        .add_service(reflection().build_v1().map_err(broken)?)
        .add_service(reflection().build_v1alpha().map_err(broken)?);
    Ok(App { listeners, routes, health, keepalive: config.keepalive, stopping })
}

impl App {
    /// The addresses that were bound, as `unix:/…` or `tcp:127.0.0.1:43210`.
    #[must_use]
    pub fn listening(&self) -> Vec<String> {
        self.listeners.iter().map(Bound::address).collect()
    }

    /// Serves until `stop` is done; then lets calls under way end, for a while.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) -> Result<(), StartError> {
        let Self { listeners, routes, health, keepalive, stopping } = self;
        let mut servers = JoinSet::new();
        // Taken away last, once nobody is served any more.
        let mut claims = Vec::new();
        for listener in listeners {
            let mut stopped = stopping.subscribe();
            let stopped = async move { drop(stopped.wait_for(|stop| *stop).await) };
            let server = Server::builder()
                .http2_keepalive_interval(Some(keepalive.interval))
                .http2_keepalive_timeout(Some(keepalive.timeout))
                .layer(CatchPanicLayer::custom(internal))
                .add_routes(routes.clone());
            match listener {
                Bound::Unix(listener, claim) => {
                    claims.push(claim);
                    let incoming = UnixListenerStream::new(listener);
                    let incoming = incoming.map(|stream| stream.and_then(Connection::unix));
                    servers.spawn(server.serve_with_incoming_shutdown(incoming, stopped));
                }
                Bound::Tcp(listener) => {
                    let incoming = TcpListenerStream::new(listener);
                    let incoming = incoming.map(|stream| stream.and_then(Connection::tcp));
                    servers.spawn(server.serve_with_incoming_shutdown(incoming, stopped));
                }
            }
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

/// What a caller is told of a panic: nothing of it but that the call is over.
// The layer hands the panic over.
#[allow(clippy::needless_pass_by_value)]
fn internal(panic: Box<dyn Any + Send>) -> http::Response<Body> {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(panic = text.unwrap_or("of another type"), "a call ended by a defect");
    Status::internal("a defect in the daemon; its log says more").into_http()
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
