//! Executor's side: claims the environments of this machine, and connects the tunnels of
//! orchestrators to the daemon.

use super::broker::{Broker, BrokerEnded, BrokerMessage, BrokerSubscription};
use super::broker_config::BrokerConfig;
use super::claim::{ClaimAction, EnvironmentClaim, LinkRank};
use super::dial_shares::DialShares;
use super::link_stats::LinkStats;
use super::subject::{EnvironmentSubjects, RandomToken};
use super::tunnel_pump::{TunnelSubjects, run_tunnel};
use super::tunnel_stream::open_tunnel;
use caproot_core::backoff::full_jitter;
use caproot_core::proto::link::caproot::link::v1::dial_response::Outcome;
use caproot_core::proto::link::caproot::link::v1::{
    DialAccepted, DialRefusal, DialRefused, DialRequest, DialResponse, InstanceClaim,
    TunnelResetReason,
};
use caproot_core::sync::Mutex;
use prost::Message as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// Longest time between two claims of a link that serves. Links that did not hear each other settle
/// within this time after a partition.
const CLAIM_INTERVAL: Duration = Duration::from_secs(10);
/// Longest time between two questions of a superseded link.
const PROBE_INTERVAL: Duration = Duration::from_secs(4);
/// How long connecting to the daemon may take. An orchestrator waits 4 s for the answer to its dial.
const DAEMON_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest wait of an orchestrator after too many dials.
const RETRY_AFTER_MS: u32 = 1_000;
/// Pause between two attempts to connect to the daemon at the start.
const DAEMON_RETRY_PAUSE: Duration = Duration::from_secs(1);
/// How long the last messages may take at the end.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// Configuration of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkConfig {
    /// Environments that the daemon serves, at least one.
    pub environment_ids: Vec<String>,
    /// TLS listener of the daemon on this machine.
    pub daemon: SocketAddr,
    /// Broker.
    pub broker: BrokerConfig,
    /// Maximum number of open tunnels.
    pub max_tunnels: usize,
    /// Maximum number of dials within a second, divided among the orchestrators.
    pub max_dials_per_second: u32,
}

/// Link of this machine's daemon to a broker.
#[derive(Debug)]
pub struct LinkService {
    config: LinkConfig,
    broker: Broker,
    rank: LinkRank,
    stats: Arc<LinkStats>,
    tunnels: Arc<Semaphore>,
    dials: Mutex<DialShares>,
    /// Environments that this link or a greater one serves.
    claimed: watch::Sender<usize>,
}

impl LinkService {
    /// Starts to connect to the broker. Returns an error for files that cannot be used.
    pub async fn start(config: LinkConfig) -> Result<Self, String> {
        let instance = RandomToken::generate()?;
        let started = SystemTime::now().duration_since(UNIX_EPOCH);
        let started_ms = started.unwrap_or_default().as_millis();
        Ok(Self {
            broker: Broker::start(&config.broker, "caproot link").await?,
            rank: LinkRank {
                started_ms: started_ms.try_into().unwrap_or(u64::MAX),
                instance,
            },
            stats: Arc::default(),
            tunnels: Arc::new(Semaphore::new(config.max_tunnels)),
            dials: Mutex::new(DialShares::new(config.max_dials_per_second)),
            claimed: watch::Sender::new(0),
            config,
        })
    }

    /// Returns the numbers of the link.
    pub fn stats(&self) -> Arc<LinkStats> {
        self.stats.clone()
    }

    /// Returns the broker of the link.
    pub fn broker(&self) -> &Broker {
        &self.broker
    }

    /// Waits until the daemon took a connection, and dials of every environment reach this link or a
    /// greater one.
    pub async fn wait_until_ready(&self) {
        while let Err(error) = connect_to_daemon(self.config.daemon).await {
            let daemon = self.config.daemon;
            tracing::warn!(%daemon, %error, "the daemon does not accept connections; trying again");
            sleep(DAEMON_RETRY_PAUSE).await;
        }
        let mut claimed = self.claimed.subscribe();
        let count = self.config.environment_ids.len();
        // The sender belongs to this link.
        let _ = claimed.wait_for(|claimed| *claimed >= count).await;
    }

