//! MCP server for the skills of a daemon, built on the official SDK. Serves one client over stdio,
//! or any number of clients over HTTP. Connects to the daemon with [`caproot_client`].
//!
//! `caproot mcp` is this server. A program can also run it:
//!
//! ```
//! use caproot_client::{Client, ClientCredentials};
//! use caproot::mcp::{
//!     HttpAllowlist, HttpListener, ServedDaemon, ServerTransport, SkillSubscription, serve,
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
//! let roots = published.into_iter().filter_map(|root| root.selected_capability_root).collect();
//! let subscription = SkillSubscription { roots, ..SkillSubscription::default() };
//! let connect = async || {
//!     let (client, subscription) = (client.clone(), subscription.clone());
//!     Ok(ServedDaemon { client, subscription, tool_session: None })
//! };
//!
//! let listener = HttpListener::bind("127.0.0.1:0".parse()?)?;
//! let url = listener.url()?;
//! let transport = ServerTransport::Http(listener, HttpAllowlist::default());
//! let server = serve(connect, transport, None, |message| eprintln!("{message}"));
//! # use caproot_client::session::SkillSource;
//! # use caproot_client::session::sources::mcp;
//! # let stopped = async {
//! #     let config = mcp::McpServerConfig::new("here", mcp::McpEndpoint::http(&url));
//! #     let source = mcp::McpSource::start(config).await.expect("a valid name");
//! #     assert_eq!(source.snapshot().listing.skills.len(), 3);
//! # };
//! tokio::select! {
//!     // The daemon rejected the first watch.
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
mod catalog;
mod catalog_changes;
mod cursor;
mod feed;
mod files;
mod handler;
mod http;
pub mod limits;
mod sessions;
mod skill_record;
mod stdio;
mod tool_list;

pub use feed::SkillSubscription;
pub use http::{HttpAllowlist, HttpListener};
pub use tool_list::ServedTools;

use backend::McpBackend;
use caproot_client::session::Session;
use caproot_client::{CallError, Client};
use feed::{FeedPublisher, SyncState};
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
    /// Client of the daemon.
    pub client: Client,
    /// Skills to serve.
    pub subscription: SkillSubscription,
    /// Session that answers the calls of the tools; `None` without tools.
    pub tool_session: Option<Session>,
}

/// Failure of an attempt to connect to the daemon.
#[derive(Debug)]
pub enum ConnectFailure<E> {
    /// No daemon answers yet. Has the cause as a sentence.
    Unavailable(String),
    /// Further attempts would fail in the same way.
    Final(E),
}

/// Serves the subscribed skills: over stdio until stdin ends, over HTTP until the future is
/// dropped. Answers clients before `connect` has reached the daemon, and calls `connect` until a
/// daemon answers. With `tools`, also serves the tools of the daemon's session. `say` receives a
/// message if the daemon is lost or connected again.
///
/// # Errors
///
/// The final failure of `connect`, the rejection of the first watch, or an error of stdout.
pub async fn serve<E: From<CallError>>(
    connect: impl AsyncFn() -> Result<ServedDaemon, ConnectFailure<E>>,
    transport: ServerTransport,
    tools: Option<ServedTools>,
    say: impl Fn(String),
) -> Result<(), E> {
    let (sender, receiver) = watch::channel(feed::FeedState::default());
    let backend = Arc::new(McpBackend::new(receiver, tools));

    let followed = async {
        let publisher = FeedPublisher::new(sender, say);
        let daemon = feed::connect_to_daemon(connect, &publisher).await?;
        let client = daemon.client.clone();
        let subscription = daemon.subscription.clone();
        backend.set_daemon(daemon);
        feed::follow_daemon(client, subscription, publisher).await?;
        Ok(())
    };

    let mut state = backend.state_receiver();
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
