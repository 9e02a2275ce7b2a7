//! Calls of Python functions: own tools, stores, and the registry of a fleet.

use crate::mailbox::{Delivery, MailboxShared};
use caproot_client::session::{StoreError, ToolFunctionError};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Python function, by its number, and the mailbox of its event loop.
#[derive(Debug, Clone)]
pub struct CallbackTarget {
    pub mailbox: Arc<MailboxShared>,
    pub handler: u64,
}

/// Failure of a Python function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallbackError {
    /// The function refused, with words for the caller.
    Failed(String),
    /// The function raised another exception, or its event loop is gone.
    Defect(String),
}

/// Answer of a Python function.
pub type CallbackAnswer = Result<String, CallbackError>;

/// Tells the event loop to cancel the function if the caller stops waiting.
struct CancelGuard<'a> {
    mailbox: &'a MailboxShared,
    call: Option<u64>,
}

impl CallbackTarget {
    /// Calls the function without a context of the caller, within a time limit.
    pub async fn call_within(&self, limit: Duration, payload: String) -> CallbackAnswer {
        let answered = tokio::time::timeout(limit, self.call(0, payload)).await;
        answered.unwrap_or_else(|_| {
            let seconds = limit.as_secs();
            let sentence = format!("the function did not return within {seconds} s");
            Err(CallbackError::Failed(sentence))
        })
    }

    /// Calls the function in its event loop with a JSON text, and returns its JSON text. The function
    /// is cancelled if this future is dropped.
    pub async fn call(&self, context: u64, payload: String) -> CallbackAnswer {
        let (answer, answered) = oneshot::channel();
        let call = self.mailbox.add_callback(answer);
        let mut guard = CancelGuard {
            mailbox: &self.mailbox,
            call: Some(call),
        };
        self.mailbox.push(Delivery::Callback {
            call,
            handler: self.handler,
            context,
            payload,
        });

        let outcome = answered.await;
        guard.call = None;
        outcome.unwrap_or_else(|_| {
            let reason = "the event loop of the function has ended".to_owned();
            Err(CallbackError::Defect(reason))
        })
    }
}

impl From<CallbackError> for String {
    fn from(error: CallbackError) -> Self {
        match error {
            CallbackError::Failed(sentence) | CallbackError::Defect(sentence) => sentence,
        }
    }
}

impl From<CallbackError> for StoreError {
    fn from(error: CallbackError) -> Self {
        Self(error.into())
    }
}

impl From<CallbackError> for ToolFunctionError {
    fn from(error: CallbackError) -> Self {
        match error {
            CallbackError::Failed(words) => Self::Failed(words),
            CallbackError::Defect(reason) => Self::Internal(reason),
        }
    }
}

impl Drop for CancelGuard<'_> {
    fn drop(&mut self) {
        if let Some(call) = self.call {
            self.mailbox.cancel_callback(call);
        }
    }
}
