//! Polling: fetches the pages of pending calls from the manager and starts the calls.

use super::call::{PendingCall, RequestId};
use super::manager::MAX_PAGE_TOKEN_BYTES;
use super::record::{DispatchRecord, DrainSummary};
use super::tracker::{CallStatus, DeliveryMode};
use super::{CallDispatcher, DispatchError, RETRY_DELAY, StartOutcome};
use caproot_core::backoff::Backoff;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use std::collections::HashSet;
use std::future::pending;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Limit of the pages of pending calls.
const MAX_PAGES: usize = 10_000;
/// Limit of the calls of a page; a manager may return more calls than the page size.
pub const MAX_PAGE_CALLS: usize = 10_000;
/// Polls of one drain.
const MAX_POLLS: usize = 100;
/// Longest delay between two polls.
const MAX_POLL_DELAY: Duration = Duration::from_secs(2);
/// Delays between polls, each twice the delay before.
pub const POLL_INTERVALS: Backoff = Backoff::new(RETRY_DELAY, MAX_POLL_DELAY);
/// Consecutive polls that may fail, each with all its attempts.
pub const MAX_FAILED_POLLS: usize = 10;

/// Error of [`CallDispatcher::drain`]. All started calls have ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct DrainError {
    /// Error that ended the drain.
    pub error: DispatchError,
    /// Calls that ended before.
    pub drained: DrainSummary,
}

/// Calls that one drain or turn has started.
pub struct PollRun<'a> {
    dispatcher: &'a CallDispatcher,
    in_flight: FuturesUnordered<oneshot::Receiver<DispatchRecord>>,
    pub drained: DrainSummary,
    /// Calls with an answer that the manager did not take. Limited by the unsent answers.
    failed: HashSet<RequestId>,
}

/// Outcome of one poll of all pages.
#[derive(Default)]
struct PollSummary {
    started: usize,
    /// Calls of an earlier run that are in flight, or that failed without a report.
    in_flight_elsewhere: usize,
    ignored: usize,
    unread: usize,
}

impl<'a> PollRun<'a> {
    pub fn new(dispatcher: &'a CallDispatcher) -> Self {
        Self {
            dispatcher,
            in_flight: FuturesUnordered::new(),
            drained: DrainSummary::default(),
            failed: HashSet::new(),
        }
    }

    /// Answers everything that is pending, and waits for the end of all calls.
    pub async fn drain(mut self) -> Result<DrainSummary, DrainError> {
        let outcome = self.poll_until_complete().await;
        self.wait_for_all().await;
        let drained = self.drained;
        match outcome {
            Ok(()) => Ok(drained),
            Err(error) => Err(DrainError { error, drained }),
        }
    }

    /// Submits the unsent answers again, and waits for the outcomes.
    pub async fn resend(mut self) -> DrainSummary {
        self.resend_unsent().await;
        self.wait_for_all().await;
        self.drained
    }

    async fn poll_until_complete(&mut self) -> Result<(), DispatchError> {
        self.dispatcher.context.check_polling()?;
        self.resend_unsent().await;
        self.wait_for_all().await;

        for _ in 0..MAX_POLLS {
            let poll = self.poll_pending().await?;
            self.drained.ignored = poll.ignored;
            self.drained.unread = poll.unread;
            self.wait_for_all().await;

            if poll.in_flight_elsewhere > 0 {
                // A dropped drain started these calls; the manager may not have taken their
                // answers.
                self.dispatcher.wait_idle().await;
                self.resend_unsent().await;
                self.wait_for_all().await;
            } else if poll.started == 0 {
                self.drained.complete = poll.unread == 0;
                break;
            }
        }
        Ok(())
    }

    /// Polls for calls until an error.
    pub async fn poll_until_error(&mut self) -> DispatchError {
        let mut intervals = POLL_INTERVALS;
        let mut failed = 0;
        loop {
            // Each poll tries a failed answer again, and a drain tries it once.
            self.failed.clear();
            self.resend_unsent().await;

            match self.poll_pending().await {
                Ok(poll) => {
                    failed = 0;
                    if poll.started > 0 {
                        intervals.reset();
                    }
                }
                Err(DispatchError::Pending(_) | DispatchError::TooManyUnsent { .. })
                    if failed + 1 < MAX_FAILED_POLLS =>
                {
                    failed += 1;
                }
                Err(error) => return error,
            }

            // An answer often causes the next call.
            if self.wait_for_done(intervals.next_limit()).await {
                intervals.reset();
            }
        }
    }

