//! Task that follows the list of a server: connects, lists, lists again after a change or an
//! interval, and reconnects.

use super::connection::{McpConnection, connect};
use super::limits::{
    CONNECT_TIMEOUT, LIST_TIMEOUT, MAX_RETRY_DELAY, MIN_RETRY_DELAY, RELIST_INTERVAL,
};
use super::listing::list_skills;
use super::{McpServerConfig, McpSourceState};
use rmcp::RoleClient;
use rmcp::model::{ProtocolVersion, SubscriptionFilter};
use rmcp::service::{Peer, Subscription};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Time limit of a subscription to changes. Without a subscription, the list is polled.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(2);

/// Follows a server. Never returns.
pub async fn follow_server(
    server: McpServerConfig,
    sender: watch::Sender<McpSourceState>,
    relist: Arc<Notify>,
) {
    let mut delay = MIN_RETRY_DELAY;
    loop {
        let started_at = Instant::now();
        let connected = timeout(CONNECT_TIMEOUT, connect(&server.endpoint, relist.clone())).await;
        let reason = match connected.unwrap_or_else(|_| Err("it does not answer".to_owned())) {
            Ok(connected) => relist_until_lost(&server.name, &connected, &sender, &relist).await,
            Err(reason) => reason,
        };
        sender.send_if_modified(|state| {
            let is_changed =
                state.unavailable_reason.as_ref() != Some(&reason) || !state.has_result;
            // The entries stay, so that no other source takes their names.
            (state.unavailable_reason, state.peer, state.has_result) = (Some(reason), None, true);
            is_changed
        });
        if started_at.elapsed() > MAX_RETRY_DELAY {
            delay = MIN_RETRY_DELAY;
        }
        sleep(delay).await;
        delay = (delay * 2).min(MAX_RETRY_DELAY);
    }
}

/// Lists the skills again and again. Returns the reason once the connection is lost.
async fn relist_until_lost(
    name: &str,
    connected: &McpConnection,
    sender: &watch::Sender<McpSourceState>,
    relist: &Notify,
) -> String {
    let peer = connected.peer();
    let mut subscription = None;
    loop {
        // The subscription starts before the list, so that no change is lost in between.
        if subscription.is_none() {
            subscription = subscribe_to_changes(peer).await;
        }
        let listed_at = Instant::now();
        let before = sender.borrow().entries.clone();
        let (listing, entries) = match timeout(LIST_TIMEOUT, list_skills(name, peer, &before)).await
        {
            Ok(Ok(listed)) => listed,
            Ok(Err(reason)) => return reason,
            Err(_) => return "listing its skills takes too long".to_owned(),
        };
        sender.send_if_modified(|state| {
            let is_same = *state.listing == listing
                && state.entries.len() == entries.len()
                && entries.iter().all(|(package, entry)| {
                    state.entries.get(package).is_some_and(|known| Arc::ptr_eq(known, entry))
                });
            let is_changed = !is_same || state.unavailable_reason.is_some();
            if !is_same {
                (state.listing, state.entries) = (Arc::new(listing), Arc::new(entries));
            }
            (state.unavailable_reason, state.has_result) = (None, true);
            state.peer = Some(peer.clone());
            is_changed
        });
        tokio::select! {
            () = relist.notified() => {}
            () = wait_for_change(&mut subscription) => {}
            () = sleep(RELIST_INTERVAL) => {}
            () = connected.wait_closed() => return "it ended the connection".to_owned(),
        }
        sleep_until(listed_at + MIN_RETRY_DELAY).await;
    }
}

/// Subscribes to changes, if the server supports subscriptions.
async fn subscribe_to_changes(peer: &Peer<RoleClient>) -> Option<Subscription> {
    let info = peer.peer_info()?;
    // Servers of an earlier protocol version notify without a subscription.
    if info.protocol_version != ProtocolVersion::V_2026_07_28 {
        return None;
    }
    info.capabilities.resources.as_ref()?.list_changed.filter(|is_supported| *is_supported)?;
    let filter = SubscriptionFilter::builder().resources_list_changed().build();
    timeout(SUBSCRIBE_TIMEOUT, peer.listen(filter)).await.ok()?.ok()
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
