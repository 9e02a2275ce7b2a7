//! A server of Skills over MCP as a source of a session, on the official SDK's client: listed without
//! reading a file, each file verified when it is read. What a server says is bounded, and believed only
//! as far as it can be held to it. Leaves what a session does with it to `session`, and serving skills
//! over MCP to `mcp`.

mod address;
mod connection;
mod cursor;
mod entry;
mod fetch;
mod follow;
mod frontmatter;
pub mod limits;
mod listing;

pub use connection::Way;
pub use entry::Promised;

use crate::session::source::{Listed, SkillSource, SourceKind, SourceWatch, TextPage, Wanted};
use crate::session::{Code, Refusal};
use fetch::Fetched;
use follow::Held;
use futures_util::future::BoxFuture;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

/// A server, and how it is used.
#[derive(Debug, Clone)]
pub struct Server {
    /// What it is called here, and in handles: 1 to 64 letters, digits, `.`, `_` and `-`. Two servers of
    /// a session have two names.
    pub name: String,
    /// How it is reached.
    pub way: Way,
    /// Whether it is used at all. One that is not is never connected to, and lists nothing.
    pub enabled: bool,
    /// How long reading a file may take; 10 s by default.
    pub read_time: Duration,
    /// How long `start` waits for the first list; 5 s by default. One that is later comes in then.
    pub patience: Duration,
}

impl Server {
    /// An enabled server, by the defaults.
    #[must_use]
    pub fn new(name: &str, way: Way) -> Self {
        Self {
            name: name.to_owned(),
            way,
            enabled: true,
            read_time: limits::READ_TIME,
            patience: limits::PATIENCE,
        }
    }
}

/// That a server's name is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an MCP server's name is 1 to 64 letters, digits, `.`, `_` and `-`, and not {0:?}")]
pub struct NameError(String);

/// The skills of one server.
#[derive(Debug)]
pub struct McpSource {
    name: String,
    read_time: Duration,
    held: watch::Receiver<Held>,
    /// Asks for the list anew.
    again: Arc<Notify>,
    /// Files that were verified last, so that a page costs no whole file.
    fetched: Mutex<Fetched>,
    _following: Option<Following>,
}

/// Ends with the source.
#[derive(Debug)]
struct Following(JoinHandle<()>);

impl Drop for Following {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[derive(Debug)]
struct HeldWatch(watch::Receiver<Held>);

impl McpSource {
    /// Connects, and follows what is listed for as long as this lives. Needs a tokio runtime.
    ///
    /// # Errors
    ///
    /// A name that no server can have.
    pub async fn start(server: Server) -> Result<Self, NameError> {
        if !address::is_server_name(&server.name) {
            return Err(NameError(server.name));
        }
        let again = Arc::new(Notify::new());
        let (name, read_time) = (server.name.clone(), server.read_time);
        let (tell, mut held) = watch::channel(Held::unlisted("it does not answer yet"));
        let following = if server.enabled {
            let patience = server.patience;
            let following = tokio::spawn(follow::follow(server, tell, again.clone()));
            let first = held.wait_for(Held::is_told);
            drop(tokio::time::timeout(patience, first).await);
            Some(Following(following))
        } else {
            tell.send_replace(Held::off());
            None
        };
        let fetched = Mutex::default();
        Ok(Self { name, read_time, held, again, fetched, _following: following })
    }

    /// The files of a skill, by its package, as the server promises them; none of one that is not listed,
    /// or of which nothing is promised.
    #[must_use]
    pub fn files(&self, package: &str) -> Vec<Promised> {
        let held = self.held.borrow();
        held.entries.get(package).map_or_else(Vec::new, |entry| entry.files(&self.name))
    }

    async fn page(&self, wanted: &Wanted) -> Result<TextPage, Refusal> {
        let held = self.held.borrow().clone();
        if let Some(why) = &held.unavailable {
            let message = format!("{} cannot be used: {why}", SourceKind::Mcp.phrase(&self.name));
            return Err(Refusal::said(Code::SourceUnavailable, &message));
        }
        if address::server_of(&wanted.package) != Some(self.name.as_str()) {
            let message = "the package is not this authority's";
            return Err(Refusal::said(Code::WrongAuthority, message));
        }
        let Some(entry) = held.entries.get(wanted.package.as_str()) else {
            return Err(Refusal::said(Code::PackageNotFound, "there is no such skill now"));
        };
        wanted.check_inside()?;
        let resource = match wanted.resource.as_str() {
            "" => entry.main_resource(),
            resource => resource.to_owned(),
        };
        let uri = address::uri(&resource)
            .ok_or_else(|| Refusal::said(Code::InvalidArguments, "the resource is no handle"))?;
        if let Some(refusal) = entry.rejected() {
            return Err(refusal);
        }
        let begin = cursor::parse(&wanted.cursor, &uri)
            .ok_or_else(|| Refusal::said(Code::InvalidCursor, "the cursor is none of this file"))?;
        let file = fetch::file(&held, entry, &uri, &self.fetched);
        let file = tokio::time::timeout(self.read_time, file).await.unwrap_or_else(|_| {
            let message = "the MCP server does not answer in time";
            Err(Refusal::said(Code::SourceUnavailable, message))
        });
        let file = file.inspect_err(|refusal| {
            // It may list what it serves by now, or be gone.
            if matches!(refusal.code(), Code::NotVerified | Code::SourceUnavailable) {
                self.again.notify_one();
            }
        })?;
        begin.page(&uri, resource, &file, wanted.max_bytes)
    }
}

impl SkillSource for McpSource {
    fn kind(&self) -> SourceKind {
        SourceKind::Mcp
    }

    fn id(&self) -> &str {
        &self.name
    }

    fn authorities(&self) -> Vec<String> {
        vec![self.name.clone()]
    }

    fn listed(&self) -> Listed {
        let held = self.held.borrow();
        Listed {
            listing: held.listing.clone(),
            // One that is switched off has nothing to warn of.
            unavailable: held.unavailable.clone().filter(|_| !held.off),
        }
    }

    fn watch(&self) -> Option<Box<dyn SourceWatch>> {
        let mut held = self.held.clone();
        held.mark_unchanged();
        Some(Box::new(HeldWatch(held)))
    }

    fn read_time(&self) -> Duration {
        self.read_time
    }

    fn read<'a>(&'a self, wanted: &'a Wanted) -> BoxFuture<'a, Result<TextPage, Refusal>> {
        Box::pin(self.page(wanted))
    }
}

impl SourceWatch for HeldWatch {
    fn changed(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if self.0.changed().await.is_err() {
                // Nobody follows any more.
                std::future::pending::<()>().await;
            }
        })
    }
}
