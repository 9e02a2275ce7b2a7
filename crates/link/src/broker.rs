//! Connection to a NATS broker. Only this file names `async_nats`.

use super::MAX_QUEUED_MESSAGES;
use super::broker_config::BrokerConfig;
use async_nats::{Client, ConnectOptions, Event, ServerAddr, StatusCode, Subscriber};
use bytes::Bytes;
use caproot_core::backoff::Backoff;
use futures_util::StreamExt as _;
use std::fmt::{Debug, Display};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// Interval of pings. After two unanswered pings, the third ends the connection.
const PING_INTERVAL: Duration = Duration::from_secs(10);
/// How long connecting to one server may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Delays between attempts to connect again. The default of the library has no random part, so that
/// all executors of a platform would come back at the same moment.
const RECONNECT_BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(10));

/// Connection to the broker, which connects again by itself. A clone shares the connection.
#[derive(Debug, Clone)]
pub struct Broker {
    client: Client,
    state: watch::Receiver<BrokerState>,
}

/// State of the connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BrokerState {
    /// Whether the broker is connected.
    pub is_connected: bool,
    /// How many connections were opened.
    pub connections: u64,
    /// How many connections were lost.
    pub losses: u64,
    /// Last error of the broker, such as a denied subject.
    pub last_error: Option<String>,
}

/// Subscription of a subject. At most 512 messages wait; the client drops more.
#[derive(Debug)]
pub struct BrokerSubscription(Subscriber);

/// Message of a subscription.
#[derive(Debug)]
pub struct BrokerMessage {
    /// Content.
    pub payload: Bytes,
    /// Subject for an answer.
    pub reply: Option<String>,
    /// Whether the broker says that a message with this reply subject had no subscriber.
    pub is_no_responders: bool,
}

/// The client of the broker has ended.
#[derive(Debug, thiserror::Error)]
#[error("the connection to the broker has ended")]
pub struct BrokerEnded;

impl<Kind> From<async_nats::error::Error<Kind>> for BrokerEnded
where
    Kind: Clone + Debug + Display + PartialEq,
{
    fn from(_: async_nats::error::Error<Kind>) -> Self {
        Self
    }
}

impl From<BrokerEnded> for io::Error {
    fn from(error: BrokerEnded) -> Self {
        Self::other(error)
    }
}

