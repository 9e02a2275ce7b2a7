//! What a dispatcher needs of the world: where pending calls come from and answers go, who answers, and
//! the thread that a turn is sent to. Objects, so that one dispatcher serves every kind.

use super::call::{Call, RequestId};
use super::record::DispatchRecord;
use crate::session::{Session, ToolResult};
use futures_util::future::BoxFuture;
use serde_json::Value;

/// The most bytes of a page's token.
pub const MAX_PAGE_TOKEN_BYTES: usize = 1_024;

/// Where pending calls come from, and answers go.
pub trait Manager: Send + Sync {
    /// A page of what is pending, of at most about `most` calls, from the beginning or from where the page
    /// before said. Calls of others may be among them. What fails is asked for again.
    fn pending<'a>(
        &'a self,
        after: Option<&'a str>,
        most: usize,
    ) -> BoxFuture<'a, Result<Page, String>>;

    /// Sends the answer of a call.
    fn submit<'a>(
        &'a self,
        request: &'a RequestId,
        result: &'a ToolResult,
    ) -> BoxFuture<'a, Submitted>;

    /// Is told of each dispatch when it has ended. Does nothing, unless it is implemented.
    fn ended(&self, record: &DispatchRecord) {
        let _ = record;
    }
}

/// Some of what is pending.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Page {
    /// The calls.
    pub calls: Vec<Call>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<String>,
}

/// What a manager says to an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Submitted {
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
pub trait Answers: Send + Sync {
    /// The answer of one call.
    fn answer<'a>(&'a self, tool: &'a str, arguments: &'a Value) -> BoxFuture<'a, ToolResult>;
}

impl Answers for Session {
    fn answer<'a>(&'a self, tool: &'a str, arguments: &'a Value) -> BoxFuture<'a, ToolResult> {
        Box::pin(self.call(tool, arguments))
    }
}

/// The thread that turns are sent to. What fails says why, in a sentence.
pub trait Thread: Send + Sync {
    /// Sends a turn, whatever one is there. It may return at once, or when the turn has ended; it is
    /// never called twice for one turn.
    fn send<'a>(&'a self, turn: &'a Value) -> BoxFuture<'a, Result<(), String>>;

    /// The name of the thread's status. Asked once a turn was sent; what fails is asked again.
    fn status(&self) -> BoxFuture<'_, Result<String, String>>;
}
