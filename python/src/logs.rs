//! Log events of the client package, on their way to Python's `logging`.

use crate::mailbox::MailboxShared;
use crate::runtime;
use caproot_core::sync::Mutex;
use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::mem;
use std::sync::{Arc, Weak};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt as _};

/// Limit of the waiting events of a process.
const MAX_WAITING: usize = 1_024;

/// Event for `logging`.
#[derive(Debug)]
pub struct LogRecord {
    /// Level as a number of `logging`.
    pub level: u8,
    pub message: String,
}

/// Waiting events of a process.
#[derive(Debug, Default)]
pub struct LogQueue {
    state: Mutex<LogState>,
}

#[derive(Debug, Default)]
struct LogState {
    waiting: VecDeque<LogRecord>,
    /// How many events had no room.
    omitted: usize,
    /// Mailboxes of the process; the first that still exists is woken.
    mailboxes: Vec<Weak<MailboxShared>>,
}

/// Layer that queues warnings and errors, and that lets the spans of [`crate::origin`] through.
struct LogLayer;

/// Text of an event: its message and then its fields.
#[derive(Default)]
struct EventText(String);

/// Makes the layer the subscriber of this module.
pub fn install() {
    let subscriber = tracing_subscriber::registry().with(LogLayer);
    // Fails only if the module is imported twice in a process.
    drop(tracing::subscriber::set_global_default(subscriber));
}

impl LogQueue {
    /// Adds a mailbox that takes events.
    pub fn add_mailbox(&self, mailbox: &Arc<MailboxShared>) {
        let mut state = self.state.lock();
        state.mailboxes.retain(|other| other.strong_count() > 0);
        state.mailboxes.push(Arc::downgrade(mailbox));
    }

    /// Takes the waiting events.
    pub fn take(&self) -> Vec<LogRecord> {
        let mut state = self.state.lock();
        let omitted = mem::take(&mut state.omitted);
        let mut records: Vec<_> = state.waiting.drain(..).collect();
        if omitted > 0 {
            records.push(LogRecord {
                level: 30,
                message: format!("{omitted} more log events had no room"),
            });
        }
        records
    }

    fn push(&self, record: LogRecord) {
        let mailbox = {
            let mut state = self.state.lock();
            if state.waiting.len() >= MAX_WAITING {
                state.omitted += 1;
                return;
            }
            state.waiting.push_back(record);
            state.mailboxes.iter().find_map(Weak::upgrade)
        };
        if let Some(mailbox) = mailbox {
            mailbox.wake();
        }
    }
}

impl<S: Subscriber> Layer<S> for LogLayer {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        if metadata.is_span() {
            metadata.target() == crate::origin::TARGET
        } else {
            *metadata.level() <= Level::WARN
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let Some(logs) = runtime::started_logs() else {
            return;
        };
        let mut text = EventText::default();
        event.record(&mut text);
        let level = if *event.metadata().level() == Level::ERROR {
            40
        } else {
            30
        };
        logs.push(LogRecord {
            level,
            message: text.0,
        });
    }
}

impl Visit for EventText {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string never fails.
        if field.name() == "message" {
            self.0.insert_str(0, &format!("{value:?}"));
        } else {
            let _ = write!(self.0, " {}={value:?}", field.name());
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.0.insert_str(0, value);
        } else {
            let _ = write!(self.0, " {}={value:?}", field.name());
        }
    }
}
