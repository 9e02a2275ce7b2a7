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
//! # use caproot_client::{CallError, Client, ExecutorConfig};
//! # use caproot::agent::mcp::{ConnectFailure, HttpAllowlist, HttpListener, ServedDaemon};
//! # use caproot::agent::mcp::{ServerTexts, ServerTransport, serve};
//! # mod demo { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/support/demo.rs")); }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let endpoint = demo::start_demo_daemon().await;
//! # let timeout = std::time::Duration::from_secs(30);
//! # let mut client = Client::connect(&endpoint, &Default::default(), timeout).await?;
//! # let listed = client.list_roots().await?.roots.into_iter();
//! # let roots = listed.filter_map(|root| root.selected_capability_root);
//! # let roots: Vec<_> = roots.collect();
//! # let fleet = Fleet::from_single_executor(&ExecutorConfig::new(endpoint), &roots);
//! # let listener = HttpListener::bind("127.0.0.1:0".parse()?)?;
//! # let url = listener.url()?;
//! # let transport = ServerTransport::Http(listener, HttpAllowlist::default());
//! # let connect = async move || {
//! #     let options = ServedDaemon::session_options(SessionOptions::default());
//! #     let session = Session::start(&fleet, roots.clone(), &options).await.expect("valid roots");
//! #     let daemon = ServedDaemon::new(client.clone(), session);
//! #     Ok::<_, ConnectFailure<CallError>>(daemon)
//! # };
//! # let texts = ServerTexts::default();
//! # tokio::spawn(async move { serve(connect, transport, texts, drop).await });
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
//! If a server does not declare the skills extension, the source looks for resources `…/SKILL.md` with a
//! resource `…/_manifest`, as `FastMCP` serves them. The manifest has the size and the SHA-256 of each
//! file, and each file is checked against the manifest. A server without them has no skills, and a
//! warning says so.

pub(super) mod address;
pub(in crate::session) mod connection;
mod directory;
pub(super) mod fetch;
mod follow;
pub(super) mod frontmatter;
pub mod limits;
mod listing;
mod manifest;
pub(in crate::session) mod messages;
pub(super) mod remote_skill;
mod server_list;
mod statement;
pub(in crate::session) mod token;

pub use connection::McpEndpoint;
pub use remote_skill::McpSkillFile;
/// The MCP library, to make a connection of [`McpEndpoint::Connected`].
pub use rmcp;
pub use server_list::McpServerList;
pub use token::{McpToken, TokenCallback};

use super::verified_file;
use super::{
    FetchedFile, PackageFile, PackageFilesPage, PackageFilesRequest, SkillListing, SkillSource,
    SourceKind, SourceSnapshot, SourceWatch, TextPage, TextPageRequest, invalid_response_error,
    unavailable_error, unlisted_package_error, wrong_authority_error,
};
use crate::session::authorization::{AuthorizationRequest, Authorizer, ServerAuthorization};
use crate::session::skill_source::unlisted_files_error;
use crate::session::{ToolError, ToolErrorCode};
use caproot_core::sync::Mutex;
use fetch::VerifiedFileCache;
use futures_util::future::BoxFuture;
use listing::{ListedSkills, RemoteSkills, SkillOrigin, is_same_entries};
use messages::ReceivedMessages;
use remote_skill::RemoteSkill;
use rmcp::RoleClient;
use rmcp::service::Peer;
use statement::SkillStatement;
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
    /// Function that gives `Authorization` if the server answers 401 and the endpoint is an HTTP URL
    /// without a token and a header that is a credential; no value by default.
    pub authorize: ServerAuthorization,
    /// Whether the server is used. caproot never connects to a disabled server, and lists none of
    /// its skills.
    pub enabled: bool,
    /// Time limit of a read; 10 s by default.
    pub read_timeout: Duration,
    /// Maximum age of the server's latest statement about a skill at a read; 30 s by default. If the
    /// statement is older, the server is asked for a new one first. With zero, each read asks.
    pub max_age: Duration,
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
            authorize: ServerAuthorization::default(),
            enabled: true,
            read_timeout: limits::READ_TIMEOUT,
            max_age: limits::MAX_AGE,
            start_timeout: limits::START_TIMEOUT,
        }
    }

    /// Returns the authorizer of a server over HTTP without a credential.
    fn authorizer(&self) -> Option<Arc<Authorizer>> {
        let McpEndpoint::Http {
            url,
            headers,
            token: None,
        } = &self.endpoint
        else {
            return None;
        };
        let mut names = headers.iter().map(|(name, _)| name.as_str());
        if names.any(token::is_credential) || !token::is_protected(url) {
            return None;
        }

        let parsed: reqwest::Url = url.parse().ok()?;
        let origin = parsed.origin().ascii_serialization();
        let request = AuthorizationRequest {
            source_kind: SourceKind::Mcp.name().to_owned(),
            source_id: self.name.clone(),
            package: None,
            plugin: None,
            server: self.name.clone(),
            url: url.clone(),
            origin: origin.clone(),
            resource_metadata: None,
            scopes: Vec::new(),
            error: None,
        };
        Some(Authorizer::new(
            self.authorize.clone(),
            request,
            vec![origin],
        ))
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
    max_age: Duration,
    state: watch::Receiver<McpSourceState>,
    sender: watch::Sender<McpSourceState>,
    /// Notified to request a new list.
    relist: Arc<Notify>,
    /// Latest verified files, so that a page does not need a fetch of the whole file.
    file_cache: Mutex<VerifiedFileCache>,
    authorizer: Option<Arc<Authorizer>>,
    _follow_task: Option<AbortOnDropHandle<()>>,
}