    /// Serves until `stop` ends, and then releases the claims.
    pub async fn run(&self, stop: impl Future<Output = ()>) -> Result<(), BrokerEnded> {
        let stopped = CancellationToken::new();
        let serve = futures_util::future::try_join_all(
            self.config
                .environment_ids
                .iter()
                .map(|id| EnvironmentLink::new(self, id).run(stopped.clone())),
        );

        let cancel = async {
            stop.await;
            stopped.cancel();
            // `serve` ends by itself now; a broker that is away must not delay the end.
            sleep(RELEASE_TIMEOUT).await;
        };

        tokio::select! {
            ended = serve => ended.map(drop),
            () = cancel => Ok(()),
        }
    }
}

/// Link of one environment.
struct EnvironmentLink<'a> {
    service: &'a LinkService,
    environment_id: &'a str,
    subjects: EnvironmentSubjects,
    claim: EnvironmentClaim,
    /// Whether the broker passes dials on to this link or a greater one.
    is_ready: bool,
    /// Subscription of dials, while the link serves.
    dials: Option<BrokerSubscription>,
    /// Tunnels of the environment. Dropping the set ends them.
    tunnels: JoinSet<()>,
    /// Reason to reset the tunnels, once another link serves or this link ends.
    reset: watch::Sender<Option<TunnelResetReason>>,
}

impl<'a> EnvironmentLink<'a> {
    fn new(service: &'a LinkService, environment_id: &'a str) -> Self {
        Self {
            service,
            environment_id,
            subjects: EnvironmentSubjects::new(&service.config.broker.prefix, environment_id),
            claim: EnvironmentClaim::new(service.rank.clone()),
            is_ready: false,
            dials: None,
            tunnels: JoinSet::new(),
            reset: watch::Sender::new(None),
        }
    }

    async fn run(mut self, stopped: CancellationToken) -> Result<(), BrokerEnded> {
        let broker = &self.service.broker;
        let own_claims = self.subjects.instance_claim(&self.service.rank.instance);

        // Other links answer the first claim on these subjects, so the subscriptions come before it.
        let mut claims = broker.subscribe(&self.subjects.claim()).await?;
        let mut questions = broker.subscribe(&own_claims).await?;
        let mut state = broker.state();

        // The dials are subscribed before the claim: `hear` relies on this order.
        self.act(ClaimAction::StartServing).await?;
        self.act(ClaimAction::Publish).await?;
        let mut connections = state.borrow_and_update().connections;
        let mut next_refresh = Instant::now() + self.refresh_delay();

        loop {
            let actions = tokio::select! {
                () = stopped.cancelled() => break,
                message = claims.next() => self.hear(message.ok_or(BrokerEnded)?),
                message = questions.next() => {
                    self.answer_question(message.ok_or(BrokerEnded)?).await?
                }
                message = next_dial(&mut self.dials) => {
                    self.take_dial(message.ok_or(BrokerEnded)?).await?;
                    Vec::new()
                }
                // A `JoinSet` keeps each ended task until the task is joined.
                Some(_) = self.tunnels.join_next() => Vec::new(),
                () = sleep_until(next_refresh) => {
                    next_refresh = Instant::now() + self.refresh_delay();
                    vec![self.claim.refresh()]
                }
                changed = state.changed() => {
                    changed.map_err(|_| BrokerEnded)?;
                    let before = connections;
                    connections = state.borrow_and_update().connections;
                    if connections == before { Vec::new() } else { vec![self.claim.refresh()] }
                }
            };

            for action in actions {
                if action == ClaimAction::StopServing {
                    // The interval of questions is shorter.
                    next_refresh = Instant::now();
                }
                self.act(action).await?;
            }
        }

        self.release().await
    }

