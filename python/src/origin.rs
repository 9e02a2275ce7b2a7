//! Origin of a tool call: the mailbox and the context of the Python code that called. A tool runs on
//! a task of its own, which finds the origin through the span of the call.

use crate::mailbox::MailboxShared;
use std::sync::Arc;
use tracing::{Span, info_span};
use tracing_subscriber::Registry;
use tracing_subscriber::registry::LookupSpan as _;

/// Target of the spans that have an origin.
pub const TARGET: &str = "caproot_python";

/// Caller of a tool.
#[derive(Debug, Clone)]
pub struct CallOrigin {
    /// Mailbox of the caller's event loop.
    pub mailbox: Arc<MailboxShared>,
    /// Number of the caller's context variables; 0 without a caller in Python.
    pub context: u64,
}

impl CallOrigin {
    /// Returns a span with this origin.
    pub fn to_span(&self) -> Span {
        let span = info_span!(target: TARGET, "call");
        span.with_subscriber(|(id, dispatch)| {
            let registry = dispatch.downcast_ref::<Registry>();
            if let Some(span) = registry.and_then(|registry| registry.span(id)) {
                span.extensions_mut().insert(self.clone());
            }
        });
        span
    }

    /// Returns the origin of the current call.
    pub fn current() -> Option<Self> {
        let found = Span::current().with_subscriber(|(id, dispatch)| {
            let span = dispatch.downcast_ref::<Registry>()?.span(id)?;
            span.scope()
                .find_map(|span| span.extensions().get::<Self>().cloned())
        });
        found.flatten()
    }
}
