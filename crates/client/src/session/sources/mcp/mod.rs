//! MCP server with skills as a source of a session, on the client of the official SDK. The list is
//! fetched without the files, and each file is verified when it is read. All responses of a server
//! are [limited](limits).
//!
//! ```
//! use caproot_client::Fleet;
//! use caproot_client::session::sources::mcp::{McpEndpoint, McpServerConfig, McpSource};
//! use caproot_client::session::{Session, SessionOptions};
//! use serde_json::json;
//! use std::sync::Arc;
//! # use caproot_client::Client;
//! # use caproot::mcp::{ConnectFailure, HttpAllowlist, HttpListener, ServedDaemon};
//! # use caproot::mcp::{ServerTransport, SkillSubscription, serve};
//! # mod demo { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/support/demo.rs")); }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let endpoint = demo::start_demo_daemon().await;
//! # let timeout = std::time::Duration::from_secs(30);
//! # let mut client = Client::connect(&endpoint, &Default::default(), timeout).await?;
//! # let listed = client.list_roots().await?.roots.into_iter();
//! # let roots = listed.filter_map(|root| root.selected_capability_root).collect();
//! # let feed = SkillSubscription { roots, ..SkillSubscription::default() };
//! # let listener = HttpListener::bind("127.0.0.1:0".parse()?)?;
//! # let url = listener.url()?;
//! # let transport = ServerTransport::Http(listener, HttpAllowlist::default());
//! # let connect = async move || {
//! #     Ok::<_, ConnectFailure<caproot_client::CallError>>(ServedDaemon {
//! #         client: client.clone(),
//! #         subscription: feed.clone(),
//! #         tool_session: None,
//! #     })
//! # };
//! # tokio::spawn(async move { serve(connect, transport, None, drop).await });
//! // `url` is the server's, such as `http://127.0.0.1:7421/mcp`.
//! let server = McpServerConfig::new("docs", McpEndpoint::http(&url));
//! let source = McpSource::start(server).await?;
//! let options = SessionOptions::default();
//! let no_executors = Fleet::from_executors([]);
//! let session =
//!     Session::start_with(&no_executors, Vec::new(), vec![Arc::new(source)], &options).await?;
//! let listed = session.call("skills.list", &json!({})).await;
//! assert!(listed.json.contains("mcp+skill://docs/"));
//! # Ok(())
//! # }
//! ```
//!
//! # Verification
//!
//! A read fetches the whole file. The file is returned only if its size and SHA-256 match the list, and
//! the frontmatter of a SKILL.md must match, too. Otherwise the read ends with
//! [`ToolErrorCode::NotVerified`], and the source requests the list again. If a SKILL.md was rejected,
//! no file of the skill is read until the server lists the skill differently. A server that declares
//! no digests (`dynamic`) causes a warning. Redirects are not followed.
//!
//! The list is requested at the start, after a reported change, and every five minutes. These skills
//! are omitted with a warning:
//!
//! - the URI is not a SKILL.md in its only spelling. The scheme can be any but `file`, `ftp`, `http`,
//!   `https`, `ws` and `wss`;
//! - a file lies elsewhere, such as `file:`, `..` or in another skill;
//! - a file is listed twice or has no SHA-256.
//!
//! # Servers without the extension
//!
//! If a server does not declare the skills extension, the source reads the resource
//! `skill://index.json` of earlier drafts. An entry has a `name`, a `description`, the `url` of a
//! SKILL.md, and perhaps its `digest`; entries of another `type` than `skill-md` are omitted with a
//! warning. The name and the description must match the SKILL.md. A server with neither has no
//! skills, and a warning says so.

mod address;
mod connection;
mod fetch;
mod follow;
mod frontmatter;
mod index;
pub mod limits;
mod listing;
mod remote_skill;
mod server_list;
mod token;

pub use connection::McpEndpoint;
pub use remote_skill::McpSkillFile;
/// The MCP library, to make a connection of [`McpEndpoint::Connected`].
pub use rmcp;
pub use server_list::McpServerList;
pub use token::{McpToken, TokenCallback};

use super::verified_file::{self, VerifiedFile};
use super::{
    PackageFile, PackageFilesPage, PackageFilesRequest, SkillListing, SkillSource, SourceKind,
    SourceSnapshot, SourceWatch, TextPage, TextPageRequest, invalid_response_error,
    unavailable_error, unlisted_package_error, wrong_authority_error,
};
use crate::session::request_metrics::RequestCounter;
use crate::session::skill_source::unlisted_files_error;
use crate::session::{RequestMetrics, ToolError, ToolErrorCode};
use caproot_core::sync::Mutex;
use fetch::VerifiedFileCache;
use futures_util::future::BoxFuture;
use listing::{ListedSkills, RemoteSkills, is_same_entries};
use remote_skill::RemoteSkill;
use rmcp::RoleClient;
use rmcp::service::Peer;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