    /// Releases the claim, and ends the tunnels.
    async fn release(mut self) -> Result<(), BrokerEnded> {
        let broker = &self.service.broker;
        self.dials = None;
        broker
            .announce(&self.subjects.claim(), &self.claim.release_message())
            .await?;

        self.reset.send_replace(Some(TunnelResetReason::Closed));
        // Each tunnel ends by itself: an aborted task would not send its reset.
        while self.tunnels.join_next().await.is_some() {}
        broker.flush().await
    }

    fn refresh_delay(&self) -> Duration {
        let interval = if self.claim.is_serving() {
            CLAIM_INTERVAL
        } else {
            PROBE_INTERVAL
        };
        interval / 2 + full_jitter(interval / 2)
    }

    fn hear(&mut self, message: BrokerMessage) -> Vec<ClaimAction> {
        let Ok(claim) = InstanceClaim::decode(message.payload) else {
            return Vec::new();
        };
        let actions = self.claim.hear(&claim);
        // The broker handles the messages of a connection in order, so that it has the subscription
        // of dials if it returns the link's own claim.
        let is_own = claim.instance == self.service.rank.instance.to_string();
        if (is_own || !self.claim.is_serving()) && !std::mem::replace(&mut self.is_ready, true) {
            self.service.claimed.send_modify(|claimed| *claimed += 1);
        }
        actions
    }

    /// Takes a message on the link's own subject: a question of another link, which has a reply
    /// subject, or the answer to a question of this link.
    async fn answer_question(
        &mut self,
        message: BrokerMessage,
    ) -> Result<Vec<ClaimAction>, BrokerEnded> {
        if message.is_no_responders {
            return Ok(self.claim.probe_failed());
        }
        let Some(reply) = &message.reply else {
            return Ok(self.hear(message));
        };
        let broker = &self.service.broker;
        broker.announce(reply, &self.claim.message()).await?;
        Ok(Vec::new())
    }

    async fn act(&mut self, action: ClaimAction) -> Result<(), BrokerEnded> {
        let broker = &self.service.broker;
        match action {
            ClaimAction::Publish => {
                broker
                    .announce(&self.subjects.claim(), &self.claim.message())
                    .await?;
            }
            ClaimAction::Probe(instance) => {
                let own = self.subjects.instance_claim(&self.service.rank.instance);
                broker
                    .publish(
                        &self.subjects.instance_claim(&instance),
                        &own,
                        bytes::Bytes::new(),
                    )
                    .await?;
            }
            ClaimAction::StartServing => {
                self.dials = Some(
                    broker
                        .subscribe_in_group(&self.subjects.dial(), "link")
                        .await?,
                );
                // A superseded link's channel has a reason to reset, so new tunnels need another.
                self.reset = watch::Sender::new(None);

                self.service.stats.served_environments.increment();
                tracing::info!(environment_id = self.environment_id, "environment claimed");
            }
            ClaimAction::StopServing => {
                self.dials = None;
                self.reset.send_replace(Some(TunnelResetReason::Superseded));

                self.service.stats.served_environments.decrement();
                self.service.stats.superseded.increment();
                tracing::error!(
                    environment_id = self.environment_id,
                    "a newer link serves the environment: this link serves it no longer, and waits \
                     until the newer link ends; give each executor an environment id of its own"
                );
            }
        }
        Ok(())
    }

