//! Sessions whose changes or uses are events.

use super::event::CallEvent;
use super::server::OpenSession;
use caproot_client::session::{PluginWatch, SessionWatch, UsageWatch};
use std::future::pending;

/// Session whose changes are events until the session is closed.
pub struct WatchedSession {
    open: OpenSession,
    sources: Option<SessionWatch>,
    plugins: Option<PluginWatch>,
    usage: Option<UsageWatch>,
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
            sources: Some(session.watch()),
            plugins: open.has_plugins.then(|| session.watch_plugins()),
            usage: None,
            text: None,
        }
    }

    /// Watches the uses of a session's skills from now on.
    pub fn of_usage(open: &OpenSession) -> Self {
        Self {
            open: open.clone(),
            sources: None,
            plugins: None,
            usage: Some(open.session.watch_usage()),
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
