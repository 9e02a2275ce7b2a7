//! MCP server for the skills of a daemon, built on the official SDK. Serves one client over stdio,
//! or any number of clients over HTTP. Connects to the daemon with [`caproot_client`].
//!
//! `caproot mcp` is this server. A program can also run it:
//!
//! ```
//! use caproot_session::{Session, SessionOptions};
//! use caproot_client::{Client, ClientCredentials, ExecutorConfig, Fleet};
//! use caproot::agent::mcp::{
//!     HttpAllowlist, HttpListener, ServedDaemon, ServerTexts, ServerTransport, serve,
//! };
//! use std::time::Duration;
//! # mod demo { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/support/demo.rs")); }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let endpoint = demo::start_demo_daemon().await;
//! let credentials = ClientCredentials::default();
//! let mut client = Client::connect(&endpoint, &credentials, Duration::from_secs(30)).await?;
//! let published = client.list_roots().await?.roots;
//! let roots = published.into_iter().filter_map(|root| root.selected_capability_root);
//! let roots: Vec<_> = roots.collect();
//! let fleet = Fleet::from_single_executor(&ExecutorConfig::new(endpoint), &roots);
//! let connect = async || {
//!     let options = ServedDaemon::session_options(SessionOptions::default());
//!     let session = Session::start(&fleet, roots.clone(), &options).await.expect("valid roots");
//!     Ok(ServedDaemon::new(client.clone(), session))
//! };
//!
//! let listener = HttpListener::bind("127.0.0.1:0".parse()?)?;
//! let url = listener.url()?;
//! let transport = ServerTransport::Http(listener, HttpAllowlist::default());
//! let texts = ServerTexts::default();
//! let server = serve(connect, transport, texts, |message| eprintln!("{message}"));
//! # use caproot_session::SkillSource;
//! # use caproot_session::sources::mcp;
//! # let stopped = async {
//! #     let config = mcp::McpServerConfig::new("here", mcp::McpEndpoint::http(&url));
//! #     let source = mcp::McpSource::start(config).await.expect("a valid name");
//! #     assert_eq!(source.snapshot().listing.skills.len(), 3);
//! # };
//! tokio::select! {
//!     // The daemon rejected the first request.
//!     ended = server => ended.map_err(|error: caproot_client::CallError| error)?,
//!     () = stopped => {}
//! }
//! # Ok(())
//! # }
//! ```
//!
//! `docs/orchestrate/mcp.md` describes the methods and the resources that a client sees.

mod address;
mod backend;
mod call_error;
mod connection;
mod cursor;
mod files;
mod frontmatter;
mod handler;
mod http;
pub mod limits;
mod list_changes;
mod response_turn;
mod sessions;
mod stdio;
mod texts;
mod view;

pub use http::{HttpAllowlist, HttpListener};
pub use texts::{MAX_NAMES_BYTES, ServerTexts, TOOL_NAMES};

use backend::McpBackend;
use caproot_client::{CallError, Client};
use caproot_session::{Session, SessionOptions};
use connection::{ServedState, StatePublisher, SyncState, follow_daemon};
use handler::McpHandler;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// How long the first attempt to connect may go on after stdin has ended.
const FIRST_STATE_TIMEOUT: Duration = Duration::from_secs(2);

/// Transport of the server.
#[derive(Debug)]
pub enum ServerTransport {
    /// One client over stdin and stdout.
    Stdio,
    /// Any number of clients over HTTP.
    Http(HttpListener, HttpAllowlist),
}

/// Daemon whose skills are served.
#[derive(Debug)]
pub struct ServedDaemon {
    /// Client of the daemon, for the published roots and the reason of a rejection.
    client: Client,
    /// Session with the skills and their files, which also answers the calls of the tools.
    session: Session,
    /// Whether the roots are the published roots, and are read again after a restart of the daemon.
    follows_published: bool,
    /// Environment of the published roots; `None` for the daemon's first environment.
    environment_id: Option<String>,
}

impl ServedDaemon {
    /// Creates a daemon with a session, whose roots never change. The session must have the options of
    /// [`ServedDaemon::session_options`].
    #[must_use]
    pub fn new(client: Client, session: Session) -> Self {
        Self {
            client,
            session,
            follows_published: false,
            environment_id: None,
        }
    }

    /// Returns the options of a session that the server follows: with the frontmatter of each skill, and
    /// without delays. The server itself waits for the daemon.
    #[must_use]
    pub fn session_options(options: SessionOptions) -> SessionOptions {
        SessionOptions {
            start_timeout: Duration::ZERO,
            grace_period: Duration::ZERO,
            plugins: true,
            ..options
        }
    }

    /// Reads the published roots again after each restart of the daemon. `environment_id` is their
    /// environment, or `None` for the daemon's first environment.
    #[must_use]
    pub fn following_published_roots(self, environment_id: Option<&str>) -> Self {
        Self {
            follows_published: true,
            environment_id: environment_id.map(str::to_owned),
            ..self
        }
    }
}

/// Failure of an attempt to connect to the daemon.
#[derive(Debug)]
pub enum ConnectFailure<E> {
    /// No daemon answers yet. Has the cause as a sentence.
    Unavailable(String),
    /// Further attempts would fail in the same way.
    Final(E),
}

/// Serves the skills of a daemon: over stdio until stdin ends, over HTTP until the future is dropped.
/// Answers clients before `connect` has reached the daemon, and calls `connect` until a daemon answers.
/// Calls `connect` again if the published roots change. `say` receives a message if the daemon is lost
/// or connected again.
///
/// # Errors
///
/// The final failure of `connect`, the rejection of the first request, or an error of stdout.
pub async fn serve<E: From<CallError>>(
    connect: impl AsyncFn() -> Result<ServedDaemon, ConnectFailure<E>>,
    transport: ServerTransport,
    texts: ServerTexts,
    say: impl Fn(String),
) -> Result<(), E> {
    let texts = Arc::new(texts);
    let (sender, receiver) = watch::channel(ServedState::default());
    let backend = Arc::new(McpBackend::new(receiver, texts.clone()));
    let publisher = StatePublisher::new(sender, texts, say);
    let followed = follow_daemon(connect, publisher);

    let mut state = backend.state.clone();
    let served = async {
        match transport {
            ServerTransport::Stdio => {
                stdio::serve_stdio(McpHandler::new(backend.clone())).await?;
                // A host that leaves at once still learns why nothing can be served.
                let first_state = state.wait_for(|state| state.sync != SyncState::Connecting);
                let _ = timeout(FIRST_STATE_TIMEOUT, first_state).await;
                Ok(())
            }
            ServerTransport::Http(listener, allowed) => {
                http::serve_http(backend.clone(), listener, allowed).await;
                Ok(())
            }
        }
    };

    tokio::select! {
        served = served => served.map_err(|error| CallError::Output(error).into()),
        ended = followed => ended,
    }
}
