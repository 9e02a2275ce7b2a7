//! Sessions whose changes are events.

use super::event::CallEvent;
use super::server::OpenSession;
use caproot_client::session::{PluginWatch, SessionWatch};
use std::future::pending;

/// Session whose changes are events until the session is closed.
pub struct WatchedSession {
    open: OpenSession,
    sources: SessionWatch,
    plugins: Option<PluginWatch>,
    /// Text that the events renew.
    text: Option<LatestText>,
}

/// Text of a budget that the program has.
struct LatestText {
    budget: usize,
    text: String,
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
            sources: session.watch(),
            plugins: open.has_plugins.then(|| session.watch_plugins()),
            text: None,
        }
    }

    /// Also renews a text of at most `budget` bytes. Returns the text of now.
    pub fn follow_text(&mut self, budget: usize) -> String {
        let text = self.open.session.instruction_text(budget).text;
        self.text = Some(LatestText {
            budget,
            text: text.clone(),
        });
        text
    }

    /// Waits for the next event. Returns `None` once the session is closed.
    pub async fn next(mut self) -> Option<WatchStep> {
        let plugin_changes = async {
            match &mut self.plugins {
                Some(plugins) => plugins.next().await,
                None => pending().await,
            }
        };

        let event = tokio::select! {
            () = self.open.closed.cancelled() => return None,
            source = self.sources.next() => {
                let text = self.text.as_mut().and_then(|latest| {
                    let text = self.open.session.instruction_text(latest.budget).text;
                    latest.replace(text)
                });
                CallEvent::from_source(&self.open.session, &source, text)
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

impl LatestText {
    /// Stores a text. Returns the text if it is new.
    fn replace(&mut self, text: String) -> Option<String> {
        if text == self.text {
            return None;
        }
        self.text.clone_from(&text);
        Some(text)
    }
}
