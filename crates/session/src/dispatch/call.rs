//! Pending calls of a manager.

use serde_json::Value;
use std::fmt;
use std::sync::Arc;

/// Limit of a request id in bytes.
const MAX_REQUEST_ID_BYTES: usize = 512;

/// Id of a call. A manager never gives two calls the same id.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(Arc<str>);

/// Request id that is empty or over 512 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid request id: expected 1 to {MAX_REQUEST_ID_BYTES} bytes")]
pub struct RequestIdError;

/// Call that waits for its answer.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingCall {
    /// Id to which the answer is submitted.
    pub request_id: RequestId,
    /// Id of the session or the thread of the call, as the manager has it.
    pub session_id: String,
    /// Kind of the call.
    pub kind: CallKind,
}

/// Kind of a pending call.
#[derive(Debug, Clone, PartialEq)]
pub enum CallKind {
    /// Tool call.
    Tool {
        /// Name of the tool with its namespace: `skills.read`.
        name: String,
        /// Arguments as the model gave them.
        arguments: Value,
    },
    /// Other request, such as an approval, with its name. A dispatcher ignores these requests.
    Other(String),
}

impl RequestId {
    /// Returns the id as the manager spelled it.
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
