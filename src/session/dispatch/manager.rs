//! What a dispatcher needs of the world: where pending calls come from and answers go, who answers, and
//! the thread that a turn is sent to. Objects, so that one dispatcher serves every kind.

use super::call::{PendingCall, RequestId};
use super::record::DispatchRecord;
use crate::session::{Session, ToolResult};
use futures_util::future::BoxFuture;
use serde_json::Value;

/// The most bytes of a page's token.
pub const MAX_PAGE_TOKEN_BYTES: usize = 1_024;

/// Where pending calls come from, and answers go.
pub trait CallManager: Send + Sync {
    /// A page of what is pending, of at most about `most` calls, from the beginning or from where the page
    /// before said. Calls of others may be among them. What fails is asked for again.
    fn list_pending<'a>(
        &'a self,
        after: Option<&'a str>,
        most: usize,
    ) -> BoxFuture<'a, Result<PendingPage, String>>;

    /// Sends the answer of a call.
    fn submit_result<'a>(
        &'a self,
        request: &'a RequestId,
        result: &'a ToolResult,
    ) -> BoxFuture<'a, SubmitOutcome>;

    /// Is told of each dispatch when it has ended. Does nothing, unless it is implemented.
    fn on_dispatch_ended(&self, record: &DispatchRecord) {
        let _ = record;
    }
}

/// Some of what is pending.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PendingPage {
    /// The calls.
    pub calls: Vec<PendingCall>,
    /// Where the next page begins; `None` at the end.
    pub next_token: Option<String>,
}

/// What a manager says to an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubmitOutcome {
    /// It took the answer.
    Accepted,
    /// It knows no such call, or none any more: nobody waits for the answer.
    NotFound,
    /// It has an answer of this call already, and works on it.
    InFlight,
    /// It did not take the answer, or nobody knows whether it did; and why. Sent again.
    Failed(String),
}

/// Who answers calls of tools. A [`Session`] does.
pub trait CallHandler: Send + Sync {
    /// The answer of one call.
    fn answer_call<'a>(&'a self, tool: &'a str, arguments: &'a Value) -> BoxFuture<'a, ToolResult>;
}

impl CallHandler for Session {
    fn answer_call<'a>(&'a self, tool: &'a str, arguments: &'a Value) -> BoxFuture<'a, ToolResult> {
        Box::pin(self.call(tool, arguments))
    }
}

/// The thread that turns are sent to. What fails says why, in a sentence.
pub trait AgentThread: Send + Sync {
    /// Sends a turn, whatever one is there. It may return at once, or when the turn has ended; it is
    /// never called twice for one turn.
    fn send_turn<'a>(&'a self, turn: &'a Value) -> BoxFuture<'a, Result<(), String>>;

    /// The name of the thread's status. Asked once a turn was sent; what fails is asked again.
    fn status(&self) -> BoxFuture<'_, Result<String, String>>;
}
