//! Sessions whose changes or uses are events.

use super::answer::WatchedText;
use super::event::CallEvent;
use super::server::OpenSession;
use caproot_session::{PluginWatch, Session, SessionWatch};
use futures_util::future::OptionFuture;
use futures_util::stream::{BoxStream, StreamExt as _, unfold};
use serde_json::Value;

/// Events of a session until the session is closed.
pub type SessionEvents = BoxStream<'static, CallEvent>;

/// Session whose changes are events until the session is closed.
pub struct WatchedSession {
    open: OpenSession,
    sources: SessionWatch,
    plugins: Option<PluginWatch>,
    /// Text and tools that the events renew.
    latest: Option<LatestTexts>,
}

/// Text of a budget, and tools, that the program has.
struct LatestTexts {
    budget: usize,
    text: String,
    tools: Value,
}

/// Returns the uses of a session's skills from now on.
pub fn usage_events(session: &Session) -> SessionEvents {
    let events = unfold(session.watch_usage(), |mut usage| async move {
        let used = usage.next().await?;
        Some((CallEvent::Usage { used }, usage))
    });
    events.boxed()
}

impl WatchedSession {
    /// Watches a session from now on, with its plugins if the session has them.
    pub fn new(open: &OpenSession) -> Self {
        let session = &open.session;
        Self {
            open: open.clone(),
            sources: session.watch(),
            plugins: open.has_plugins.then(|| session.watch_plugins()),
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

    /// Returns the changes of the session.
    pub fn into_events(self) -> SessionEvents {
        unfold(self, Self::next).boxed()
    }

    /// Waits for the next event. Returns `None` once the session is closed.
    async fn next(mut self) -> Option<(CallEvent, Self)> {
        let plugin_changes = OptionFuture::from(self.plugins.as_mut().map(PluginWatch::next));
        let event = tokio::select! {
            biased;
            () = self.open.closed.cancelled() => return None,
            source = self.sources.next() => {
                let session = &self.open.session;
                let (mut text, mut tools) = (None, None);
                if let Some(latest) = &mut self.latest {
                    let new = session.instruction_text(latest.budget).text;
                    text = replace_value(&mut latest.text, new);
                    tools = replace_value(&mut latest.tools, session.flat_tools());
                }
                CallEvent::from_source(session, &source, text, tools)
            }
            Some(changes) = plugin_changes => CallEvent::Plugins {
                session: self.open.session.id().to_owned(),
                changes,
            },
        };
        Some((event, self))
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
