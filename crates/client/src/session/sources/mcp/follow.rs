//! Task that follows the list of a server: connects, lists, lists again after a change or an
//! interval, and reconnects.

use super::connection::{McpConnection, McpEndpoint, connect};
use super::limits::{
    CONNECT_TIMEOUT, LIST_TIMEOUT, MAX_RETRY_DELAY, MIN_RETRY_DELAY, RELIST_INTERVAL,
};
use super::listing::{SkillOrigin, list_skills};
use super::{McpServerConfig, McpSourceState, ServerLink};
use crate::session::authorization::Authorizer;
use caproot_core::backoff::Backoff;
use caproot_core::text::{single_line, truncate_with_ellipsis};
use rmcp::RoleClient;
use rmcp::model::{ProtocolVersion, SubscriptionFilter};
use rmcp::service::{Peer, Subscription};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Time limit of a subscription to changes. Without a subscription, the list is polled.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(2);

/// Bytes of a server's text in the log.
const MAX_LOGGED_BYTES: usize = 512;

/// Follows a server. Returns only if the connection is the program's and has ended.
pub async fn follow_server(
    server: McpServerConfig,
    authorizer: Option<Arc<Authorizer>>,
    sender: watch::Sender<McpSourceState>,
    relist: Arc<Notify>,
) {
    let authorizer = authorizer.as_ref();
    let mut answers = authorizer.map(|authorizer| authorizer.watch());
    let mut backoff = Backoff::new(MIN_RETRY_DELAY, MAX_RETRY_DELAY);
    loop {
        let started_at = Instant::now();
        let connected = connect(&server.endpoint, authorizer, relist.clone());
        let connected = timeout(CONNECT_TIMEOUT, connected).await;
        let reason = match connected.unwrap_or_else(|_| Err("it does not answer".to_owned())) {
            Ok(connected) => {
                log_declarations(&server.name, connected.peer());
                let accept_value = || {
                    if let Some(authorizer) = authorizer {
                        authorizer.accept_value();
                    }
                };
                relist_until_lost(&server.name, &connected, &sender, &relist, accept_value).await
            }
            Err(reason) => reason,
        };

        let is_over =
            matches!(&server.endpoint, McpEndpoint::Connected(peer) if peer.is_transport_closed());

        sender.send_if_modified(|state| {
            let is_changed =
                state.unavailable_reason.as_ref() != Some(&reason) || !state.has_result;

            // The entries stay, so that no other source takes their names.
            state.unavailable_reason = Some(reason);
            state.link = None;
            state.has_result = true;

            if is_changed {
                let reason = state.unavailable_reason.as_deref().map(logged_text);
                tracing::warn!(server = server.name, reason, "MCP server is unavailable");
            }
            is_changed
        });
        if is_over {
            return;
        }
        if started_at.elapsed() > MAX_RETRY_DELAY {
            backoff.reset();
        }
        tokio::select! {
            () = sleep(backoff.next_delay()) => {}
            () = wait_for_answer(answers.as_mut()) => {}
        }
    }
}

/// Waits until the program gave the credential of the server, or lets it be asked for again.
async fn wait_for_answer(answers: Option<&mut watch::Receiver<()>>) {
    match answers {
        // The source has the sender.
        Some(answers) => drop(answers.changed().await),
        None => std::future::pending().await,
    }
}

/// Lists the skills again and again. Returns the reason once the connection is lost.
async fn relist_until_lost(
    name: &str,
    connected: &McpConnection,
    sender: &watch::Sender<McpSourceState>,
    relist: &Notify,
    on_listed: impl Fn(),
) -> String {
    let peer = connected.peer();
    let link = ServerLink {
        peer: peer.clone(),
        messages: connected.messages.clone(),
    };
    let mut subscription = None;
    loop {
        // The subscription starts before the list, so that no change is lost in between.
        if subscription.is_none() {
            subscription = subscribe_to_changes(peer).await;
        }

        let listed_at = Instant::now();
        let before = sender.borrow().entries.clone();
        let list = list_skills(name, peer, &connected.messages, &before);
        let listed = timeout(LIST_TIMEOUT, list).await;
        match listed.unwrap_or_else(|_| Err("listing its skills takes too long".to_owned())) {
            Ok(listed) => {
                on_listed();
                sender.send_if_modified(|state| state.store_list(listed, &link));
            }
            Err(reason) => return reason,
        }

        tokio::select! {
            () = relist.notified() => {}
            () = wait_for_change(&mut subscription) => {}
            () = sleep(RELIST_INTERVAL) => {}
            () = connected.wait_closed() => return "it ended the connection".to_owned(),
        }
        sleep_until(listed_at + MIN_RETRY_DELAY).await;
    }
}

