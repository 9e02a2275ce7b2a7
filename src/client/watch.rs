//! A stream of changes that survives lost connections and restarts of the daemon: it connects again
//! and goes on from the last state that the caller got whole. Leaves applying events to the caller.

use super::auth_channel::TlsRequired;
use super::call::{CallError, Client};
use crate::proto::caproot::v1::watch_skills_response::Event;
use crate::proto::caproot::v1::{WatchSkillsRequest, WatchSkillsResponse};
use std::error::Error as _;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;
use tonic::{Code, Status, Streaming};
use tonic_types::StatusExt as _;

/// The wait before the first new attempt; each further one doubles it.
const INITIAL_DELAY: Duration = Duration::from_millis(200);
/// The longest wait between two attempts, unless the daemon asks for more.
const MAX_DELAY: Duration = Duration::from_secs(10);
/// The longest wait that a daemon can ask for.
const MAX_REQUESTED_DELAY: Duration = Duration::from_mins(1);
/// The longest time between two bookmarks: what the daemon cuts intervals to.
const MAX_BOOKMARK_INTERVAL: Duration = Duration::from_mins(5);
/// The time between two bookmarks where the request does not say.
const DEFAULT_BOOKMARK_INTERVAL: Duration = Duration::from_secs(30);

/// What a watch hears.
#[derive(Debug)]
pub enum WatchMessage {
    /// An event, exactly as the daemon sent it.
    Event(Box<WatchSkillsResponse>),
    /// The stream ended, or could not be opened, in a way that may mend: what came since the last
    /// `synced` is void. The watch waits and tries again by itself.
    Lost {
        /// Why.
        cause: CallError,
        /// How long the watch waits.
        wait: Duration,
    },
}

/// A stream of changes that goes on by itself. Dropping it ends it.
#[derive(Debug)]
pub struct SkillWatch {
    client: Client,
    request: WatchSkillsRequest,
    stream: Option<Streaming<WatchSkillsResponse>>,
    /// Attempts since the last state that was whole.
    failures: u32,
    /// To be waited before the next attempt.
    retry_delay: Option<Duration>,
    /// Whether any event ever came: what answers is a daemon.
    had_event: bool,
}

impl SkillWatch {
    pub(super) fn new(client: Client, request: WatchSkillsRequest) -> Self {
        Self { client, request, stream: None, failures: 0, retry_delay: None, had_event: false }
    }

    /// The token of the last `synced` or `bookmark`, with nothing after it; empty in the middle of a
    /// state, which cannot be gone on from.
    #[must_use]
    pub fn resume_token(&self) -> &str {
        &self.request.resume_token
    }

    /// Opens the stream anew, from the last whole state on, so that the daemon says at once where it is.
    pub(super) fn reopen(&mut self) {
        self.stream = None;
    }

    /// What comes next. An error is final: the daemon refused the watch, and would again. May be
    /// dropped while it waits, and called again.
    pub async fn next(&mut self) -> Result<WatchMessage, CallError> {
        if let Some(wait) = self.retry_delay {
            tokio::time::sleep(wait).await;
            self.retry_delay = None;
        }
        match self.receive_event().await {
            Ok(event) => {
                self.record_event(&event);
                Ok(WatchMessage::Event(Box::new(event)))
            }
            Err(status) => {
                self.stream = None;
                if !self.is_retryable(&status) {
                    return Err(status.into());
                }
                let asked = status.get_details_retry_info().and_then(|info| info.retry_delay);
                let wait = backoff_delay(self.failures)
                    .max(asked.unwrap_or_default().min(MAX_REQUESTED_DELAY));
                self.failures = self.failures.saturating_add(1);
                self.retry_delay = Some(wait);
                Ok(WatchMessage::Lost { cause: status.into(), wait })
            }
        }
    }

    async fn receive_event(&mut self) -> Result<WatchSkillsResponse, Status> {
        let silence = self.silence_timeout();
        let stream = match &mut self.stream {
            Some(stream) => stream,
            closed @ None => closed.insert(self.client.open_watch(self.request.clone()).await?),
        };
        match tokio::time::timeout(silence, stream.message()).await {
            Ok(Ok(Some(event))) => Ok(event),
            Ok(Ok(None)) => Err(Status::unavailable("the daemon ended the stream")),
            Ok(Err(status)) => Err(status),
            Err(_) => Err(Status::unavailable("the daemon has fallen silent")),
        }
    }

    /// After how long without even a bookmark the connection must be dead.
    fn silence_timeout(&self) -> Duration {
        let asked = self.request.bookmark_interval.and_then(|span| Duration::try_from(span).ok());
        let asked = asked.filter(|span| !span.is_zero()).unwrap_or(DEFAULT_BOOKMARK_INTERVAL);
        asked.min(MAX_BOOKMARK_INTERVAL) + self.client.timeout()
    }

    /// Keeps what the next stream goes on from.
    fn record_event(&mut self, event: &WatchSkillsResponse) {
        self.had_event = true;
        let token = match &event.event {
            Some(Event::Synced(synced)) => Some(&synced.resume_token),
            Some(Event::Bookmark(bookmark)) => Some(&bookmark.resume_token),
            // Who applied half a state holds no revision that a difference could start from.
            _ => None,
        };
        match token {
            Some(token) => {
                self.request.resume_token.clone_from(token);
                self.failures = 0;
            }
            None => self.request.resume_token.clear(),
        }
    }

    /// Whether the same call may go well later: a lost connection, or a status that says so.
    fn is_retryable(&self, status: &Status) -> bool {
        if TlsRequired::is_cause_of(status) {
            return false;
        }
        match status.code() {
            Code::Unavailable | Code::ResourceExhausted => true,
            // Statuses with a source were made on this side, of a broken connection. Where no
            // daemon ever answered, a break of protocol means that none is there.
            Code::Internal => self.had_event && status.source().is_some(),
            Code::Unknown | Code::Cancelled => status.source().is_some(),
            // A call that could not even be opened in time, of a daemon that was there.
            Code::DeadlineExceeded => self.had_event,
            _ => false,
        }
    }
}

/// The wait after so many failures: it doubles up to a bound, and half of it is random, so that the
/// watches of one daemon do not all come back at once.
fn backoff_delay(failures: u32) -> Duration {
    let full = INITIAL_DELAY.saturating_mul(1 << failures.min(16)).min(MAX_DELAY);
    let random = RandomState::new().hash_one(failures) % 1_000;
    let share = f64::from(u32::try_from(random).unwrap_or_default()) / 1_000.0;
    full.mul_f64(0.5 + share / 2.0)
}

#[cfg(test)]
mod tests {
    use super::{INITIAL_DELAY, MAX_DELAY, backoff_delay};

    #[test]
    fn waits_grow_up_to_a_bound_and_differ() {
        for failures in 0..100 {
            let waited = backoff_delay(failures);
            assert!(waited >= INITIAL_DELAY / 2 && waited <= MAX_DELAY, "{failures}: {waited:?}");
        }
        assert!(backoff_delay(0) <= INITIAL_DELAY);
        assert!(backoff_delay(40) >= MAX_DELAY / 2);
        let differ = (0..50).map(|_| backoff_delay(9)).collect::<std::collections::HashSet<_>>();
        assert!(differ.len() > 1);
    }
}