/// Configuration of an MCP server.
#[derive(Debug, Clone)]
pub struct McpServerConfig {
    /// Name of the server, also in handles: 1 to 64 letters, digits, `.`, `_` and `-`. The servers
    /// of a session have different names.
    pub name: String,
    /// Endpoint of the server.
    pub endpoint: McpEndpoint,
    /// Whether the server is used. caproot never connects to a disabled server, and lists none of
    /// its skills.
    pub enabled: bool,
    /// Time limit of a read; 10 s by default.
    pub read_timeout: Duration,
    /// How long `start` waits for the first list; 5 s by default. A later list is used when it
    /// arrives.
    pub start_timeout: Duration,
}

impl McpServerConfig {
    /// Returns an enabled server with the default limits.
    #[must_use]
    pub fn new(name: &str, endpoint: McpEndpoint) -> Self {
        Self {
            name: name.to_owned(),
            endpoint,
            enabled: true,
            read_timeout: limits::READ_TIMEOUT,
            start_timeout: limits::START_TIMEOUT,
        }
    }
}

/// Invalid name of a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid name of an MCP server {0:?}: expected 1 to 64 letters, digits, `.`, `_` and `-`")]
pub struct ServerNameError(String);

/// Skills of one MCP server.
#[derive(Debug)]
pub struct McpSource {
    name: String,
    read_timeout: Duration,
    state: watch::Receiver<McpSourceState>,
    /// Notified to request a new list.
    relist: Arc<Notify>,
    requests: Arc<RequestCounter>,
    /// Latest verified files, so that a page does not need a fetch of the whole file.
    file_cache: Mutex<VerifiedFileCache>,
    _follow_task: Option<AbortOnDropHandle<()>>,
}

/// Latest state of a server.
#[derive(Debug, Clone)]
struct McpSourceState {
    listing: Arc<SkillListing>,
    entries: Arc<RemoteSkills>,
    /// Reason if the server is unavailable; the end of a sentence.
    unavailable_reason: Option<String>,
    /// Whether the server is disabled.
    disabled: bool,
    peer: Option<Peer<RoleClient>>,
    has_result: bool,
}

impl McpSourceState {
    fn without_listing(reason: &str) -> Self {
        Self {
            listing: Arc::default(),
            entries: Arc::default(),
            unavailable_reason: Some(reason.to_owned()),
            disabled: false,
            peer: None,
            has_result: false,
        }
    }

    fn disabled() -> Self {
        Self {
            disabled: true,
            ..Self::without_listing("it is disabled")
        }
    }

    fn to_snapshot(&self) -> SourceSnapshot {
        SourceSnapshot {
            listing: self.listing.clone(),
            // A disabled server is no warning.
            unavailable_reason: self.unavailable_reason.clone().filter(|_| !self.disabled),
        }
    }

    /// Stores a list of the server. Returns whether the snapshot changed.
    fn store_list(&mut self, listed: ListedSkills, peer: &Peer<RoleClient>) -> bool {
        let is_same =
            *self.listing == listed.listing && is_same_entries(&self.entries, &listed.entries);
        let is_changed = !is_same || self.unavailable_reason.is_some();

        if !is_same {
            self.listing = Arc::new(listed.listing);
            self.entries = Arc::new(listed.entries);
        }
        self.unavailable_reason = None;
        self.peer = Some(peer.clone());
        self.has_result = true;
        is_changed
    }

    /// Returns whether there was a list or an error.
    fn has_result(&self) -> bool {
        self.has_result
    }
}

#[derive(Debug)]
struct McpSourceWatch(watch::Receiver<McpSourceState>);

impl McpSource {
    /// Connects to a server and follows its list until the source is dropped. Needs a tokio
    /// runtime.
    ///
    /// # Errors
    ///
    /// An invalid name.
    pub async fn start(server: McpServerConfig) -> Result<Self, ServerNameError> {
        if !address::is_server_name(&server.name) {
            return Err(ServerNameError(server.name));
        }

        let name = server.name.clone();
        let read_timeout = server.read_timeout;
        let start_timeout = server.start_timeout;
        let relist = Arc::new(Notify::new());
        let requests = Arc::new(RequestCounter::default());
        let (sender, mut state) =
            watch::channel(McpSourceState::without_listing("it does not answer yet"));

        let follow_task = if server.enabled {
            let follow = follow::follow_server(server, sender, relist.clone(), requests.clone());
            let task = AbortOnDropHandle::new(tokio::spawn(follow));
            drop(timeout(start_timeout, state.wait_for(McpSourceState::has_result)).await);
            Some(task)
        } else {
            sender.send_replace(McpSourceState::disabled());
            None
        };

        Ok(Self {
            name,
            read_timeout,
            state,
            relist,
            requests,
            file_cache: Mutex::default(),
            _follow_task: follow_task,
        })
    }