/// Returns a text that a server may have written as a short line.
fn logged_text(text: &str) -> String {
    truncate_with_ellipsis(&single_line(text), MAX_LOGGED_BYTES)
}

/// Logs the declarations of a connected server that decide how its skills are listed.
fn log_declarations(server: &str, peer: &Peer<RoleClient>) {
    let Some(info) = peer.peer_info() else { return };
    let implementation = info
        .server_info
        .as_ref()
        .map_or_else(String::new, |server| {
            logged_text(&format!("{} {}", server.name, server.version))
        });
    let resources = info.capabilities.resources.as_ref();

    tracing::info!(
        server,
        implementation,
        protocol = info.protocol_version.as_str(),
        skills_extension = SkillOrigin::of_server(peer) == SkillOrigin::Extension,
        resources = resources.is_some(),
        list_changed = resources.and_then(|r| r.list_changed).unwrap_or(false),
        subscribe = resources.and_then(|r| r.subscribe).unwrap_or(false),
        "MCP server is connected"
    );
}

/// Subscribes to changes, if the server supports subscriptions.
async fn subscribe_to_changes(peer: &Peer<RoleClient>) -> Option<Subscription> {
    let info = peer.peer_info()?;
    let resources = info.capabilities.resources.as_ref()?;
    // Servers of an earlier protocol version notify of a changed list without a subscription.
    if info.protocol_version != ProtocolVersion::V_2026_07_28
        || !resources.list_changed.unwrap_or(false)
    {
        return None;
    }

    let filter = SubscriptionFilter::builder().resources_list_changed();
    let subscribed = timeout(SUBSCRIBE_TIMEOUT, peer.listen(filter.build())).await;
    subscribed.ok()?.ok()
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

#[cfg(test)]
mod tests {
    use super::{McpEndpoint, McpServerConfig, McpSourceState, follow_server};
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::sync::watch;
    use tokio::time::sleep;
    use tokio_util::task::AbortOnDropHandle;

    /// Many sources of one lost server do not come back at the same moment.
    #[tokio::test(start_paused = true)]
    async fn sources_of_a_lost_server_retry_at_random_times() {
        let endpoint = McpEndpoint::Process {
            program: "/nonexistent/server".to_owned(),
            arguments: Vec::new(),
            environment: BTreeMap::new(),
            working_directory: None,
        };
        let senders: Vec<_> = (0..40)
            .map(|_| watch::Sender::new(McpSourceState::without_listing("connecting")))
            .collect();
        let tasks: Vec<_> = senders
            .iter()
            .map(|sender| {
                let server = McpServerConfig::new("s", endpoint.clone());
                let followed = follow_server(server, None, sender.clone(), Arc::default());
                AbortOnDropHandle::new(tokio::spawn(followed))
            })
            .collect();
        for sender in &senders {
            let failed = |state: &McpSourceState| state.has_result;
            let _ = sender.subscribe().wait_for(failed).await;
            // The next failure sets the reason again.
            sender.send_modify(|state| state.unavailable_reason = None);
        }

        // The first delay is a random part of 1 s. The probability of 40 delays in one half of the
        // second is 2^-39.
        sleep(Duration::from_millis(500)).await;
        let has_retried =
            |sender: &&watch::Sender<McpSourceState>| sender.borrow().unavailable_reason.is_some();
        let early = senders.iter().filter(has_retried).count();
        assert!((1..40).contains(&early), "{early}");
        sleep(Duration::from_millis(501)).await;
        assert!(senders.iter().all(|sender| has_retried(&sender)));
        drop(tasks);
    }
}
