//! A server of Skills over MCP as a source of a session, on the official SDK's client: listed without
//! reading a file, each file verified when it is read. What a server says is bounded, and believed only
//! as far as it can be held to it. Leaves what a session does with it to `session`, and serving skills
//! over MCP to `mcp`.

mod address;
mod connection;
mod cursor;
mod fetch;
mod follow;
mod frontmatter;
pub mod limits;
mod listing;
mod remote_skill;

pub use connection::McpEndpoint;
pub use remote_skill::McpSkillFile;

use crate::session::source::{
    SkillSource, SourceKind, SourceSnapshot, SourceWatch, TextPage, TextPageRequest,
};
use crate::session::{ToolError, ToolErrorCode};
use fetch::VerifiedFileCache;
use follow::McpSourceState;
use futures_util::future::BoxFuture;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

/// A server, and how it is used.
#[derive(Debug, Clone)]
pub struct McpServerConfig {
    /// What it is called here, and in handles: 1 to 64 letters, digits, `.`, `_` and `-`. Two servers of
    /// a session have two names.
    pub name: String,
    /// How it is reached.
    pub endpoint: McpEndpoint,
    /// Whether it is used at all. One that is not is never connected to, and lists nothing.
    pub enabled: bool,
    /// How long reading a file may take; 10 s by default.
    pub read_timeout: Duration,
    /// How long `start` waits for the first list; 5 s by default. One that is later comes in then.
    pub start_timeout: Duration,
}

impl McpServerConfig {
    /// An enabled server, by the defaults.
    #[must_use]
    pub fn new(name: &str, way: McpEndpoint) -> Self {
        Self {
            name: name.to_owned(),
            endpoint: way,
            enabled: true,
            read_timeout: limits::READ_TIMEOUT,
            start_timeout: limits::START_TIMEOUT,
        }
    }
}

/// That a server's name is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an MCP server's name is 1 to 64 letters, digits, `.`, `_` and `-`, and not {0:?}")]
pub struct ServerNameError(String);

/// The skills of one server.
#[derive(Debug)]
pub struct McpSource {
    name: String,
    read_timeout: Duration,
    state: watch::Receiver<McpSourceState>,
    /// Asks for the list anew.
    relist: Arc<Notify>,
    /// Files that were verified last, so that a page costs no whole file.
    file_cache: Mutex<VerifiedFileCache>,
    _follow_task: Option<FollowTask>,
}

/// Ends with the source.
#[derive(Debug)]
struct FollowTask(JoinHandle<()>);

impl Drop for FollowTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[derive(Debug)]
struct McpSourceWatch(watch::Receiver<McpSourceState>);

impl McpSource {
    /// Connects, and follows what is listed for as long as this lives. Needs a tokio runtime.
    ///
    /// # Errors
    ///
    /// A name that no server can have.
    pub async fn start(server: McpServerConfig) -> Result<Self, ServerNameError> {
        if !address::is_server_name(&server.name) {
            return Err(ServerNameError(server.name));
        }
        let again = Arc::new(Notify::new());
        let (name, read_time) = (server.name.clone(), server.read_timeout);
        let (tell, mut held) =
            watch::channel(McpSourceState::without_listing("it does not answer yet"));
        let following = if server.enabled {
            let patience = server.start_timeout;
            let following = tokio::spawn(follow::follow_server(server, tell, again.clone()));
            let first = held.wait_for(McpSourceState::has_result);
            drop(tokio::time::timeout(patience, first).await);
            Some(FollowTask(following))
        } else {
            tell.send_replace(McpSourceState::disabled());
            None
        };
        let fetched = Mutex::default();
        Ok(Self {
            name,
            read_timeout: read_time,
            state: held,
            relist: again,
            file_cache: fetched,
            _follow_task: following,
        })
    }

    /// The files of a skill, by its package, as the server promises them; none of one that is not listed,
    /// or of which nothing is promised.
    #[must_use]
    pub fn files(&self, package: &str) -> Vec<McpSkillFile> {
        let held = self.state.borrow();
        held.entries.get(package).map_or_else(Vec::new, |entry| entry.files(&self.name))
    }

    async fn fetch_page(&self, wanted: &TextPageRequest) -> Result<TextPage, ToolError> {
        let held = self.state.borrow().clone();
        if let Some(why) = &held.unavailable_reason {
            let message = format!("{} cannot be used: {why}", SourceKind::Mcp.describe(&self.name));
            return Err(ToolError::from_code(ToolErrorCode::SourceUnavailable, &message));
        }
        if address::handle_server(&wanted.package) != Some(self.name.as_str()) {
            let message = "the package is not this authority's";
            return Err(ToolError::from_code(ToolErrorCode::WrongAuthority, message));
        }
        let Some(entry) = held.entries.get(wanted.package.as_str()) else {
            return Err(ToolError::from_code(
                ToolErrorCode::PackageNotFound,
                "there is no such skill now",
            ));
        };
        wanted.check_resource_in_package()?;
        let resource = match wanted.resource.as_str() {
            "" => entry.main_resource(),
            resource => resource.to_owned(),
        };
        let uri = address::handle_to_uri(&resource).ok_or_else(|| {
            ToolError::from_code(ToolErrorCode::InvalidArguments, "the resource is no handle")
        })?;
        if let Some(refusal) = entry.rejection() {
            return Err(refusal);
        }
        let begin = cursor::parse_cursor(&wanted.cursor, &uri).ok_or_else(|| {
            ToolError::from_code(ToolErrorCode::InvalidCursor, "the cursor is none of this file")
        })?;
        let file = fetch::fetch_file(&held, entry, &uri, &self.file_cache);
        let file = tokio::time::timeout(self.read_timeout, file).await.unwrap_or_else(|_| {
            let message = "the MCP server does not answer in time";
            Err(ToolError::from_code(ToolErrorCode::SourceUnavailable, message))
        });
        let file = file.inspect_err(|refusal| {
            // It may list what it serves by now, or be gone.
            if matches!(
                refusal.code(),
                ToolErrorCode::NotVerified | ToolErrorCode::SourceUnavailable
            ) {
                self.relist.notify_one();
            }
        })?;
        begin.cut_page(&uri, resource, &file, wanted.max_bytes)
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

    fn snapshot(&self) -> SourceSnapshot {
        let held = self.state.borrow();
        SourceSnapshot {
            listing: held.listing.clone(),
            // One that is switched off has nothing to warn of.
            unavailable_reason: held.unavailable_reason.clone().filter(|_| !held.disabled),
        }
    }

    fn watch(&self) -> Option<Box<dyn SourceWatch>> {
        let mut held = self.state.clone();
        held.mark_unchanged();
        Some(Box::new(McpSourceWatch(held)))
    }

    fn read_timeout(&self) -> Duration {
        self.read_timeout
    }

    fn read_page<'a>(
        &'a self,
        wanted: &'a TextPageRequest,
    ) -> BoxFuture<'a, Result<TextPage, ToolError>> {
        Box::pin(self.fetch_page(wanted))
    }
}

impl SourceWatch for McpSourceWatch {
    fn changed(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if self.0.changed().await.is_err() {
                // Nobody follows any more.
                std::future::pending::<()>().await;
            }
        })
    }
}
