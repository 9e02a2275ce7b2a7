//! Keeps in step with a server: connects, lists, lists again when it says that something changed or after
//! a while, and connects again when it is lost. Leaves listing to `listing`.

use super::McpServerConfig;
use super::connection::{McpConnection, connect};
use super::limits::{
    CONNECT_TIMEOUT, LIST_TIMEOUT, MAX_RETRY_DELAY, MIN_RETRY_DELAY, RELIST_INTERVAL,
};
use super::listing::{RemoteSkills, list_skills};
use crate::session::source::SkillListing;
use rmcp::RoleClient;
use rmcp::model::{ProtocolVersion, SubscriptionFilter};
use rmcp::service::{Peer, Subscription};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// How long a server may take to say that it tells of changes; without, its list is asked for anyway.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(2);

/// What is held of a server.
#[derive(Debug, Clone)]
pub(super) struct McpSourceState {
    pub(super) listing: Arc<SkillListing>,
    pub(super) entries: Arc<RemoteSkills>,
    /// Why it cannot be used; the end of a sentence.
    pub(super) unavailable_reason: Option<String>,
    /// Whether it is switched off.
    pub(super) disabled: bool,
    pub(super) peer: Option<Peer<RoleClient>>,
    has_result: bool,
}

impl McpSourceState {
    pub(super) fn without_listing(why: &str) -> Self {
        Self {
            listing: Arc::default(),
            entries: Arc::default(),
            unavailable_reason: Some(why.to_owned()),
            disabled: false,
            peer: None,
            has_result: false,
        }
    }

    pub(super) fn disabled() -> Self {
        Self { disabled: true, ..Self::without_listing("it is switched off") }
    }

    /// Whether there was a list, or a reason for none.
    pub(super) fn has_result(&self) -> bool {
        self.has_result
    }
}

/// Follows a server, for ever.
pub(super) async fn follow_server(
    server: McpServerConfig,
    tell: watch::Sender<McpSourceState>,
    again: Arc<Notify>,
) {
    let mut pause = MIN_RETRY_DELAY;
    loop {
        let begun = Instant::now();
        let connected = timeout(CONNECT_TIMEOUT, connect(&server.endpoint, again.clone())).await;
        let why = match connected.unwrap_or_else(|_| Err("it does not answer".to_owned())) {
            Ok(connected) => relist_until_lost(&server.name, &connected, &tell, &again).await,
            Err(why) => why,
        };
        tell.send_if_modified(|held| {
            let news = held.unavailable_reason.as_ref() != Some(&why) || !held.has_result;
            // The entries stay: a name that was its own is nobody else's by that.
            (held.unavailable_reason, held.peer, held.has_result) = (Some(why), None, true);
            news
        });
        if begun.elapsed() > MAX_RETRY_DELAY {
            pause = MIN_RETRY_DELAY;
        }
        sleep(pause).await;
        pause = (pause * 2).min(MAX_RETRY_DELAY);
    }
}

/// Lists, and lists again, until the server is lost; why.
async fn relist_until_lost(
    name: &str,
    connected: &McpConnection,
    tell: &watch::Sender<McpSourceState>,
    again: &Notify,
) -> String {
    let peer = connected.peer();
    let mut told = None;
    loop {
        // Before it lists, or a change in between would be lost.
        if told.is_none() {
            told = subscribe_to_changes(peer).await;
        }
        let listed = Instant::now();
        let before = tell.borrow().entries.clone();
        let (listing, entries) = match timeout(LIST_TIMEOUT, list_skills(name, peer, &before)).await
        {
            Ok(Ok(listed)) => listed,
            Ok(Err(why)) => return why,
            Err(_) => return "it does not end listing its skills in time".to_owned(),
        };
        tell.send_if_modified(|held| {
            let same = *held.listing == listing
                && held.entries.len() == entries.len()
                && entries.iter().all(|(package, entry)| {
                    held.entries.get(package).is_some_and(|known| Arc::ptr_eq(known, entry))
                });
            let news = !same || held.unavailable_reason.is_some();
            if !same {
                (held.listing, held.entries) = (Arc::new(listing), Arc::new(entries));
            }
            (held.unavailable_reason, held.has_result) = (None, true);
            held.peer = Some(peer.clone());
            news
        });
        tokio::select! {
            () = again.notified() => {}
            () = wait_for_change(&mut told) => {}
            () = sleep(RELIST_INTERVAL) => {}
            () = connected.wait_closed() => return "it ended the connection".to_owned(),
        }
        sleep_until(listed + MIN_RETRY_DELAY).await;
    }
}

/// Asks to be told of changes, where the server can tell.
async fn subscribe_to_changes(peer: &Peer<RoleClient>) -> Option<Subscription> {
    let info = peer.peer_info()?;
    // Servers of an earlier protocol tell unasked.
    if info.protocol_version != ProtocolVersion::V_2026_07_28 {
        return None;
    }
    info.capabilities.resources.as_ref()?.list_changed.filter(|tells| *tells)?;
    let filter = SubscriptionFilter::builder().resources_list_changed().build();
    timeout(SUBSCRIBE_TIMEOUT, peer.listen(filter)).await.ok()?.ok()
}

/// Waits for word of a change; of a subscription that ended, or is none, for ever.
async fn wait_for_change(told: &mut Option<Subscription>) {
    if let Some(subscription) = told
        && !matches!(subscription.next().await, Ok(Some(_)))
    {
        *told = None;
        // It may have changed in between.
        return;
    }
    if told.is_none() {
        std::future::pending::<()>().await;
    }
}
