//! What is told of dispatches: a record of each, and the sums of a drain.

use super::call::RequestId;
use super::manager::SubmitOutcome;
use std::time::Duration;

/// How many records of failed dispatches a [`Drained`] holds.
pub const MAX_FAILURES: usize = 100;

/// What came of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DispatchRecord {
    /// The call's id.
    pub request_id: RequestId,
    /// The tool that was called; a name over 256 bytes is cut.
    pub tool: String,
    /// Where the answer came from.
    pub origin: AnswerOrigin,
    /// Whether the answer says that the tool did what was asked.
    pub success: bool,
    /// What the manager said to the last attempt.
    pub outcome: SubmitOutcome,
    /// How often the answer was sent.
    pub attempts: usize,
    /// How long the tool took; zero where an earlier answer was sent again.
    pub answer_duration: Duration,
    /// How long sending took, with the waits between attempts.
    pub submit_duration: Duration,
    /// The answer's bytes.
    pub bytes: usize,
}

/// Where an answer came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerOrigin {
    /// The tool gave it.
    Fresh,
    /// The tool gave it before, and the manager did not take it then.
    Resent,
    /// The tool was stopped at the bound on time; the answer says so.
    TimedOut,
    /// The tool panicked; the answer says so.
    Panicked,
    /// The tool's answer was larger than an answer may be; the one that was sent says so.
    TooLarge,
}

/// What a drain did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DrainSummary {
    /// How many answers the manager took.
    pub accepted: usize,
    /// How many answers nobody waited for.
    pub not_found: usize,
    /// How many calls had an answer already.
    pub in_flight: usize,
    /// How many answers the manager did not take. They are kept, and sent again by the next drain.
    pub failed: usize,
    /// The first [`MAX_FAILURES`] of these.
    pub failures: Vec<DispatchRecord>,
    /// Calls of others in the last look.
    pub ignored: usize,
    /// Whether the last look found nothing that was not dealt with; `false` where new calls came faster
    /// than a drain looks.
    pub complete: bool,
}

impl DispatchRecord {
    /// Whether the call is done for good.
    #[must_use]
    pub fn is_done(&self) -> bool {
        !matches!(self.outcome, SubmitOutcome::Failed(_))
    }
}

impl DrainSummary {
    pub(super) fn add_record(&mut self, record: DispatchRecord) {
        match record.outcome {
            SubmitOutcome::Accepted => self.accepted += 1,
            SubmitOutcome::NotFound => self.not_found += 1,
            SubmitOutcome::InFlight => self.in_flight += 1,
            SubmitOutcome::Failed(_) => {
                self.failed += 1;
                if self.failures.len() < MAX_FAILURES {
                    self.failures.push(record);
                }
            }
        }
    }

    /// How many dispatches ended.
    #[must_use]
    pub fn total(&self) -> usize {
        self.accepted + self.not_found + self.in_flight + self.failed
    }
}