impl Broker {
    /// Starts to connect to the broker. Returns an error for files that cannot be used.
    /// `name` shows the program in the broker's list of connections.
    pub async fn start(config: &BrokerConfig, name: &str) -> Result<Self, String> {
        let (sender, state) = watch::channel(BrokerState::default());
        let mut options = ConnectOptions::new()
            .name(name)
            .retry_on_initial_connect()
            .ping_interval(PING_INTERVAL)
            .connection_timeout(CONNECT_TIMEOUT)
            .subscription_capacity(MAX_QUEUED_MESSAGES)
            .reconnect_delay_callback(jittered_delays())
            .event_callback(move |event| {
                sender.send_if_modified(|state| state.record(&event));
                std::future::ready(())
            });

        if let Some(ca) = &config.ca {
            options = options.add_root_certificates(ca.clone());
        }
        if let Some((certificate, key)) = &config.identity {
            options = options.add_client_certificate(certificate.clone(), key.clone());
        }
        if let Some(file) = &config.creds {
            let read = options.credentials_file(file).await;
            // The library's error may quote the file, which has a key.
            options = read.map_err(|error| {
                format!(
                    "{} cannot be used as credentials: {}",
                    file.display(),
                    error.kind()
                )
            })?;
        }

        let servers = config
            .servers
            .iter()
            .map(|server| server.parse::<ServerAddr>())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| format!("invalid server: {error}"))?;
        let client = options.connect(servers).await;
        Ok(Self {
            client: client.map_err(|error| error.to_string())?,
            state,
        })
    }

    /// Returns the state of the connection, and its changes.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<BrokerState> {
        self.state.clone()
    }

    /// Waits until a count of the state differs from the count at this call. Never returns once the
    /// client ended.
    pub fn wait_for_change(&self, count: fn(&BrokerState) -> u64) -> impl Future<Output = ()> {
        let mut state = self.state.clone();
        let before = count(&state.borrow());
        async move {
            let changed = state.wait_for(|state| count(state) != before);
            if changed.await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Publishes a message. If no subscriber exists, the broker says so on the subject `reply`.
    /// Waits while the client's queue is full.
    pub async fn publish(
        &self,
        subject: &str,
        reply: &str,
        payload: Bytes,
    ) -> Result<(), BrokerEnded> {
        let (subject, reply) = (subject.to_owned(), reply.to_owned());
        Ok(self
            .client
            .publish_with_reply(subject, reply, payload)
            .await?)
    }

    /// Publishes a message without a reply subject.
    pub async fn announce(
        &self,
        subject: &str,
        message: &impl prost::Message,
    ) -> Result<(), BrokerEnded> {
        let payload = message.encode_to_vec().into();
        Ok(self.client.publish(subject.to_owned(), payload).await?)
    }

    /// Subscribes to a subject.
    pub async fn subscribe(&self, subject: &str) -> Result<BrokerSubscription, BrokerEnded> {
        Ok(BrokerSubscription(
            self.client.subscribe(subject.to_owned()).await?,
        ))
    }

    /// Subscribes to a subject in a group: one member receives each message.
    pub async fn subscribe_in_group(
        &self,
        subject: &str,
        group: &str,
    ) -> Result<BrokerSubscription, BrokerEnded> {
        Ok(BrokerSubscription(
            self.client
                .queue_subscribe(subject.to_owned(), group.to_owned())
                .await?,
        ))
    }

    /// Waits until the broker has received all published messages.
    pub async fn flush(&self) -> Result<(), BrokerEnded> {
        Ok(self.client.flush().await?)
    }
}

impl BrokerSubscription {
    /// Waits for the next message. Returns `None` once the client has ended. Cancel safe.
    pub async fn next(&mut self) -> Option<BrokerMessage> {
        let message = self.0.next().await?;
        Some(BrokerMessage {
            payload: message.payload,
            reply: message.reply.map(|subject| subject.to_string()),
            is_no_responders: message.status == Some(StatusCode::NO_RESPONDERS),
        })
    }
}

impl BrokerState {
    /// Records an event of the client. Returns whether the state changed.
    fn record(&mut self, event: &Event) -> bool {
        match event {
            Event::Connected => {
                self.is_connected = true;
                self.connections += 1;
                self.last_error = None;
                tracing::info!("connected to the broker");
            }
            Event::Disconnected | Event::Closed => {
                self.is_connected = false;
                self.losses += 1;
                tracing::warn!("connection to the broker lost; connecting again");
            }
            Event::ServerError(_) | Event::ClientError(_) => {
                let error = event.to_string();
                if self.last_error.as_ref() == Some(&error) {
                    return false;
                }

                tracing::warn!(error, "error of the broker");
                self.last_error = Some(error);
            }
            Event::SlowConsumer(_) | Event::LameDuckMode | Event::Draining => return false,
        }

        true
    }
}

/// Returns the delays before attempts to connect. The first attempt has none. The client of the
/// broker counts the attempts since the last connection, from 1.
fn jittered_delays() -> impl Fn(usize) -> Duration + Send + Sync + 'static {
    let is_first = AtomicBool::new(true);
    move |attempt| {
        if is_first.swap(false, Ordering::Relaxed) {
            Duration::ZERO
        } else {
            let failures = attempt.saturating_sub(1);
            RECONNECT_BACKOFF.delay_after(u32::try_from(failures).unwrap_or(u32::MAX))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::jittered_delays;
    use std::time::Duration;

    #[test]
    fn delays_to_reconnect_are_random_and_bounded() {
        let delays = jittered_delays();
        assert_eq!(delays(1), Duration::ZERO);
        for (attempt, limit) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (usize::MAX, 10)] {
            let drawn: Vec<_> = (0..200).map(|_| delays(attempt)).collect();
            let limit = Duration::from_secs(limit);
            assert!(drawn.iter().all(|delay| *delay <= limit), "{attempt}");
            // The probability of 200 delays in one half is 2^-199.
            assert!(drawn.iter().any(|delay| *delay < limit / 2), "{attempt}");
            assert!(drawn.iter().any(|delay| *delay > limit / 2), "{attempt}");
        }
    }
}
