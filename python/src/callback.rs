//! Calls of Python functions: own tools, stores, and the registry of a fleet.

use crate::mailbox::{Delivery, MailboxShared};
use std::sync::Arc;
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

        let answered = answered.await;
        guard.call = None;
        answered.unwrap_or_else(|_| {
            let reason = "the event loop of the function has ended".to_owned();
            Err(CallbackError::Defect(reason))
        })
    }
}

impl CallbackError {
    /// Returns the sentence.
    pub fn into_sentence(self) -> String {
        match self {
            Self::Failed(sentence) | Self::Defect(sentence) => sentence,
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
