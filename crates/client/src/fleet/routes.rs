//! Routes of a fleet: finds the executor of an environment and opens a connection to it.

use super::dial_limit::{DialLimits, DialQueue};
use super::executors::{
    DEFAULT_TIMEOUT, ExecutorConfig, ExecutorDialer, ExecutorRegistry, FleetError,
};
use super::stats::FleetCounters;
use crate::connect::auth_channel::TlsAlertFlag;
use crate::connect::channel::connect_within;
use crate::connect::credentials::BearerToken;
use crate::connect::dial::{ConnectorError, open_stream, start_tls};
use crate::connect::executor_channel::{
    ConnectFuture, ExecutorConnection, ExecutorConnector, OpenedStream, PING_INTERVAL,
};
use crate::connect::executor_stream::ConnectionLife;
use crate::connect::tls_probe::TlsProbeIo;
use caproot_core::net::endpoint::EndpointAddress;
use caproot_core::sync::Mutex;
use futures_util::future::{BoxFuture, select};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a dial with its TLS handshake may take. Dead executors must not keep the permits of the
/// others for long.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval of pings on the stream of a dialer. A rendezvous may lose bytes of an idle stream, or the
/// other end of the stream, without a message.
const DIALER_PING_INTERVAL: Duration = Duration::from_secs(10);

/// Way to the executors of a fleet.
#[derive(Clone)]
pub struct ExecutorRoutes {
    pub registry: Arc<dyn ExecutorRegistry>,
    pub dialer: Option<Arc<dyn ExecutorDialer>>,
    /// Dialer of the executors with `via_nats`.
    pub nats_dialer: Option<Arc<dyn ExecutorDialer>>,
    pub queue: Arc<DialQueue>,
    pub counters: Arc<FleetCounters>,
}

/// Connector of one environment's executor.
pub struct EnvironmentConnector {
    routes: ExecutorRoutes,
    environment_id: Arc<str>,
    latest_dialer: LatestDialer,
}

/// Dialer of the latest attempt to connect, if the attempt used one.
type LatestDialer = Arc<Mutex<Option<Arc<dyn ExecutorDialer>>>>;

impl ExecutorRoutes {
    pub fn new(registry: impl ExecutorRegistry) -> Self {
        Self {
            registry: Arc::new(registry),
            dialer: None,
            nats_dialer: None,
            queue: Arc::new(DialQueue::new(DialLimits::default())),
            counters: Arc::default(),
        }
    }

    /// Asks the registry for the executor of an environment.
    pub async fn find_executor(&self, environment_id: &str) -> Result<ExecutorConfig, FleetError> {
        let answer = self.registry.find_executor(environment_id);
        tokio::time::timeout(DEFAULT_TIMEOUT, answer)
            .await
            .unwrap_or_else(|_| Err("the registry does not respond".to_owned()))
            .map_err(|cause| FleetError::Registry {
                environment_id: environment_id.to_owned(),
                cause,
            })?
            .ok_or_else(|| FleetError::UnknownEnvironment(environment_id.to_owned()))
    }

    /// Opens a connection to the executor that an environment has now.
    async fn connect(
        &self,
        environment_id: &str,
        latest_dialer: &LatestDialer,
    ) -> Result<ExecutorConnection, ConnectorError> {
        // Before the registry is asked, so that no change is missed.
        let moved = self.registry.executor_changed(environment_id);
        let executor = self.find_executor(environment_id).await?;
        let dialer = if executor.via_nats {
            &self.nats_dialer
        } else {
            &self.dialer
        };
        latest_dialer.lock().clone_from(dialer);

        let _permit = self.queue.wait_for_turn().await;
        self.counters.dials.fetch_add(1, Ordering::Relaxed);
        let connected = connect_within(DIAL_TIMEOUT, async {
            let token = BearerToken::read(executor.credentials.token.clone())
                .await
                .map_err(ConnectorError::Credentials)?;
            let alert_flag = TlsAlertFlag::default();
            let dialer = dialer.as_deref();
            let stream = open_dialed_stream(environment_id, &executor, dialer, &alert_flag).await?;

            let opened = OpenedStream {
                endpoint: executor.endpoint,
                stream,
                life: ConnectionLife::new(self.counters.open_connections.clone()),
                alert_flag,
                token,
                timeout: executor.timeout,
                ping_interval: dialer.map_or(PING_INTERVAL, |_| DIALER_PING_INTERVAL),
                moved,
            };
            ExecutorConnection::start(opened).await
        })
        .await;
        if connected.is_err() {
            self.counters.failed_dials.fetch_add(1, Ordering::Relaxed);
        }
        connected
    }
}

/// Opens a stream to the executor of an environment, through its dialer if there is one.
async fn open_dialed_stream(
    environment_id: &str,
    executor: &ExecutorConfig,
    dialer: Option<&dyn ExecutorDialer>,
    alert_flag: &TlsAlertFlag,
) -> Result<TlsProbeIo, ConnectorError> {
    let ExecutorConfig {
        endpoint,
        credentials,
        ..
    } = executor;
    let Some(dialer) = dialer else {
        if executor.via_nats {
            let reason = "no fleet file names a NATS broker for the executor";
            return Err(ConnectorError::Credentials(reason.to_owned()));
        }
        return open_stream(endpoint.address(), credentials, alert_flag.clone()).await;
    };
    let EndpointAddress::Tls(address) = endpoint.address() else {
        return Err(ConnectorError::Credentials(format!(
            "the stream of a dialer is not trusted, so the endpoint {endpoint} cannot be \
             used; expected tls:HOST:PORT"
        )));
    };

    let dial = async {
        let stream = dialer.dial_executor(environment_id, endpoint);
        Ok::<_, ConnectorError>(stream.await?)
    };
    start_tls(address, credentials, dial).await
}

impl EnvironmentConnector {
    pub fn new(routes: &ExecutorRoutes, environment_id: &str) -> Self {
        Self {
            routes: routes.clone(),
            environment_id: environment_id.into(),
            latest_dialer: Arc::default(),
        }
    }
}

impl ExecutorConnector for EnvironmentConnector {
    fn connect(&self) -> ConnectFuture {
        let routes = self.routes.clone();
        let environment_id = self.environment_id.clone();
        let latest_dialer = self.latest_dialer.clone();
        Box::pin(async move { routes.connect(&environment_id, &latest_dialer).await })
    }

    fn executor_announced(&self) -> BoxFuture<'static, ()> {
        let changed = self.routes.registry.executor_changed(&self.environment_id);
        let Some(dialer) = self.latest_dialer.lock().clone() else {
            return changed;
        };
        let announced = dialer.executor_announced(&self.environment_id);
        Box::pin(async move { drop(select(changed, announced).await) })
    }
}

impl From<FleetError> for ConnectorError {
    fn from(error: FleetError) -> Self {
        let sentence = error.to_string();
        match error {
            FleetError::UnknownEnvironment(_) => Self::UnknownExecutor(sentence),
            FleetError::Registry { .. } => Self::Lookup(sentence),
            FleetError::Connect { .. } => Self::Credentials(sentence),
        }
    }
}

impl fmt::Debug for EnvironmentConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EnvironmentConnector")
            .field(&self.environment_id)
            .finish()
    }
}
