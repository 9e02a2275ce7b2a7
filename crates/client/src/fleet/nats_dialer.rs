//! Dialer of a fleet whose executors dial out: opens tunnels through a NATS broker.

use super::executors::{DialFuture, ExecutorDialer};
use caproot_core::net::byte_stream::ByteStream;
use caproot_core::net::endpoint::DaemonEndpoint;
use caproot_link::{BrokerConfig, TunnelClient};
use futures_util::future::BoxFuture;
use std::io;
use std::sync::Arc;
use tokio::sync::Mutex;

/// Dialer of executors that run `caproot link`.
///
/// The dialer connects to the broker with the first dial, and connects again by itself. A dial to an
/// environment without a link fails at once. Neither the broker nor the link can read or change
/// anything: TLS with the daemon runs inside the tunnel.
#[derive(Clone)]
pub struct NatsDialer {
    find_config: Arc<dyn Fn() -> Option<BrokerConfig> + Send + Sync>,
    /// Connection, and the configuration that it was opened with.
    current: Arc<Mutex<Option<(BrokerConfig, TunnelClient)>>>,
}

impl NatsDialer {
    /// Creates a dialer through a broker.
    #[must_use]
    pub fn new(config: BrokerConfig) -> Self {
        Self::with_changing_config(move || Some(config.clone()))
    }

    /// Creates a dialer that opens another connection to the broker once `find_config` returns
    /// another configuration.
    pub(super) fn with_changing_config(
        find_config: impl Fn() -> Option<BrokerConfig> + Send + Sync + 'static,
    ) -> Self {
        Self {
            find_config: Arc::new(find_config),
            current: Arc::default(),
        }
    }

    async fn connect(&self) -> io::Result<TunnelClient> {
        let Some(config) = (self.find_config)() else {
            return Err(io::Error::other(
                "the fleet file has no `nats` section any more",
            ));
        };

        // The lock is held during the start, so that concurrent dials open one connection.
        let mut current = self.current.lock().await;
        if let Some((_, client)) = current.as_ref().filter(|(used, _)| *used == config) {
            return Ok(client.clone());
        }
        let client = TunnelClient::start(&config)
            .await
            .map_err(io::Error::other)?;
        *current = Some((config, client.clone()));
        Ok(client)
    }
}

impl ExecutorDialer for NatsDialer {
    fn dial_executor<'a>(
        &'a self,
        environment_id: &'a str,
        _: &'a DaemonEndpoint,
    ) -> DialFuture<'a> {
        Box::pin(async move {
            let stream = self.connect().await?.open_tunnel(environment_id).await?;
            Ok(Box::new(stream) as Box<dyn ByteStream>)
        })
    }

    fn executor_announced(&self, environment_id: &str) -> BoxFuture<'static, ()> {
        let dialer = self.clone();
        let environment_id = environment_id.to_owned();
        Box::pin(async move {
            match dialer.connect().await {
                Ok(client) => client.wait_for_claim(&environment_id).await,
                // The next dial reports the error.
                Err(_) => std::future::pending().await,
            }
        })
    }
}
