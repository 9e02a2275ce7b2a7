//! Keeps in step with a server: connects, lists, lists again when it says that something changed or after
//! a while, and connects again when it is lost. Leaves listing to `listing`.

use super::Server;
use super::connection::{Connected, connect};
use super::limits::{CONNECT_TIME, LEAST_PAUSE, LIST_TIME, LONGEST_PAUSE, RELIST};
use super::listing::{Entries, list};
use crate::session::source::Listing;
use rmcp::RoleClient;
use rmcp::model::{ProtocolVersion, SubscriptionFilter};
use rmcp::service::{Peer, Subscription};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// How long a server may take to say that it tells of changes; without, its list is asked for anyway.
const SUBSCRIBE_TIME: Duration = Duration::from_secs(2);

/// What is held of a server.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) listing: Arc<Listing>,
    pub(super) entries: Arc<Entries>,
    /// Why it cannot be used; the end of a sentence.
    pub(super) unavailable: Option<String>,
    /// Whether it is switched off.
    pub(super) off: bool,
    pub(super) peer: Option<Peer<RoleClient>>,
    told: bool,
}

impl Held {
    pub(super) fn unlisted(why: &str) -> Self {
        Self {
            listing: Arc::default(),
            entries: Arc::default(),
            unavailable: Some(why.to_owned()),
            off: false,
            peer: None,
            told: false,
        }
    }

    pub(super) fn off() -> Self {
        Self { off: true, ..Self::unlisted("it is switched off") }
    }

    /// Whether there was a list, or a reason for none.
    pub(super) fn is_told(&self) -> bool {
        self.told
    }
}

/// Follows a server, for ever.
pub(super) async fn follow(server: Server, tell: watch::Sender<Held>, again: Arc<Notify>) {
    let mut pause = LEAST_PAUSE;
    loop {
        let begun = Instant::now();
        let connected = timeout(CONNECT_TIME, connect(&server.way, again.clone())).await;
        let why = match connected.unwrap_or_else(|_| Err("it does not answer".to_owned())) {
            Ok(connected) => listen(&server.name, &connected, &tell, &again).await,
            Err(why) => why,
        };
        tell.send_if_modified(|held| {
            let news = held.unavailable.as_ref() != Some(&why) || !held.told;
            // The entries stay: a name that was its own is nobody else's by that.
            (held.unavailable, held.peer, held.told) = (Some(why), None, true);
            news
        });
        if begun.elapsed() > LONGEST_PAUSE {
            pause = LEAST_PAUSE;
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Lists, and lists again, until the server is lost; why.
async fn listen(
    name: &str,
    connected: &Connected,
    tell: &watch::Sender<Held>,
    again: &Notify,
) -> String {
    let peer = connected.peer();
    let mut told = None;
    loop {
        // Before it lists, or a change in between would be lost.
        if told.is_none() {
            told = subscribe(peer).await;
        }
        let listed = Instant::now();
        let before = tell.borrow().entries.clone();
        let (listing, entries) = match timeout(LIST_TIME, list(name, peer, &before)).await {
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
            let news = !same || held.unavailable.is_some();
            if !same {
                (held.listing, held.entries) = (Arc::new(listing), Arc::new(entries));
            }
            (held.unavailable, held.told) = (None, true);
            held.peer = Some(peer.clone());
            news
        });
        tokio::select! {
            () = again.notified() => {}
            () = changed(&mut told) => {}
            () = sleep(RELIST) => {}
            () = connected.closed() => return "it ended the connection".to_owned(),
        }
        sleep_until(listed + LEAST_PAUSE).await;
    }
}

/// Asks to be told of changes, where the server can tell.
async fn subscribe(peer: &Peer<RoleClient>) -> Option<Subscription> {
    let info = peer.peer_info()?;
    // Servers of an earlier protocol tell unasked.
    if info.protocol_version != ProtocolVersion::V_2026_07_28 {
        return None;
    }
    info.capabilities.resources.as_ref()?.list_changed.filter(|tells| *tells)?;
    let filter = SubscriptionFilter::builder().resources_list_changed().build();
    timeout(SUBSCRIBE_TIME, peer.listen(filter)).await.ok()?.ok()
}

/// Waits for word of a change; of a subscription that ended, or is none, for ever.
async fn changed(told: &mut Option<Subscription>) {
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
