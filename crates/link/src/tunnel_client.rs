//! Orchestrator's side: opens tunnels to the links of environments.

use super::broker::{Broker, BrokerSubscription};
use super::broker_config::BrokerConfig;
use super::subject::{EnvironmentSubjects, RandomToken};
use super::tunnel_pump::{TunnelSubjects, run_tunnel};
use super::tunnel_stream::{TunnelStream, open_tunnel};
use caproot_core::proto::link::caproot::link::v1::dial_response::Outcome;
use caproot_core::proto::link::caproot::link::v1::{
    ClaimState, DialRefusal, DialRequest, DialResponse, InstanceClaim,
};
use prost::Message as _;
use std::io::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::time::Duration;

/// How long a first connection to the broker may take before a dial fails.
const BROKER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a link may take to answer a dial, which includes 3 s for its connection to the daemon. An
/// answer that went through a frozen server never comes.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);

/// Connection to a broker that opens tunnels. A clone shares the connection.
#[derive(Debug, Clone)]
pub struct TunnelClient {
    broker: Broker,
    orchestrator: RandomToken,
    prefix: Arc<str>,
}

impl TunnelClient {
    /// Starts to connect to the broker. Returns an error for files that cannot be used.
    pub async fn start(config: &BrokerConfig) -> std::result::Result<Self, String> {
        let orchestrator = RandomToken::generate()?;
        let broker = Broker::start(config, "caproot orchestrator").await?;
        Ok(Self {
            broker,
            orchestrator,
            prefix: config.prefix.as_str().into(),
        })
    }

    /// Opens a tunnel to the daemon of an environment. Fails at once if the broker is not connected,
    /// or if no link serves the environment.
    pub async fn open_tunnel(&self, environment_id: &str) -> Result<TunnelStream> {
        self.wait_for_broker().await?;

        let subjects = EnvironmentSubjects::new(&self.prefix, environment_id);
        let tunnel = RandomToken::generate().map_err(Error::other)?;
        let own = subjects.to_orchestrator(&self.orchestrator, &tunnel);

        // The subscription comes before the request, so that the answer is not lost.
        let mut incoming = self.broker.subscribe(&own).await?;
        let request = DialRequest {
            orchestrator: self.orchestrator.to_string(),
            tunnel: tunnel.to_string(),
        };
        self.broker
            .publish(&subjects.dial(), &own, request.encode_to_vec().into())
            .await?;

        let instance = tokio::select! {
            instance = wait_for_answer(&mut incoming) => instance?,
            () = self.broker.wait_for_change(|state| state.losses) => return Err(broker_lost()),
            () = tokio::time::sleep(ANSWER_TIMEOUT) => return Err(no_answer()),
        };

        let other = subjects.to_link(&instance, &tunnel);
        let (stream, driver) = open_tunnel();
        let subjects = TunnelSubjects { other, own };
        let (broker, never) = (self.broker.clone(), std::future::pending());
        // The task ends with the tunnel, at the latest when the stream is dropped.
        tokio::spawn(run_tunnel(driver, incoming, broker, subjects, never));
        Ok(stream)
    }

    /// Waits until a link claims an environment, or the broker is connected again.
    pub async fn wait_for_claim(&self, environment_id: &str) {
        // The count is read before the state, so that no connection between both is missed.
        let reconnected = self.broker.wait_for_change(|state| state.connections);
        let is_connected = self.broker.state().borrow().is_connected;
        if !is_connected {
            return reconnected.await;
        }

        let subject = EnvironmentSubjects::new(&self.prefix, environment_id).claim();
        tokio::select! {
            () = self.wait_for_claim_on(&subject) => {}
            () = reconnected => {}
        }
    }

    async fn wait_for_claim_on(&self, subject: &str) {
        if let Ok(mut claims) = self.broker.subscribe(subject).await {
            while let Some(message) = claims.next().await {
                let claim = InstanceClaim::decode(message.payload);
                if claim.is_ok_and(|claim| claim.state() == ClaimState::Claimed) {
                    return;
                }
            }
        }
        // The client of the broker has ended, so that no claim can come.
        std::future::pending::<()>().await;
    }

    /// Waits for the first connection. A lost connection is an error at once, so that a session
    /// shows the reason.
    async fn wait_for_broker(&self) -> Result<()> {
        let mut state = self.broker.state();
        let connected = state.wait_for(|state| state.is_connected || state.losses > 0);
        let waited = tokio::time::timeout(BROKER_TIMEOUT, connected).await;
        if waited.is_ok_and(|state| state.is_ok_and(|state| state.is_connected)) {
            return Ok(());
        }
        let cause = self
            .broker
            .state()
            .borrow()
            .last_error
            .as_ref()
            .map_or_else(String::new, |cause| format!(": {cause}"));
        Err(Error::new(
            ErrorKind::NotConnected,
            format!("the NATS broker is not connected{cause}"),
        ))
    }
}

/// Returns the instance of the link that opened the tunnel.
async fn wait_for_answer(incoming: &mut BrokerSubscription) -> Result<RandomToken> {
    let message = incoming.next().await.ok_or_else(broker_lost)?;
    if message.is_no_responders {
        return Err(Error::new(
            ErrorKind::NotConnected,
            "no link serves the environment: start `caproot link` on the executor, and \
                      check its connection to the broker",
        ));
    }

    let response = DialResponse::decode(message.payload).map_err(|_| invalid_answer())?;
    match response.outcome {
        Some(Outcome::Accepted(accepted)) => {
            RandomToken::parse(&accepted.instance).ok_or_else(invalid_answer)
        }
        Some(Outcome::Refused(refused)) => {
            let reason = match refused.reason() {
                DialRefusal::TooManyTunnels => {
                    "the link has its maximum number of tunnels, `max_tunnels`"
                }
                DialRefusal::TooManyDials => {
                    "the link received more dials than `max_dials_per_second`"
                }
                DialRefusal::DaemonUnreachable => {
                    "the link cannot connect to the daemon on its machine"
                }
                DialRefusal::Unspecified => "the link refused the tunnel without a reason",
            };
            Err(Error::new(ErrorKind::ConnectionRefused, reason))
        }
        None => Err(invalid_answer()),
    }
}

fn invalid_answer() -> Error {
    Error::new(ErrorKind::InvalidData, "the link sent an invalid answer")
}

fn no_answer() -> Error {
    let span = humantime::format_duration(ANSWER_TIMEOUT);
    let reason = format!(
        "the link did not answer within {span}: a NATS server on the way may be frozen or separated"
    );
    Error::new(ErrorKind::TimedOut, reason)
}

fn broker_lost() -> Error {
    Error::new(
        ErrorKind::NotConnected,
        "the connection to the NATS broker was lost",
    )
}
