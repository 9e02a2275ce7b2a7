//! Polling: asks the manager for what is pending, page by page, and has all of it answered, so many at
//! once.

use super::call::RequestId;
use super::manager::MAX_PAGE_TOKEN_BYTES;
use super::memory::{Known, Mode};
use super::record::{DispatchRecord, Drained};
use super::{DispatchError, Dispatcher, Offered};
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
const MAX_LOOKS: usize = 100;

/// Why a drain ended early. What was begun before has ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct DrainError {
    /// The reason.
    pub why: DispatchError,
    /// What was done until then.
    pub drained: Drained,
}

/// What one who polls has begun, and what came of it.
#[derive(Default)]
pub(super) struct Run {
    underway: FuturesUnordered<oneshot::Receiver<DispatchRecord>>,
    pub(super) drained: Drained,
    /// Whose answers the manager did not take; these are kept, so no more than are.
    pub(super) failed: HashSet<RequestId>,
}

/// What one look over all pages found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) begun: usize,
    /// Calls that were begun before this look, and are under way, or failed while nobody told of it.
    pub(super) elsewhere: usize,
    ignored: usize,
}

impl Run {
    /// Waits until another one has ended; whether it is done for good, or `None` where none is under way.
    async fn one_ended(&mut self) -> Option<bool> {
        match self.underway.next().await? {
            Ok(record) => {
                let is_done = record.is_done();
                if !is_done {
                    self.failed.insert(record.request.clone());
                }
                self.drained.add(record);
                Some(is_done)
            }
            // A task ends without a word only where the runtime does.
            Err(_) => Some(false),
        }
    }

    /// Waits until all have ended.
    pub(super) async fn all_ended(&mut self) {
        while self.one_ended().await.is_some() {}
    }

    /// Waits so long, or until one is done for good; whether one is.
    pub(super) async fn done_within(&mut self, wait: Duration) -> bool {
        let done = async {
            loop {
                match self.one_ended().await {
                    Some(true) => return,
                    Some(false) => {}
                    None => pending().await,
                }
            }
        };
        timeout(wait, done).await.is_ok()
    }

    /// Waits for something else, and takes note meanwhile of what ended.
    async fn meanwhile<T>(&mut self, other: impl Future<Output = T>) -> T {
        tokio::pin!(other);
        loop {
            tokio::select! {
                biased;
                Some(_) = self.one_ended() => {}
                done = &mut other => return done,
            }
        }
    }
}

impl Dispatcher {
    /// Works off everything that is pending: looks until a look finds nothing new, and waits until all of
    /// it has ended. Answers that the manager did not take before are sent again first. An answer that it
    /// does not take now is kept and reported, and stops no other; nor does a call that hangs. May be
    /// dropped: what is under way goes on, and the next drain does the rest.
    pub async fn drain(&self) -> Result<Drained, DrainError> {
        let mut run = Run::default();
        let outcome = self.drain_into(&mut run).await;
        run.all_ended().await;
        match outcome {
            Ok(()) => Ok(run.drained),
            Err(why) => Err(DrainError { why, drained: run.drained }),
        }
    }

    async fn drain_into(&self, run: &mut Run) -> Result<(), DispatchError> {
        self.may_poll()?;
        self.send_kept(run).await;
        run.all_ended().await;
        for _ in 0..MAX_LOOKS {
            let look = self.look(run).await?;
            run.drained.ignored = look.ignored;
            run.all_ended().await;
            if look.elsewhere > 0 {
                // What somebody else began who went away; its answer may not have been taken.
                self.idle().await;
                self.send_kept(run).await;
                run.all_ended().await;
            } else if look.begun == 0 {
                run.drained.complete = true;
                break;
            }
        }
        Ok(())
    }

    /// Whether the manager may be asked for calls.
    pub(super) fn may_poll(&self) -> Result<(), DispatchError> {
        self.shared.memory().allows(Mode::Polled).map_err(DispatchError::Mode)
    }

    /// Sends the answers again that are kept, but for those that failed in this run.
    pub(super) async fn send_kept(&self, run: &mut Run) {
        let kept = self.shared.memory().unsent();
        for request in kept {
            if run.failed.contains(&request) {
                continue;
            }
            let Some(permit) = run.meanwhile(self.permit()).await else { return };
            run.underway.extend(self.send_again(permit, request));
        }
    }

    /// Looks once over all that is pending, and begins what is new.
    pub(super) async fn look(&self, run: &mut Run) -> Result<Look, DispatchError> {
        let (mut look, mut after) = (Look::default(), None::<String>);
        for _ in 0..MAX_PAGES {
            self.may_poll()?;
            let page = run.meanwhile(self.shared.page(after.as_deref())).await;
            let page = page.map_err(DispatchError::Pending)?;
            if page.calls.len() > MAX_PAGE_CALLS {
                return Err(DispatchError::Pages("a page has over 10,000 calls"));
            }
            for call in page.calls {
                let Some((request, work)) = self.work(call) else {
                    look.ignored += 1;
                    continue;
                };
                match run.meanwhile(self.offer(Mode::Polled, request.clone(), work)).await? {
                    Offered::Known(Known::Underway) => look.elsewhere += 1,
                    // It ended since the kept answers were sent again.
                    Offered::Known(Known::Unsent) if !run.failed.contains(&request) => {
                        look.elsewhere += 1;
                    }
                    Offered::Known(_) => {}
                    Offered::Begun(end) => {
                        look.begun += 1;
                        run.underway.push(end);
                    }
                }
            }
            match page.next {
                None => return Ok(look),
                next if next == after => return Err(DispatchError::Pages("a token repeats")),
                Some(next) if next.len() > MAX_PAGE_TOKEN_BYTES => {
                    return Err(DispatchError::Pages("a token is over 1,024 bytes"));
                }
                next => after = next,
            }
        }
        Err(DispatchError::Pages("there are more than 10,000"))
    }
}
