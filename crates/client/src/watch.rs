//! Stream of changes that survives lost connections and restarts of the daemon. It connects again
//! and resumes after the last complete state that the caller received.

use super::call::{CallError, Client};
use super::grpc_call::ResponseStream;
use super::mirror::RetryRequests;
use crate::connect::auth_channel::TlsRequired;
use crate::connect::response_budget::{BudgetPermit, MeteredMessage};
use crate::connect::retry::requested_delay;
use caproot_core::backoff::{Backoff, full_jitter};
use caproot_core::proto::caproot::v1::watch_skills_response::Event;
use caproot_core::proto::caproot::v1::{WatchSkillsRequest, WatchSkillsResponse};
use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;
use tonic::{Code, Status};

/// Maximum delay of the first retry. Each further retry doubles the maximum.
const INITIAL_DELAY: Duration = Duration::from_millis(200);
/// Maximum delay of any retry, in addition to a delay that the daemon requests.
const MAX_DELAY: Duration = Duration::from_secs(10);
/// Maximum delay that a daemon can request.
const MAX_REQUESTED_DELAY: Duration = Duration::from_mins(1);
/// Maximum delay after an executor of a fleet announced itself. The mirrors of many orchestrators
/// hear the announcement at the same moment.
const ANNOUNCED_DELAY: Duration = Duration::from_secs(1);
/// Maximum bookmark interval: the daemon caps longer intervals.
const MAX_BOOKMARK_INTERVAL: Duration = Duration::from_mins(5);
/// Bookmark interval if the request has none.
const DEFAULT_BOOKMARK_INTERVAL: Duration = Duration::from_secs(30);

/// Message of a watch.
#[derive(Debug)]
pub enum WatchMessage {
    /// Event of the daemon, unchanged.
    Event(Box<WatchSkillsResponse>),
    /// The stream ended or could not be opened, and the watch retries after a delay. The events
    /// since the last `synced` are void.
    Lost {
        /// Cause of the loss.
        cause: CallError,
        /// Delay of the retry. The delay ends early if an executor of a fleet announces itself, or
        /// if a shared mirror gets another user.
        wait: Duration,
    },
}

/// Stream of changes that reconnects. Dropping it ends the stream.
#[derive(Debug)]
pub struct SkillWatch {
    client: Client,
    /// Request of the next stream.
    pub(super) request: WatchSkillsRequest,
    pub(super) stream: Option<ResponseStream<WatchSkillsResponse>>,
    /// Delays between the attempts since the last complete state.
    backoff: Backoff,
    /// Delay before the next attempt.
    retry_delay: Option<RetryDelay>,
    /// Requests to end the delay early.
    pub(super) retry_requests: Arc<RetryRequests>,
    /// Whether an event was ever received, so that the server is a daemon.
    had_event: bool,
    /// Part of the response budget for the last event, until the event is applied.
    event_permit: Option<BudgetPermit>,
}

/// Delay of a retry.
#[derive(Debug, Clone, Copy)]
struct RetryDelay {
    /// Delay that the daemon requested.
    requested: Duration,
    /// Random delay afterwards.
    random: Duration,
}

impl SkillWatch {
    pub(super) fn new(client: Client, request: WatchSkillsRequest) -> Self {
        Self {
            client,
            request,
            stream: None,
            backoff: Backoff::new(INITIAL_DELAY, MAX_DELAY),
            retry_delay: None,
            retry_requests: Arc::default(),
            had_event: false,
            event_permit: None,
        }
    }

    /// Token of the last `synced` or `bookmark`. Empty while a state is incomplete: an incomplete
    /// state cannot be resumed.
    #[must_use]
    pub fn resume_token(&self) -> &str {
        &self.request.resume_token
    }

    /// Waits for the delay after a failure. The random part ends early if the executor announces
    /// itself, or if a user of the mirror requests a retry. Cancel-safe.
    pub(super) async fn wait_for_retry(&mut self) {
        let Some(RetryDelay { requested, random }) = self.retry_delay else {
            return;
        };
        tokio::time::sleep(requested).await;
        if random > ANNOUNCED_DELAY {
            // The box is gone once the stream opens, so that a mirror's future stays small.
            Box::pin(self.wait_unless_ended_early(random)).await;
        } else {
            tokio::time::sleep(random).await;
        }
        self.retry_delay = None;
    }

