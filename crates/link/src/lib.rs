//! Tunnels to executors that cannot be dialled, through a NATS broker that neither side trusts.
//! `proto/caproot/link/v1` has the messages and subjects.

mod broker;
mod broker_config;
mod claim;
mod dial_shares;
mod link_stats;
mod service;
mod subject;
mod tunnel_client;
mod tunnel_pump;
mod tunnel_state;
mod tunnel_stream;

pub use broker::{Broker, BrokerEnded, BrokerMessage, BrokerState, BrokerSubscription};
pub use broker_config::{BROKER_KEYS, BrokerConfig, read_broker_config};
pub use link_stats::{LinkNumber, LinkStats};
pub use service::{LinkConfig, LinkService};
pub use tunnel_client::TunnelClient;
pub use tunnel_stream::TunnelStream;

/// Maximum number of messages that a subscription queues. The broker's client drops more.
const MAX_QUEUED_MESSAGES: usize = 512;
