//! Executors of one client without a fleet: a daemon at one address, and a channel of the program.

use super::auth_channel::{AuthChannel, TlsAlertFlag};
use super::channel::connect_within;
use super::credentials::{BearerToken, ClientCredentials};
use super::dial::{ConnectorError, open_stream};
use super::executor_channel::{
    ConnectFuture, ExecutorConnection, ExecutorConnector, OpenedStream, PING_INTERVAL,
};
use super::executor_stream::ConnectionLife;
use caproot_core::net::endpoint::DaemonEndpoint;
use std::future::{pending, ready};
use std::sync::Arc;
use std::time::Duration;
use tonic::transport::Channel;

/// Connector to a daemon at one address.
#[derive(Debug, Clone)]
pub struct AddressConnector {
    endpoint: DaemonEndpoint,
    credentials: ClientCredentials,
    /// Token of all connections.
    token: BearerToken,
    /// Flag of all connections: an alert may be lost with a connection that is reset.
    alert_flag: TlsAlertFlag,
    /// Limit of an attempt, and the deadline of each call.
    timeout: Duration,
}

/// Connector that has one channel of the program. The channel opens a lost connection again.
#[derive(Debug)]
pub struct ChannelConnector {
    pub channel: Channel,
    pub timeout: Duration,
}

impl AddressConnector {
    /// Returns a connector. Fails only if the file of the token cannot be used.
    pub async fn new(
        endpoint: &DaemonEndpoint,
        credentials: &ClientCredentials,
        timeout: Duration,
    ) -> Result<Self, String> {
        Ok(Self {
            endpoint: endpoint.clone(),
            credentials: credentials.clone(),
            token: BearerToken::read(credentials.token.clone()).await?,
            alert_flag: TlsAlertFlag::default(),
            timeout,
        })
    }

    async fn open_connection(self) -> Result<ExecutorConnection, ConnectorError> {
        self.token.reload().await;

        let address = self.endpoint.address();
        let alert_flag = self.alert_flag.clone();
        let stream = open_stream(address, &self.credentials, alert_flag).await?;

        let opened = OpenedStream {
            stream,
            life: ConnectionLife::default(),
            alert_flag: self.alert_flag,
            token: self.token,
            timeout: self.timeout,
            ping_interval: PING_INTERVAL,
            moved: Box::pin(pending()),
            endpoint: self.endpoint,
        };
        ExecutorConnection::start(opened).await
    }
}

impl ExecutorConnector for AddressConnector {
    fn connect(&self) -> ConnectFuture {
        let limit = self.timeout;
        Box::pin(connect_within(limit, self.clone().open_connection()))
    }
}

impl ExecutorConnector for ChannelConnector {
    fn connect(&self) -> ConnectFuture {
        let channel = AuthChannel {
            channel: self.channel.clone(),
            token: BearerToken::default(),
            alert_flag: TlsAlertFlag::default(),
        };
        Box::pin(ready(Ok(ExecutorConnection {
            channel,
            life: Arc::default(),
            timeout: self.timeout,
        })))
    }
}