    /// Waits for a delay, or until the executor of a fleet announces itself or a retry is requested.
    async fn wait_unless_ended_early(&self, delay: Duration) {
        let announced = async {
            self.client.channel.executor_announced().await;
            tokio::time::sleep(full_jitter(ANNOUNCED_DELAY)).await;
        };
        tokio::select! {
            () = announced => {}
            () = self.retry_requests.wait_for_request() => {}
            () = tokio::time::sleep(delay) => {}
        }
    }

    /// Returns the next message. An error is final: the daemon rejected the watch. Cancel-safe.
    pub async fn next(&mut self) -> Result<WatchMessage, CallError> {
        let message = self.next_metered().await;
        // The memory of the event belongs to the caller now.
        self.release_event();
        message
    }

    /// Returns the next message like [`SkillWatch::next`]. The event keeps its part of the response
    /// budget until [`SkillWatch::release_event`].
    pub(super) async fn next_metered(&mut self) -> Result<WatchMessage, CallError> {
        self.release_event();
        self.wait_for_retry().await;
        match self.receive_event().await {
            Ok(metered) => {
                self.record_event(&metered.message);
                self.event_permit = Some(metered.permit);
                Ok(WatchMessage::Event(Box::new(metered.message)))
            }
            Err(status) => self.record_failure(status),
        }
    }

    /// Returns the part of the last event to the response budget.
    pub(super) fn release_event(&mut self) {
        self.event_permit = None;
    }

    /// Closes the stream after a failure, and plans the next attempt. The error is final.
    pub(super) fn record_failure(&mut self, status: Status) -> Result<WatchMessage, CallError> {
        self.stream = None;
        if !self.is_retryable(&status) {
            return Err(status.into());
        }
        let requested = requested_delay(&status).min(MAX_REQUESTED_DELAY);
        // The daemon may have requested one delay from many clients at once.
        let random = self.backoff.next_delay();
        self.retry_delay = Some(RetryDelay { requested, random });
        Ok(WatchMessage::Lost {
            cause: status.into(),
            wait: requested + random,
        })
    }

    async fn receive_event(&mut self) -> Result<MeteredMessage<WatchSkillsResponse>, Status> {
        let silence = self.silence_timeout();
        let stream = match &mut self.stream {
            Some(stream) => stream,
            closed @ None => closed.insert(self.client.open_watch(self.request.clone()).await?),
        };
        let received = tokio::time::timeout(silence, stream.message()).await;
        let event =
            received.map_err(|_| Status::unavailable("the daemon sends no bookmarks"))??;
        event.ok_or_else(|| Status::unavailable("the daemon ended the stream"))
    }

    /// How long a connection may have no event, not even a bookmark, before it counts as dead.
    fn silence_timeout(&self) -> Duration {
        let requested = self
            .request
            .bookmark_interval
            .and_then(|span| Duration::try_from(span).ok())
            .filter(|span| !span.is_zero())
            .unwrap_or(DEFAULT_BOOKMARK_INTERVAL);
        requested.min(MAX_BOOKMARK_INTERVAL) + self.client.timeout()
    }

    /// Stores the resume token of the event.
    fn record_event(&mut self, event: &WatchSkillsResponse) {
        self.had_event = true;
        // The caller's state is no longer the state that has these catalogs.
        self.request.known_catalogs.clear();
        let token = match &event.event {
            Some(Event::Synced(synced)) => Some(&synced.resume_token),
            Some(Event::Bookmark(bookmark)) => Some(&bookmark.resume_token),
            // An incomplete state is no base for a difference.
            _ => None,
        };
        match token {
            Some(token) => {
                self.request.resume_token.clone_from(token);
                self.backoff.reset();
            }
            None => self.request.resume_token.clear(),
        }
    }

    /// Whether the same call may succeed later: the connection was lost, or the status says so.
    pub(super) fn is_retryable(&self, status: &Status) -> bool {
        if TlsRequired::is_cause_of(status) {
            return false;
        }
        match status.code() {
            Code::Unavailable | Code::ResourceExhausted => true,
            // A status with a source was made on this side, for a broken connection. Without a
            // single event, a protocol error means that the server is not a daemon.
            Code::Internal => self.had_event && status.source().is_some(),
            Code::Unknown | Code::Cancelled => status.source().is_some(),
            // Opening the stream took too long, and the daemon was there before.
            Code::DeadlineExceeded => self.had_event,
            _ => false,
        }
    }
}
