//! Interfaces that the program implements: the manager of pending calls, the handler of calls, and
//! the thread of turns.

use super::call::{PendingCall, RequestId};
use super::record::DispatchRecord;
use crate::{DEFAULT_RESULT_BYTES, Session, ToolResult};
use futures_util::future::BoxFuture;
use serde_json::Value;

/// Limit of a page token in bytes.
pub const MAX_PAGE_TOKEN_BYTES: usize = 1_024;

/// Manager of pending calls.
pub trait CallManager: Send + Sync {
    /// Returns a page of about `limit` pending calls, from the beginning or from a token on. Calls
    /// of other sessions are ignored. A failed call is retried.
    fn list_pending<'a>(
        &'a self,
        token: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<PendingPage, String>>;

    /// Submits the answer of a call.
    fn submit_result<'a>(
        &'a self,
        request_id: &'a RequestId,
        result: &'a ToolResult,
    ) -> BoxFuture<'a, SubmitOutcome>;

    /// Receives the record of each dispatch. Does nothing by default.
    fn on_dispatch_ended(&self, _record: &DispatchRecord) {}
}

/// Page of pending calls.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PendingPage {
    /// Calls of the page.
    pub calls: Vec<PendingCall>,
    /// Token of the next page; `None` at the end.
    pub next_token: Option<String>,
    /// Number of pending calls that cannot be read, or that are too many for one page.
    pub unread: usize,
}

/// Outcome of a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubmitOutcome {
    /// The manager took the answer.
    Accepted,
    /// The manager does not know the call, or does not wait for its answer any more.
    NotFound,
    /// The manager has an answer of the call already.
    AlreadyAnswered,
    /// The manager did not take the answer, or the outcome is unknown; with the reason. The answer
    /// is submitted again.
    Failed(String),
}

/// Handler of tool calls, such as a [`Session`].
pub trait CallHandler: Send + Sync {
    /// Returns the answer of a call.
    fn answer_call<'a>(&'a self, tool: &'a str, arguments: &'a Value) -> BoxFuture<'a, ToolResult>;

    /// Returns the limit of an answer's JSON in bytes; [`DEFAULT_RESULT_BYTES`] by default.
    fn max_result_bytes(&self) -> usize {
        DEFAULT_RESULT_BYTES
    }
}

impl CallHandler for Session {
    fn answer_call<'a>(&'a self, tool: &'a str, arguments: &'a Value) -> BoxFuture<'a, ToolResult> {
        Box::pin(self.call(tool, arguments))
    }

    fn max_result_bytes(&self) -> usize {
        self.inner.options.result_bytes
    }
}

/// Thread of an agent, to which turns are sent. Errors are sentences.
pub trait AgentThread: Send + Sync {
    /// Sends a turn. May return at once or at the end of the turn. Called once for each turn.
    fn send_turn<'a>(&'a self, turn: &'a Value) -> BoxFuture<'a, Result<(), String>>;

    /// Returns the name of the thread's status. Called after a turn was sent; a failed call is
    /// retried.
    fn status(&self) -> BoxFuture<'_, Result<String, String>>;
}
