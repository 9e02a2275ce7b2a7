//! Changes of the list of a server: subscriptions, and the end of the connection.

use super::connection::{McpConnection, ServerLink};
use super::listing::skill_origin;
use crate::sources::remote::SkillOrigin;
use caproot_core::text::{single_line, truncate_with_ellipsis};
use rmcp::RoleClient;
use rmcp::model::{ProtocolVersion, SubscriptionFilter};
use rmcp::service::{Peer, Subscription};
use std::time::Duration;
use tokio::time::timeout;

/// Time limit of a subscription to changes. Without a subscription, the list is polled.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(2);

/// Bytes of a server's text in the log.
const MAX_LOGGED_BYTES: usize = 512;

/// Connection with a subscription to changes.
pub struct FollowedConnection {
    subscription: Option<Subscription>,
    connection: McpConnection,
    pub link: ServerLink,
}

impl FollowedConnection {
    pub fn new(server: String, connection: McpConnection) -> Self {
        Self {
            subscription: None,
            link: ServerLink {
                server,
                peer: connection.peer().clone(),
                messages: connection.messages.clone(),
            },
            connection,
        }
    }

    /// Subscribes to changes, if there is no subscription and the server supports subscriptions.
    pub async fn subscribe(&mut self) {
        if self.subscription.is_none() {
            self.subscription = subscribe_to_changes(&self.link.peer).await;
        }
    }

    /// Waits for a change. Returns the reason if the connection is lost.
    pub async fn wait_for_change(&mut self) -> Result<(), String> {
        tokio::select! {
            () = wait_for_change(&mut self.subscription) => Ok(()),
            () = self.connection.wait_closed() => Err("it ended the connection".to_owned()),
        }
    }
}

/// Returns a text that a server may have written as a short line.
pub fn logged_text(text: &str) -> String {
    truncate_with_ellipsis(&single_line(text), MAX_LOGGED_BYTES)
}

/// Logs the declarations of a connected server that decide how its skills are listed.
pub fn log_declarations(link: &ServerLink) {
    let Some(info) = link.peer.peer_info() else {
        return;
    };
    let implementation = info
        .server_info
        .as_ref()
        .map_or_else(String::new, |server| {
            logged_text(&format!("{} {}", server.name, server.version))
        });
    let resources = info.capabilities.resources.as_ref();

    tracing::info!(
        server = link.server,
        implementation,
        protocol = info.protocol_version.as_str(),
        skills_extension = skill_origin(&link.peer) == SkillOrigin::Extension,
        resources = resources.is_some(),
        list_changed = resources.is_some_and(|r| r.list_changed == Some(true)),
        subscribe = resources.is_some_and(|r| r.subscribe == Some(true)),
        "MCP server is connected"
    );
}

/// Subscribes to changes, if the server supports subscriptions.
async fn subscribe_to_changes(peer: &Peer<RoleClient>) -> Option<Subscription> {
    let info = peer.peer_info()?;
    let has_changes = info.capabilities.resources.as_ref()?.list_changed;
    // Servers of an earlier protocol version notify of a changed list without a subscription.
    if info.protocol_version != ProtocolVersion::V_2026_07_28 || has_changes != Some(true) {
        return None;
    }

    let filter = SubscriptionFilter::builder().resources_list_changed();
    timeout(SUBSCRIBE_TIMEOUT, peer.listen(filter.build()))
        .await
        .ok()?
        .ok()
}

/// Waits for a change or for the end of the subscription. Without a subscription, waits forever.
async fn wait_for_change(subscription: &mut Option<Subscription>) {
    if let Some(active) = subscription
        && !matches!(active.next().await, Ok(Some(_)))
    {
        *subscription = None;
        // The list may have changed in between.
        return;
    }
    if subscription.is_none() {
        std::future::pending::<()>().await;
    }
}