/// Latest state of a server.
#[derive(Debug, Clone)]
struct McpSourceState {
    listing: Arc<SkillListing>,
    entries: Arc<RemoteSkills>,
    /// Skills that the server serves and does not list, the latest last.
    unlisted: Arc<Vec<Arc<RemoteSkill>>>,
    /// Reason if the server is unavailable; the end of a sentence.
    unavailable_reason: Option<String>,
    /// Whether the server is disabled.
    disabled: bool,
    link: Option<ServerLink>,
    has_result: bool,
}

/// Connection to a server.
#[derive(Debug, Clone)]
pub(super) struct ServerLink {
    pub(super) peer: Peer<RoleClient>,
    pub(super) messages: Arc<ReceivedMessages>,
}

impl McpSourceState {
    fn without_listing(reason: &str) -> Self {
        Self {
            listing: Arc::default(),
            entries: Arc::default(),
            unlisted: Arc::default(),
            unavailable_reason: Some(reason.to_owned()),
            disabled: false,
            link: None,
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
    fn store_list(&mut self, listed: ListedSkills, link: &ServerLink) -> bool {
        let is_same =
            *self.listing == listed.listing && is_same_entries(&self.entries, &listed.entries);
        let is_changed = !is_same || self.unavailable_reason.is_some();

        if !is_same {
            self.listing = Arc::new(listed.listing);
            self.entries = Arc::new(listed.entries);
        }
        self.unavailable_reason = None;
        self.link = Some(link.clone());
        self.has_result = true;
        is_changed
    }

    /// Returns the skill of a package, listed or not.
    fn find(&self, package: &str) -> Option<&Arc<RemoteSkill>> {
        self.entries.get(package).or_else(|| {
            let mut unlisted = self.unlisted.iter();
            unlisted.find(|entry| entry.skill.package == package)
        })
    }

    /// Stores what the server says now about a known skill; `None` if the server no longer serves the
    /// skill. Returns whether the snapshot changed.
    fn replace_entry(&mut self, package: &str, entry: Option<RemoteSkill>) -> bool {
        match (self.find(package), &entry) {
            (Some(known), Some(entry)) if known.is_same(entry) => {
                known.confirm();
                return false;
            }
            (None, None) => return false,
            _ => {}
        }

        let entry = entry.map(Arc::new);
        if !self.entries.contains_key(package) {
            let unlisted = Arc::make_mut(&mut self.unlisted);
            unlisted.retain(|known| known.skill.package != package);
            unlisted.extend(entry);
            let excess = unlisted.len().saturating_sub(limits::MAX_UNLISTED_SKILLS);
            unlisted.drain(..excess);
            return false;
        }

        let mut listed = ListedSkills {
            listing: SkillListing::clone(&self.listing),
            entries: RemoteSkills::clone(&self.entries),
        };
        listed.replace(package, entry);
        self.listing = Arc::new(listed.listing);
        self.entries = Arc::new(listed.entries);
        true
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
        let max_age = server.max_age;
        let start_timeout = server.start_timeout;
        let authorizer = server.authorizer();
        let relist = Arc::new(Notify::new());
        let (sender, mut state) =
            watch::channel(McpSourceState::without_listing("it does not answer yet"));

        let follow_task = if server.enabled {
            let follow =
                follow::follow_server(server, authorizer.clone(), sender.clone(), relist.clone());
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
            max_age,
            state,
            sender,
            relist,
            file_cache: Mutex::default(),
            authorizer,
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
            .find(package)
            .map_or_else(Vec::new, |entry| entry.files(&self.name))
    }

    /// Returns the files of a skill, all on one page: their number is limited. The server declares
    /// them, or lists its directories.
    async fn list_package_files(&self, package: &str) -> Result<PackageFilesPage, ToolError> {
        let current = timeout(self.read_timeout, self.current_entry(package, self.max_age)).await;
        let current = current.unwrap_or_else(|_| Err(self.silence_error()))?;
        let CurrentEntry { entry, link } = current;

        if entry.is_dynamic() {
            let peer = link.map(|link| link.peer);
            let Some(peer) = peer.filter(directory::lists_directories) else {
                let message = "the MCP server does not declare the files of this skill";
                return Err(unlisted_files_error(message));
            };
            let list = directory::list_directory_files(&self.name, &peer, &entry.directory);
            let listed = timeout(self.read_timeout, list).await;
            return listed.unwrap_or_else(|_| Err(self.silence_error()));
        }

        let mut files: Vec<_> = entry
            .files(&self.name)
            .into_iter()
            .map(|file| PackageFile {
                resource: file.resource,
                size_bytes: Some(file.size),
                media_type: String::new(),
            })
            .collect();
        files.sort_by(|a, b| a.resource.cmp(&b.resource));
        Ok(PackageFilesPage {
            files,
            ..PackageFilesPage::default()
        })
    }

    async fn fetch_page(&self, request: &TextPageRequest) -> Result<TextPage, ToolError> {
        request.check_resource_in_package()?;
        let fetch = self.fetch_current_page(request);
        let fetched = timeout(self.read_timeout, fetch).await;
        let fetched = fetched.unwrap_or_else(|_| Err(self.silence_error()));

        // The server may have a new list, or may be gone.
        fetched.inspect_err(|error| {
            if matches!(
                error.code(),
                ToolErrorCode::NotVerified | ToolErrorCode::SourceUnavailable
            ) {
                self.relist.notify_one();
            }
        })
    }

    /// Returns a page of a file, without a time limit.
    async fn fetch_current_page(&self, request: &TextPageRequest) -> Result<TextPage, ToolError> {
        let CurrentEntry { entry, link } =
            self.current_entry(&request.package, self.max_age).await?;
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
        let fetcher = fetch::FileFetcher {
            link: link.as_ref(),
            cache: &self.file_cache,
        };
        let file = fetcher.fetch_file(&entry, &uri).await?;
        file.cut_page(cursor, &uri, resource, request.max_bytes)
    }

    /// Returns all files of a skill. The server says at the end, too, that these are the files.
    async fn fetch_declared_files(&self, package: &str) -> Result<Vec<FetchedFile>, ToolError> {
        let CurrentEntry { entry, link } = self.current_entry(package, self.max_age).await?;
        if entry.is_dynamic() {
            let message = "the MCP server does not declare the files of this skill";
            return Err(unlisted_files_error(message));
        }
        if let Some(error) = entry.rejection() {
            return Err(error);
        }

        let fetcher = fetch::FileFetcher {
            link: link.as_ref(),
            cache: &self.file_cache,
        };
        let mut files = Vec::new();
        for file in entry.files(&self.name) {
            let uri = address::handle_to_uri(&file.resource).unwrap_or_default();
            let fetch = timeout(self.read_timeout, fetcher.fetch_bytes(&entry, &uri));
            files.push(FetchedFile {
                bytes: fetch.await.unwrap_or_else(|_| Err(self.silence_error()))?,
                resource: file.resource,
            });
        }

        let confirm = timeout(
            self.read_timeout,
            self.current_entry(package, Duration::ZERO),
        );
        let now = confirm
            .await
            .unwrap_or_else(|_| Err(self.silence_error()))?;
        if now.entry.is_same(&entry) {
            Ok(files)
        } else {
            let message = "the skill changed while its files were read";
            Err(ToolError::from_code(
                ToolErrorCode::ResourceChanged,
                message,
            ))
        }
    }

    /// Returns the skill of a package as the server declares it now, or at most the maximum age ago.
    async fn current_entry(
        &self,
        package: &str,
        max_age: Duration,
    ) -> Result<CurrentEntry, ToolError> {
        let state = self.state.borrow().clone();
        if let Some(reason) = &state.unavailable_reason {
            return Err(unavailable_error(SourceKind::Mcp, &self.name, reason));
        }
        if !self.owns_handle(&self.name, package) {
            return Err(wrong_authority_error());
        }

        let known = state.find(package).cloned();
        let current = match (known, &state.link) {
            (Some(known), _) if known.age() <= max_age => Some(known),
            (Some(known), Some(link)) => {
                let request =
                    statement::request_statement(&self.name, &link.peer, &known, &state.entries);
                let statement = request.await?;
                self.store_statement(package, link, statement)
            }
            (None, Some(link)) => self.request_unlisted(package, link).await?,
            (_, None) => None,
        };
        let entry = current.ok_or_else(unlisted_package_error)?;
        Ok(CurrentEntry {
            entry,
            link: state.link,
        })
    }

    /// Requests a skill that no list has. A host must be able to use such a skill by its URI, because
    /// a list may be partial.
    async fn request_unlisted(
        &self,
        package: &str,
        link: &ServerLink,
    ) -> Result<Option<Arc<RemoteSkill>>, ToolError> {
        let is_declared = SkillOrigin::of_server(&link.peer) == SkillOrigin::Extension;
        let main_handle = format!("{package}/SKILL.md");
        let Some(uri) = address::handle_to_uri(&main_handle).filter(|_| is_declared) else {
            return Ok(None);
        };

        let statement = statement::get_skill(&self.name, &link.peer, &uri).await?;
        Ok(statement.and_then(|statement| self.store_statement(package, link, statement)))
    }

    /// Stores a statement of the server. Returns the skill of the package, if the server serves it.
    fn store_statement(
        &self,
        package: &str,
        link: &ServerLink,
        statement: SkillStatement,
    ) -> Option<Arc<RemoteSkill>> {
        self.sender.send_if_modified(|state| match statement {
            SkillStatement::Served(skill) => state.replace_entry(package, Some(*skill)),
            SkillStatement::Gone => state.replace_entry(package, None),
            SkillStatement::Listed(listed) => state.store_list(listed, link),
        });
        self.state.borrow().find(package).cloned()
    }

    fn silence_error(&self) -> ToolError {
        unavailable_error(SourceKind::Mcp, &self.name, "it does not answer in time")
    }
}

/// Skill as the server declares it now, and the connection to the server.
struct CurrentEntry {
    entry: Arc<RemoteSkill>,
    link: Option<ServerLink>,
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

    fn read_page<'a>(
        &'a self,
        request: &'a TextPageRequest,
    ) -> BoxFuture<'a, Result<TextPage, ToolError>> {
        Box::pin(self.fetch_page(request))
    }

    fn owns_handle(&self, authority: &str, handle: &str) -> bool {
        address::handle_server(handle) == Some(authority)
    }

    fn retry(&self) {
        if let Some(authorizer) = &self.authorizer {
            authorizer.allow_question();
        }
    }

    fn list_files<'a>(
        &'a self,
        request: &'a PackageFilesRequest,
    ) -> BoxFuture<'a, Result<PackageFilesPage, ToolError>> {
        Box::pin(self.list_package_files(&request.package))
    }

    fn fetch_package<'a>(
        &'a self,
        package: &'a str,
    ) -> BoxFuture<'a, Result<Vec<FetchedFile>, ToolError>> {
        Box::pin(self.fetch_declared_files(package))
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