    /// Waits until all calls have ended.
    pub async fn wait_for_all(&mut self) {
        while self.wait_for_one().await.is_some() {}
    }

    /// Waits until a call has ended. Returns whether the call is done, or `None` if no call is in
    /// flight.
    async fn wait_for_one(&mut self) -> Option<bool> {
        match self.in_flight.next().await? {
            Ok(record) => {
                let is_done = record.is_done();
                if !is_done {
                    self.failed.insert(record.request_id.clone());
                }
                self.drained.add_record(record);
                Some(is_done)
            }
            // A task ends without a record only if the runtime shuts down.
            Err(_) => Some(false),
        }
    }

    /// Waits until a call is done, at most for `limit`. Returns whether a call is done.
    async fn wait_for_done(&mut self, limit: Duration) -> bool {
        let done = async {
            loop {
                match self.wait_for_one().await {
                    Some(true) => return,
                    Some(false) => {}
                    None => pending().await,
                }
            }
        };
        timeout(limit, done).await.is_ok()
    }

    /// Waits for another future, and records the calls that end meanwhile.
    async fn record_while<T>(&mut self, other: impl Future<Output = T>) -> T {
        tokio::pin!(other);
        loop {
            tokio::select! {
                biased;
                Some(_) = self.wait_for_one() => {}
                done = &mut other => return done,
            }
        }
    }

    /// Submits the unsent answers again, except those that failed in this run.
    async fn resend_unsent(&mut self) {
        let dispatcher = self.dispatcher;
        let unsent = dispatcher.context.tracker().unsent();
        for request_id in unsent {
            if self.failed.contains(&request_id) {
                continue;
            }
            let Some(permit) = self.record_while(dispatcher.acquire_permit()).await else {
                return;
            };
            self.in_flight
                .extend(dispatcher.start_resend(permit, request_id));
        }
    }

    /// Polls all pages of pending calls once, and starts the new calls.
    async fn poll_pending(&mut self) -> Result<PollSummary, DispatchError> {
        let context = &self.dispatcher.context;
        let mut poll = PollSummary::default();
        let mut token: Option<String> = None;
        for _ in 0..MAX_PAGES {
            context.check_polling()?;
            let page = self
                .record_while(context.fetch_page(token.as_deref()))
                .await
                .map_err(DispatchError::Pending)?;
            if page.calls.len() > MAX_PAGE_CALLS {
                return Err(DispatchError::InvalidPages("a page has over 10,000 calls"));
            }

            poll.unread += page.unread;
            for call in page.calls {
                self.start_polled(call, &mut poll).await?;
            }

            match page.next_token {
                None => return Ok(poll),
                next if next == token => {
                    return Err(DispatchError::InvalidPages("a token repeats"));
                }
                Some(next) if next.len() > MAX_PAGE_TOKEN_BYTES => {
                    return Err(DispatchError::InvalidPages("a token is over 1,024 bytes"));
                }
                next => token = next,
            }
        }
        Err(DispatchError::InvalidPages("over 10,000 pages"))
    }

    /// Starts a polled call, if it is new, and counts the call in `poll`.
    async fn start_polled(
        &mut self,
        call: PendingCall,
        poll: &mut PollSummary,
    ) -> Result<(), DispatchError> {
        let dispatcher = self.dispatcher;
        let Some((request_id, job)) = dispatcher.job_for_call(call) else {
            poll.ignored += 1;
            return Ok(());
        };

        let start = dispatcher.start_call(DeliveryMode::Polled, request_id.clone(), job);
        match self.record_while(start).await? {
            StartOutcome::Known(CallStatus::InFlight) => poll.in_flight_elsewhere += 1,
            // The call ended after the unsent answers were submitted again.
            StartOutcome::Known(CallStatus::Unsent) if !self.failed.contains(&request_id) => {
                poll.in_flight_elsewhere += 1;
            }
            StartOutcome::Known(_) => {}
            StartOutcome::Started(ended) => {
                poll.started += 1;
                self.in_flight.push(ended);
            }
        }
        Ok(())
    }
}
