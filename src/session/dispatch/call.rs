//! A pending call as a manager hands it out.

use serde_json::Value;
use std::fmt;
use std::sync::Arc;

/// The most bytes of a request id.
pub const MAX_REQUEST_ID_BYTES: usize = 512;

/// What a manager knows a call by. Of one manager no two calls have the same, ever.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(Arc<str>);

/// A request id is empty, or over [`MAX_REQUEST_ID_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a request id is 1 to {MAX_REQUEST_ID_BYTES} bytes")]
pub struct RequestIdError;

/// A call that waits for its answer.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingCall {
    /// What its answer is sent to.
    pub request_id: RequestId,
    /// Whose it is: the id of a session, or of a thread, as the manager has it.
    pub session_id: String,
    /// What is asked.
    pub kind: CallKind,
}

/// What a pending call asks.
#[derive(Debug, Clone, PartialEq)]
pub enum CallKind {
    /// To call a tool.
    Tool {
        /// With its namespace: `skills.read`.
        name: String,
        /// As the model gave them.
        arguments: Value,
    },
    /// Something else, such as an approval, by its name. It is nothing that a dispatcher answers.
    Other(String),
}

impl RequestId {
    /// The id as the manager spelled it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<&str> for RequestId {
    type Error = RequestIdError;

    fn try_from(text: &str) -> Result<Self, RequestIdError> {
        let fits = !text.is_empty() && text.len() <= MAX_REQUEST_ID_BYTES;
        fits.then(|| Self(text.into())).ok_or(RequestIdError)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
