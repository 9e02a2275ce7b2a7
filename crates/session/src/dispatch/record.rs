//! Records of dispatches, and the summary of a drain.

use super::call::RequestId;
use super::manager::SubmitOutcome;
use std::time::Duration;

/// Records of failed dispatches in a [`DrainSummary`].
const MAX_FAILURES: usize = 100;

/// Record of one dispatched call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DispatchRecord {
    /// Id of the call.
    pub request_id: RequestId,
    /// Name of the tool; a name over 256 bytes is truncated.
    pub tool: String,
    /// Origin of the answer.
    pub origin: AnswerOrigin,
    /// Whether the answer is a success.
    pub success: bool,
    /// Outcome of the last submission.
    pub outcome: SubmitOutcome,
    /// Number of submissions.
    pub attempts: usize,
    /// Duration of the tool; zero if an earlier answer was submitted again.
    pub answer_duration: Duration,
    /// Duration of all submissions, with the delays between attempts.
    pub submit_duration: Duration,
    /// Bytes of the answer.
    pub bytes: usize,
}

/// Origin of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerOrigin {
    /// The tool returned the answer.
    Fresh,
    /// The tool returned the answer before, and the manager did not take it then.
    Resent,
    /// The tool exceeded its time limit; the answer is an error.
    TimedOut,
    /// The tool panicked; the answer is an error.
    Panicked,
    /// The answer of the tool exceeded the size limit and was replaced by an error.
    TooLarge,
}

/// Summary of a drain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DrainSummary {
    /// Answers that the manager took.
    pub accepted: usize,
    /// Answers of calls that the manager does not know any more.
    pub not_found: usize,
    /// Calls that had an answer already.
    pub already_answered: usize,
    /// Answers that the manager did not take. They are kept, and the next drain submits them again.
    pub failed: usize,
    /// First 100 records of the failed answers.
    pub failures: Vec<DispatchRecord>,
    /// Calls of other sessions in the last poll.
    pub ignored: usize,
    /// Calls of the last poll that could not be read.
    pub unread: usize,
    /// Whether the last poll found no new call; `false` if new calls arrive faster than the drain
    /// polls, or a call could not be read.
    pub complete: bool,
}

impl DispatchRecord {
    /// Returns whether the call is done.
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
            SubmitOutcome::AlreadyAnswered => self.already_answered += 1,
            SubmitOutcome::Failed(_) => {
                self.failed += 1;
                if self.failures.len() < MAX_FAILURES {
                    self.failures.push(record);
                }
            }
        }
    }

    /// Returns how many dispatches ended.
    #[must_use]
    pub fn total(&self) -> usize {
        self.accepted + self.not_found + self.already_answered + self.failed
    }
}
