//! Sessions whose changes or uses are events.

use super::answer::WatchedText;
use super::event::CallEvent;
use super::server::OpenSession;
use caproot_session::{PluginWatch, SessionWatch, UsageWatch};
use serde_json::Value;
use std::future::pending;

/// Session whose changes are events until the session is closed.
pub struct WatchedSession {
    open: OpenSession,
    sources: Option<SessionWatch>,
    plugins: Option<PluginWatch>,
    usage: Option<UsageWatch>,
    /// Text and tools that the events renew.
    latest: Option<LatestTexts>,
}

/// Text of a budget, and tools, that the program has.
struct LatestTexts {
    budget: usize,
    text: String,
    tools: Value,
}

/// Next event of a watched session.
pub struct WatchStep {
    pub watched: WatchedSession,
    pub event: CallEvent,
}

impl WatchedSession {
    /// Watches a session from now on, with its plugins if the session has them.
    pub fn new(open: &OpenSession) -> Self {
        let session = &open.session;
        Self {
            open: open.clone(),
            sources: Some(session.watch()),
            plugins: open.has_plugins.then(|| session.watch_plugins()),
            usage: None,
            latest: None,
        }
    }

    /// Watches the uses of a session's skills from now on.
    pub fn of_usage(open: &OpenSession) -> Self {
        Self {
            open: open.clone(),
            sources: None,
            plugins: None,
            usage: Some(open.session.watch_usage()),
            latest: None,
        }
    }

    /// Also renews the tools and a text of at most `budget` bytes. Returns those of now.
    pub fn follow_texts(&mut self, budget: usize) -> WatchedText {
        let session = &self.open.session;
        let now = WatchedText {
            session: session.id().to_owned(),
            text: session.instruction_text(budget).text,
            tools: session.flat_tools(),
        };
        self.latest = Some(LatestTexts {
            budget,
            text: now.text.clone(),
            tools: now.tools.clone(),
        });
        now
    }

    /// Waits for the next event. Returns `None` once the session is closed.
    pub async fn next(mut self) -> Option<WatchStep> {
        let changed_source = async {
            match &mut self.sources {
                Some(sources) => sources.next().await,
                None => pending().await,
            }
        };
        let plugin_changes = async {
            match &mut self.plugins {
                Some(plugins) => plugins.next().await,
                None => pending().await,
            }
        };
        let used = async {
            match &mut self.usage {
                Some(usage) => usage.next().await,
                None => pending().await,
            }
        };

        let event = tokio::select! {
            // The uses before the end of a session are events, too.
            biased;
            used = used => CallEvent::Usage { used: used? },
            () = self.open.closed.cancelled() => return None,
            source = changed_source => {
                let session = &self.open.session;
                let (mut text, mut tools) = (None, None);
                if let Some(latest) = &mut self.latest {
                    let new = session.instruction_text(latest.budget).text;
                    text = replace_value(&mut latest.text, new);
                    tools = replace_value(&mut latest.tools, session.flat_tools());
                }
                CallEvent::from_source(session, &source, text, tools)
            }
            changes = plugin_changes => CallEvent::Plugins {
                session: self.open.session.id().to_owned(),
                changes,
            },
        };
        Some(WatchStep {
            watched: self,
            event,
        })
    }
}

/// Stores a value. Returns the value if it is new.
fn replace_value<T: Clone + PartialEq>(latest: &mut T, value: T) -> Option<T> {
    if value == *latest {
        return None;
    }
    latest.clone_from(&value);
    Some(value)
}