    /// Requests a new list, such as after a notification that the program received. Returns at once.
    pub fn refresh(&self) {
        self.relist.notify_one();
    }

    /// Returns the files of a skill as the server declares them; empty if the skill is not listed
    /// or has no declared files.
    #[must_use]
    pub fn files(&self, package: &str) -> Vec<McpSkillFile> {
        let state = self.state.borrow();
        state
            .entries
            .get(package)
            .map_or_else(Vec::new, |entry| entry.files(&self.name))
    }

    /// Returns the files that the server declares for a skill, all on one page: their number is
    /// limited.
    fn declared_files(&self, package: &str) -> Result<PackageFilesPage, ToolError> {
        let state = self.state.borrow().clone();
        let entry = self.find_entry(&state, package)?;
        if entry.is_dynamic() {
            let message = "the MCP server does not declare the files of this skill";
            return Err(unlisted_files_error(message));
        }

        let mut files: Vec<_> = entry
            .files(&self.name)
            .into_iter()
            .map(|file| PackageFile {
                resource: file.resource,
                size_bytes: Some(file.size),
            })
            .collect();
        files.sort_by(|a, b| a.resource.cmp(&b.resource));
        Ok(PackageFilesPage {
            files,
            ..PackageFilesPage::default()
        })
    }

    async fn fetch_page(&self, request: &TextPageRequest) -> Result<TextPage, ToolError> {
        let state = self.state.borrow().clone();
        let entry = self.find_entry(&state, &request.package)?;

        request.check_resource_in_package()?;
        let resource = match request.resource.as_str() {
            "" => entry.main_resource(),
            resource => entry.declared_spelling(&self.name, resource),
        };
        let uri = address::handle_to_uri(&resource).ok_or_else(|| {
            let message = "the resource is not a handle";
            ToolError::from_code(ToolErrorCode::InvalidArguments, message)
        })?;

        if let Some(error) = entry.rejection() {
            return Err(error);
        }
        let cursor = verified_file::parse_cursor(&request.cursor, &uri)?;
        let file = self.fetch_in_time(&state, entry, &uri).await?;
        file.cut_page(cursor, &uri, resource, request.max_bytes)
    }

    /// Returns the listed skill of a package.
    fn find_entry<'a>(
        &self,
        state: &'a McpSourceState,
        package: &str,
    ) -> Result<&'a RemoteSkill, ToolError> {
        if let Some(reason) = &state.unavailable_reason {
            return Err(unavailable_error(SourceKind::Mcp, &self.name, reason));
        }
        if !self.owns_handle(&self.name, package) {
            return Err(wrong_authority_error());
        }
        let entry = state.entries.get(package);
        entry.map(Arc::as_ref).ok_or_else(unlisted_package_error)
    }

    /// Fetches a file within the time limit. Requests a new list if the server may have a new list,
    /// or may be gone.
    async fn fetch_in_time(
        &self,
        state: &McpSourceState,
        entry: &RemoteSkill,
        uri: &str,
    ) -> Result<VerifiedFile, ToolError> {
        let fetch = fetch::fetch_file(state, entry, uri, &self.file_cache, &self.requests);
        let fetched = timeout(self.read_timeout, fetch).await.unwrap_or_else(|_| {
            let message = "the MCP server does not answer in time";
            Err(ToolError::from_code(
                ToolErrorCode::SourceUnavailable,
                message,
            ))
        });

        fetched.inspect_err(|error| {
            if matches!(
                error.code(),
                ToolErrorCode::NotVerified | ToolErrorCode::SourceUnavailable
            ) {
                self.relist.notify_one();
            }
        })
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
        self.state.borrow().to_snapshot()
    }

    fn watch(&self) -> Option<Box<dyn SourceWatch>> {
        let mut state = self.state.clone();
        state.mark_unchanged();
        Some(Box::new(McpSourceWatch(state)))
    }

    fn read_timeout(&self) -> Duration {
        self.read_timeout
    }

    fn request_metrics(&self) -> RequestMetrics {
        self.requests.snapshot()
    }

    fn read_page<'a>(
        &'a self,
        request: &'a TextPageRequest,
    ) -> BoxFuture<'a, Result<TextPage, ToolError>> {
        Box::pin(self.fetch_page(request))
    }

    fn owns_handle(&self, authority: &str, handle: &str) -> bool {
        address::handle_server(handle) == Some(authority)
    }

    fn list_files<'a>(
        &'a self,
        request: &'a PackageFilesRequest,
    ) -> BoxFuture<'a, Result<PackageFilesPage, ToolError>> {
        Box::pin(std::future::ready(self.declared_files(&request.package)))
    }
}

impl SourceWatch for McpSourceWatch {
    fn changed(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if self.0.changed().await.is_err() {
                // The follow task has ended.
                std::future::pending::<()>().await;
            }
        })
    }
}
