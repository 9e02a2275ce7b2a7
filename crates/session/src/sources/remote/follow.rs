//! Task that follows the list of a server: connects, lists, lists again after a change or an interval, and
//! reconnects.

use super::RemoteServer;
use super::limits::{MIN_RETRY_DELAY, RELIST_INTERVAL};
use super::state::RemoteState;
use caproot_core::backoff::Backoff;
use std::sync::Arc;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until};

/// Server that is followed.
pub struct FollowedServer<S: RemoteServer> {
    pub server: Arc<S>,
    pub state: watch::Sender<RemoteState<S::Link>>,
    /// Notified to request a new list.
    pub relist: Arc<Notify>,
}

impl<S: RemoteServer> FollowedServer<S> {
    /// Follows the server. Returns only if the server never comes back.
    pub async fn follow(self) {
        let mut backoff = Backoff::new(MIN_RETRY_DELAY, S::MAX_RETRY_DELAY);
        loop {
            let started_at = Instant::now();
            let reason = match self.server.connect(&self.relist).await {
                Ok(connection) => self.relist_until_lost(connection).await,
                Err(reason) => reason,
            };

            let is_over = self.server.is_over();
            self.state.send_if_modified(|state| {
                let is_changed = state.store_failure(reason.clone());
                if is_changed {
                    self.server.log_failure(&reason);
                }
                is_changed
            });
            if is_over {
                return;
            }
            if started_at.elapsed() > S::MAX_RETRY_DELAY {
                backoff.reset();
            }
            tokio::select! {
                () = sleep(backoff.next_delay()) => {}
                () = self.server.wait_for_retry(&self.relist) => {}
            }
        }
    }

    /// Lists the skills again and again. Returns the reason once the connection is lost.
    async fn relist_until_lost(&self, mut connection: S::Connection) -> String {
        loop {
            let listed_at = Instant::now();
            let before = self.state.borrow().skills.clone();
            match self.server.list_skills(&mut connection, &before).await {
                Ok(listed) => {
                    let link = S::link(&connection);
                    self.state
                        .send_if_modified(|state| state.store_list(listed, &link));
                }
                Err(reason) => return reason,
            }

            tokio::select! {
                () = self.relist.notified() => {}
                () = sleep(RELIST_INTERVAL) => {}
                changed = S::wait_for_change(&mut connection) => {
                    if let Err(reason) = changed {
                        return reason;
                    }
                }
            }
            sleep_until(listed_at + MIN_RETRY_DELAY).await;
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
