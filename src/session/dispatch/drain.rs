//! Polling: asks the manager for what is pending, page by page, and has all of it answered, so many at
//! once.

use super::call::RequestId;
use super::manager::MAX_PAGE_TOKEN_BYTES;
use super::record::{DispatchRecord, DrainSummary};
use super::tracker::{CallStatus, DeliveryMode};
use super::{CallDispatcher, DispatchError, StartOutcome};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use std::collections::HashSet;
use std::future::pending;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The most pages of what is pending.
pub const MAX_PAGES: usize = 10_000;
/// The most calls that a page may have, whatever was asked for.
pub const MAX_PAGE_CALLS: usize = 10_000;
/// How often a drain looks for what came meanwhile.
const MAX_POLLS: usize = 100;

/// Why a drain ended early. What was begun before has ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct DrainError {
    /// The reason.
    pub why: DispatchError,
    /// What was done until then.
    pub drained: DrainSummary,
}

/// What one who polls has begun, and what came of it.
#[derive(Default)]
pub(super) struct PollRun {
    in_flight: FuturesUnordered<oneshot::Receiver<DispatchRecord>>,
    pub(super) drained: DrainSummary,
    /// Whose answers the manager did not take; these are kept, so no more than are.
    pub(super) failed: HashSet<RequestId>,
}

/// What one look over all pages found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PollSummary {
    pub(super) started: usize,
    /// Calls that were begun before this look, and are under way, or failed while nobody told of it.
    pub(super) in_flight_elsewhere: usize,
    ignored: usize,
}

impl PollRun {
    /// Waits until another one has ended; whether it is done for good, or `None` where none is under way.
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
            // A task ends without a word only where the runtime does.
            Err(_) => Some(false),
        }
    }

    /// Waits until all have ended.
    pub(super) async fn wait_for_all(&mut self) {
        while self.wait_for_one().await.is_some() {}
    }

    /// Waits so long, or until one is done for good; whether one is.
    pub(super) async fn wait_for_done(&mut self, wait: Duration) -> bool {
        let done = async {
            loop {
                match self.wait_for_one().await {
                    Some(true) => return,
                    Some(false) => {}
                    None => pending().await,
                }
            }
        };
        timeout(wait, done).await.is_ok()
    }

    /// Waits for something else, and takes note meanwhile of what ended.
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
}

impl CallDispatcher {
    /// Works off everything that is pending: looks until a look finds nothing new, and waits until all of
    /// it has ended. Answers that the manager did not take before are sent again first. An answer that it
    /// does not take now is kept and reported, and stops no other; nor does a call that hangs. May be
    /// dropped: what is under way goes on, and the next drain does the rest.
    pub async fn drain(&self) -> Result<DrainSummary, DrainError> {
        let mut run = PollRun::default();
        let outcome = self.drain_into(&mut run).await;
        run.wait_for_all().await;
        match outcome {
            Ok(()) => Ok(run.drained),
            Err(why) => Err(DrainError { why, drained: run.drained }),
        }
    }

    async fn drain_into(&self, run: &mut PollRun) -> Result<(), DispatchError> {
        self.check_polling()?;
        self.resend_unsent(run).await;
        run.wait_for_all().await;
        for _ in 0..MAX_POLLS {
            let look = self.poll_pending(run).await?;
            run.drained.ignored = look.ignored;
            run.wait_for_all().await;
            if look.in_flight_elsewhere > 0 {
                // What somebody else began who went away; its answer may not have been taken.
                self.wait_idle().await;
                self.resend_unsent(run).await;
                run.wait_for_all().await;
            } else if look.started == 0 {
                run.drained.complete = true;
                break;
            }
        }
        Ok(())
    }

    /// Whether the manager may be asked for calls.
    pub(super) fn check_polling(&self) -> Result<(), DispatchError> {
        self.context.tracker().check_mode(DeliveryMode::Polled).map_err(DispatchError::Mode)
    }

    /// Sends the answers again that are kept, but for those that failed in this run.
    pub(super) async fn resend_unsent(&self, run: &mut PollRun) {
        let kept = self.context.tracker().unsent();
        for request in kept {
            if run.failed.contains(&request) {
                continue;
            }
            let Some(permit) = run.record_while(self.acquire_permit()).await else { return };
            run.in_flight.extend(self.start_resend(permit, request));
        }
    }

    /// Looks once over all that is pending, and begins what is new.
    pub(super) async fn poll_pending(
        &self,
        run: &mut PollRun,
    ) -> Result<PollSummary, DispatchError> {
        let (mut look, mut after) = (PollSummary::default(), None::<String>);
        for _ in 0..MAX_PAGES {
            self.check_polling()?;
            let page = run.record_while(self.context.fetch_page(after.as_deref())).await;
            let page = page.map_err(DispatchError::Pending)?;
            if page.calls.len() > MAX_PAGE_CALLS {
                return Err(DispatchError::InvalidPages("a page has over 10,000 calls"));
            }
            for call in page.calls {
                let Some((request, work)) = self.job_for_call(call) else {
                    look.ignored += 1;
                    continue;
                };
                match run
                    .record_while(self.start_call(DeliveryMode::Polled, request.clone(), work))
                    .await?
                {
                    StartOutcome::Known(CallStatus::InFlight) => look.in_flight_elsewhere += 1,
                    // It ended since the kept answers were sent again.
                    StartOutcome::Known(CallStatus::Unsent) if !run.failed.contains(&request) => {
                        look.in_flight_elsewhere += 1;
                    }
                    StartOutcome::Known(_) => {}
                    StartOutcome::Started(end) => {
                        look.started += 1;
                        run.in_flight.push(end);
                    }
                }
            }
            match page.next_token {
                None => return Ok(look),
                next if next == after => {
                    return Err(DispatchError::InvalidPages("a token repeats"));
                }
                Some(next) if next.len() > MAX_PAGE_TOKEN_BYTES => {
                    return Err(DispatchError::InvalidPages("a token is over 1,024 bytes"));
                }
                next => after = next,
            }
        }
        Err(DispatchError::InvalidPages("there are more than 10,000"))
    }
}