    /// Opens a tunnel in a task, or refuses.
    async fn take_dial(&mut self, message: BrokerMessage) -> Result<(), BrokerEnded> {
        let LinkService {
            config,
            broker,
            rank,
            stats,
            tunnels,
            dials,
            ..
        } = self.service;

        let Ok(request) = DialRequest::decode(message.payload) else {
            return Ok(());
        };
        let tokens =
            RandomToken::parse(&request.orchestrator).zip(RandomToken::parse(&request.tunnel));
        // Without valid tokens, there is no subject for a refusal.
        let Some((orchestrator, tunnel)) = tokens else {
            return Ok(());
        };

        stats.dials.increment();
        let other = self.subjects.to_orchestrator(&orchestrator, &tunnel);

        let permit = if dials.lock().try_start(&orchestrator) {
            tunnels
                .clone()
                .try_acquire_owned()
                .map_err(|_| DialRefusal::TooManyTunnels)
        } else {
            Err(DialRefusal::TooManyDials)
        };
        let permit = match permit {
            Ok(permit) => permit,
            Err(reason) => {
                stats.refused_dials.increment();
                return broker.announce(&other, &refusal(reason)).await;
            }
        };

        let own = self.subjects.to_link(&rank.instance, &tunnel);
        let tunnel = ServedTunnel {
            broker: broker.clone(),
            subjects: TunnelSubjects { other, own },
            daemon: config.daemon,
            instance: rank.instance.clone(),
            reset: self.reset.subscribe(),
            stats: stats.clone(),
        };

        self.tunnels.spawn(async move {
            // The error is the end of the broker, which also ends the link.
            let _ = tunnel.serve().await;
            drop(permit);
        });
        Ok(())
    }
}

/// Waits for the next dial; for ever while the link does not serve.
async fn next_dial(dials: &mut Option<BrokerSubscription>) -> Option<BrokerMessage> {
    match dials {
        Some(dials) => dials.next().await,
        None => std::future::pending().await,
    }
}

fn refusal(reason: DialRefusal) -> DialResponse {
    let retry_after_ms = if reason == DialRefusal::TooManyDials {
        RETRY_AFTER_MS
    } else {
        0
    };
    let refused = DialRefused {
        reason: reason.into(),
        retry_after_ms,
    };
    DialResponse {
        outcome: Some(Outcome::Refused(refused)),
    }
}

/// Tunnel that an orchestrator dialed.
struct ServedTunnel {
    broker: Broker,
    subjects: TunnelSubjects,
    daemon: SocketAddr,
    instance: RandomToken,
    reset: watch::Receiver<Option<TunnelResetReason>>,
    stats: Arc<LinkStats>,
}

impl ServedTunnel {
    /// Connects the tunnel to the daemon, until either side ends.
    async fn serve(mut self) -> Result<(), BrokerEnded> {
        let mut socket = match connect_to_daemon(self.daemon).await {
            Ok(socket) => socket,
            Err(error) => {
                tracing::warn!(daemon = %self.daemon, %error, "the daemon does not accept connections");
                self.stats.refused_dials.increment();
                let answer = refusal(DialRefusal::DaemonUnreachable);
                let other = &self.subjects.other;
                return self.broker.announce(other, &answer).await;
            }
        };

        // Subscribed before the answer, so that no frame is lost.
        let TunnelSubjects { other, own } = &self.subjects;
        let incoming = self.broker.subscribe(own).await?;
        let accepted = DialAccepted {
            instance: self.instance.to_string(),
        };
        let answer = DialResponse {
            outcome: Some(Outcome::Accepted(accepted)),
        };
        let payload = answer.encode_to_vec().into();
        self.broker.publish(other, own, payload).await?;

        let (mut stream, driver) = open_tunnel();
        self.stats.open_tunnels.increment();
        let copy = async move {
            // An error is the end of the tunnel or of the connection, which ends the other.
            let _ = copy_bidirectional(&mut stream, &mut socket).await;
        };
        let ended = async move {
            let ended = self.reset.wait_for(Option::is_some).await;
            // Without its sender, the environment has ended.
            ended
                .ok()
                .and_then(|reason| *reason)
                .unwrap_or(TunnelResetReason::Closed)
        };
        tokio::join!(
            copy,
            run_tunnel(driver, incoming, self.broker, self.subjects, ended)
        );
        self.stats.open_tunnels.decrement();
        Ok(())
    }
}

async fn connect_to_daemon(daemon: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = timeout(DAEMON_TIMEOUT, TcpStream::connect(daemon)).await??;
    socket.set_nodelay(true)?;
    Ok(socket)
}
