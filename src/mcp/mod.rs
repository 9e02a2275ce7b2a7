//! MCP server for the skills of a daemon, built on the official SDK. Serves one client over stdio,
//! or any number of clients over HTTP. Connects to the daemon with [`crate::client`].
//!
//! `caproot mcp` is this server. A program can also run it:
//!
//! ```
//! use caproot::client::{Client, ClientCredentials};
//! use caproot::mcp::{HttpAllowlist, HttpListener, ServerTransport, SkillSubscription, serve};
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
//! let feed = SkillSubscription { roots, ..SkillSubscription::default() };
//!
//! let listener = HttpListener::bind("127.0.0.1:0".parse()?)?;
//! let url = listener.url()?;
//! let transport = ServerTransport::Http(listener, HttpAllowlist::default());
//! let server = serve(client, feed, transport, None, |message| eprintln!("{message}"));
//! # use caproot::session::{SkillSource, sources::mcp};
//! # let stopped = async {
//! #     let config = mcp::McpServerConfig::new("here", mcp::McpEndpoint::http(&url));
//! #     let source = mcp::McpSource::start(config).await.expect("a valid name");
//! #     assert_eq!(source.snapshot().listing.skills.len(), 3);
//! # };
//! tokio::select! {
//!     // The daemon rejected the first watch.
//!     ended = server => ended?,
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

pub use feed::SkillSubscription;
pub use http::{HttpAllowlist, HttpListener};

use crate::client::{CallError, Client};
use crate::session::Session;
use backend::McpBackend;
use handler::McpHandler;
use std::sync::Arc;
use tokio::sync::watch;

/// Transport of the server.
#[derive(Debug)]
pub enum ServerTransport {
    /// One client over stdin and stdout.
    Stdio,
    /// Any number of clients over HTTP.
    Http(HttpListener, HttpAllowlist),
}

/// Serves the subscribed skills: over stdio until stdin ends, over HTTP until the future is
/// dropped. With a session, also serves its tools. `say` receives a message if the daemon is lost
/// or connected again. Fails if the daemon rejects the first watch, or if stdout cannot be written.
pub async fn serve(
    client: Client,
    subscription: SkillSubscription,
    transport: ServerTransport,
    tools: Option<Session>,
    say: impl Fn(String),
) -> Result<(), CallError> {
    let (sender, receiver) = watch::channel(feed::FeedState::default());
    let executor = Arc::new(McpBackend::new(client.clone(), receiver, tools));
    let served = async {
        match transport {
            ServerTransport::Stdio => stdio::serve_stdio(McpHandler::new(executor)).await,
            ServerTransport::Http(listener, allowed) => {
                http::serve_http(executor, listener, allowed).await;
                Ok(())
            }
        }
    };
    tokio::select! {
        served = served => served.map_err(CallError::Output),
        refused = feed::follow_daemon(client, subscription, sender, say) => refused,
    }
}
