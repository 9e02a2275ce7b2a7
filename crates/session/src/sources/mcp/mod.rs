//! MCP server with skills as a source of a session, on the client of the official SDK. The list is
//! fetched without the files, and each file is verified when it is read. All responses of a server
//! are [limited](limits).
//!
//! ```
//! use caproot_client::Fleet;
//! use caproot_session::sources::mcp::{McpEndpoint, McpServerConfig, McpSource};
//! use caproot_session::{Session, SessionOptions};
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

mod address;
pub(crate) mod connection;
mod declared_skill;
mod directory;
mod fetch;
mod follow;
pub mod limits;
mod listing;
mod manifest;
pub(crate) mod messages;
mod server_list;
mod statement;
pub(crate) mod token;

pub use super::remote::McpSkillFile;
pub use connection::McpEndpoint;
/// The MCP library, to make a connection of [`McpEndpoint::Connected`].
pub use rmcp;
pub use server_list::McpServerList;
pub use token::{McpToken, TokenCallback};

use super::remote::{
    DeclaredFile, FileContent, ListedSkills, ReadLimits, RemoteServer, RemoteSkill, RemoteSkills,
    RemoteSource, SkillStatement, take_turn,
};
use super::{PackageFilesPage, SourceKind};
use crate::network::authorization::{AuthorizationRequest, Authorizer, ServerAuthorization};
use crate::{ToolError, ToolErrorCode};
use connection::ServerLink;
use declared_skill::directory_uri;
use fetch::read_contents;
use follow::{FollowedConnection, log_declarations, logged_text};
use limits::SMALL_FILE_BYTES;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

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
        let has_credential = headers
            .iter()
            .any(|(name, _)| token::is_credential(name.as_str()));
        if has_credential || !token::is_protected(url) {
            return None;
        }

        let origin = reqwest::Url::parse(url)
            .ok()?
            .origin()
            .ascii_serialization();
        let request = AuthorizationRequest {
            source_kind: SourceKind::Mcp.name().to_owned(),
            source_id: self.name.clone(),
            server: self.name.clone(),
            url: url.clone(),
            origin: origin.clone(),
            ..AuthorizationRequest::default()
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
pub type McpSource = RemoteSource<SkillServer>;

/// MCP server with skills, for [`RemoteSource`].
#[derive(Debug)]
pub struct SkillServer {
    name: String,
    endpoint: McpEndpoint,
    authorizer: Option<Arc<Authorizer>>,
    /// Answers of the program to questions of the authorizer.
    answers: Option<tokio::sync::Mutex<watch::Receiver<()>>>,
}

impl McpSource {
    /// Connects to a server and follows its list until the source is dropped. Needs a tokio
    /// runtime.
    ///
    /// # Errors
    ///
    /// An invalid name.
    pub async fn start(config: McpServerConfig) -> Result<Self, ServerNameError> {
        if !address::is_server_name(&config.name) {
            return Err(ServerNameError(config.name));
        }

        let authorizer = config.authorizer();
        let answers = authorizer.as_ref().map(|authorizer| authorizer.watch());
        let server = SkillServer {
            name: config.name,
            endpoint: config.endpoint,
            authorizer,
            answers: answers.map(tokio::sync::Mutex::new),
        };
        let limits = ReadLimits {
            read_timeout: config.read_timeout,
            max_age: config.max_age,
        };
        if !config.enabled {
            return Ok(Self::disabled(server, limits));
        }

        let source = Self::follow(server, limits);
        source.wait_for_list(config.start_timeout).await;
        Ok(source)
    }

    /// Returns the files of a skill as the server declares them; empty if the skill is not listed
    /// or has no declared files.
    #[must_use]
    pub fn files(&self, package: &str) -> Vec<McpSkillFile> {
        self.find_skill(package)
            .map(|skill| skill.declared_files())
            .unwrap_or_default()
    }
}

impl RemoteServer for SkillServer {
    type Connection = FollowedConnection;
    type Link = ServerLink;

    const KIND: SourceKind = SourceKind::Mcp;
    const MAX_RETRY_DELAY: Duration = limits::MAX_RETRY_DELAY;

    fn id(&self) -> &str {
        &self.name
    }

    fn owns_handle(authority: &str, handle: &str) -> bool {
        address::handle_server(handle) == Some(authority)
    }

    async fn connect(&self, relist: &Arc<Notify>) -> Result<FollowedConnection, String> {
        let connect = connection::connect(&self.endpoint, self.authorizer.as_ref(), relist.clone());
        let connected = timeout(limits::CONNECT_TIMEOUT, connect)
            .await
            .map_err(|_| "it does not answer".to_owned())??;
        let connection = FollowedConnection::new(self.name.clone(), connected);
        log_declarations(&connection.link);
        Ok(connection)
    }

    fn link(connection: &FollowedConnection) -> ServerLink {
        connection.link.clone()
    }

    async fn list_skills(
        &self,
        connection: &mut FollowedConnection,
        before: &RemoteSkills,
    ) -> Result<Option<ListedSkills>, String> {
        // The subscription starts before the list, so that no change is lost in between.
        connection.subscribe().await;

        let listed = timeout(
            limits::LIST_TIMEOUT,
            listing::list_skills(&connection.link, before),
        )
        .await
        .map_err(|_| "listing its skills takes too long".to_owned())??;
        if let Some(authorizer) = &self.authorizer {
            authorizer.accept_value();
        }
        Ok(Some(listed))
    }

    fn wait_for_change(
        connection: &mut FollowedConnection,
    ) -> impl Future<Output = Result<(), String>> + Send {
        connection.wait_for_change()
    }

    /// Waits until the program gave the credential of the server, or lets it be asked for again.
    async fn wait_for_retry(&self, _: &Notify) {
        match &self.answers {
            // The authorizer has the sender.
            Some(answers) => drop(answers.lock().await.changed().await),
            None => pending().await,
        }
    }

    /// Returns whether the connection is the program's and has ended.
    fn is_over(&self) -> bool {
        matches!(&self.endpoint, McpEndpoint::Connected(peer) if peer.is_transport_closed())
    }

    fn log_failure(&self, reason: &str) {
        tracing::warn!(
            server = self.name,
            reason = logged_text(reason),
            "MCP server is unavailable"
        );
    }

    fn retry(&self) {
        if let Some(authorizer) = &self.authorizer {
            authorizer.allow_question();
        }
    }

    fn request_statement(
        &self,
        link: &ServerLink,
        package: &str,
        known: Option<&RemoteSkill>,
        before: &RemoteSkills,
    ) -> impl Future<Output = Result<Option<SkillStatement>, ToolError>> + Send {
        statement::request_statement(link, package, known, before)
    }

    fn locate_file(_: &RemoteSkill, resource: &str) -> Result<String, ToolError> {
        address::handle_to_uri(resource).ok_or_else(|| {
            ToolError::from_code(
                ToolErrorCode::InvalidArguments,
                "the resource is not a handle",
            )
        })
    }

    async fn fetch_file(
        &self,
        link: &ServerLink,
        location: &str,
        declared: Option<DeclaredFile>,
    ) -> Result<FileContent, ToolError> {
        // Only a declared size says that a large file is worth its turn.
        let size = declared.and_then(|declared| declared.size);
        let Some(size) = size.filter(|size| *size > SMALL_FILE_BYTES) else {
            return Ok(FileContent {
                bytes: read_contents(&link.peer, location, SMALL_FILE_BYTES).await?,
                turn: None,
            });
        };

        let turn = take_turn().await;
        let _expected = link.messages.expect_large();
        Ok(FileContent {
            bytes: read_contents(&link.peer, location, size).await?,
            turn,
        })
    }

    fn list_directories(
        &self,
        link: &ServerLink,
        skill: &RemoteSkill,
    ) -> impl Future<Output = Result<PackageFilesPage, ToolError>> + Send {
        directory::list_directory_files(link, directory_uri(skill))
    }
}
