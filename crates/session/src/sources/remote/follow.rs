//! Task that follows the list of a server: connects, lists, lists again after a change or an interval, and
//! reconnects.

use super::RemoteServer;
use super::limits::{MIN_RETRY_DELAY, RELIST_INTERVAL};
use super::state::RemoteState;
use caproot_core::backoff::Backoff;
use std::sync::Arc;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until};

/// Follows a server. Returns only if the server never comes back. `relist` is notified to request a new list.
pub async fn follow_server<S: RemoteServer>(
    server: Arc<S>,
    state: watch::Sender<RemoteState<S::Link>>,
    relist: Arc<Notify>,
) {
    let mut backoff = Backoff::new(MIN_RETRY_DELAY, S::MAX_RETRY_DELAY);
    loop {
        let started_at = Instant::now();
        let reason = match server.connect(&relist).await {
            Err(reason) => reason,
            // Lists the skills again and again until the connection is lost.
            Ok(mut connection) => loop {
                let listed_at = Instant::now();
                let before = state.borrow().skills.clone();
                let listed = match server.list_skills(&mut connection, &before).await {
                    Ok(listed) => listed,
                    Err(reason) => break reason,
                };
                let link = S::link(&connection);
                state.send_if_modified(|state| state.store_list(listed, &link));

                tokio::select! {
                    () = relist.notified() => {}
                    () = sleep(RELIST_INTERVAL) => {}
                    changed = S::wait_for_change(&mut connection) => {
                        if let Err(reason) = changed {
                            break reason;
                        }
                    }
                }
                sleep_until(listed_at + MIN_RETRY_DELAY).await;
            },
        };

        state.send_if_modified(|state| {
            let is_changed = state.store_failure(reason.clone());
            if is_changed {
                server.log_failure(&reason);
            }
            is_changed
        });
        if server.is_over() {
            return;
        }
        if started_at.elapsed() > S::MAX_RETRY_DELAY {
            backoff.reset();
        }
        tokio::select! {
            () = sleep(backoff.next_delay()) => {}
            () = server.wait_for_retry(&relist) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::sources::mcp::{McpEndpoint, McpServerConfig, McpSource};
    use futures_util::future::join_all;
    use std::time::Duration;
    use tokio::time::sleep;

    /// Many sources of one lost server do not come back at the same moment.
    #[tokio::test(start_paused = true)]
    async fn sources_of_a_lost_server_retry_at_random_times() {
        let endpoint = McpEndpoint::process("/nonexistent/server");
        let starts = (0..40).map(|_| McpSource::start(McpServerConfig::new("s", endpoint.clone())));
        let sources = join_all(starts).await.into_iter();
        let sources: Vec<_> = sources.map(|source| source.expect("a name")).collect();
        for source in &sources {
            // The next failure sets the reason again.
            source
                .state
                .send_modify(|state| state.link = Err(String::new()));
        }

        // The first delay is a random part of 1 s. The probability of 40 delays in one half of the
        // second is 2^-39.
        sleep(Duration::from_millis(500)).await;
        let has_retried = |source: &&McpSource| {
            let state = source.state.borrow();
            state.link.as_ref().is_err_and(|reason| !reason.is_empty())
        };
        let early = sources.iter().filter(has_retried).count();
        assert!((1..40).contains(&early), "{early}");
        sleep(Duration::from_millis(501)).await;
        assert!(sources.iter().all(|source| has_retried(&source)));
    }
}
