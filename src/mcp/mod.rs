//! MCP server for the skills of a daemon, built on the official SDK. Serves one client over stdio,
//! or any number of clients over HTTP. Connects to the daemon with [`crate::client`].

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
use rmcp::ServiceExt as _;
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
/// or connected again. Fails if the daemon rejects the first watch.
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
            ServerTransport::Stdio => {
                // A peer that is not an MCP client, or that leaves before its first message, is not
                // served.
                if let Ok(running) = McpHandler::new(executor).serve(stdio::stdio_transport()).await
                {
                    let _ = running.waiting().await;
                }
            }
            ServerTransport::Http(listener, allowed) => {
                http::serve_http(executor, listener, allowed).await;
            }
        }
    };
    tokio::select! {
        () = served => Ok(()),
        refused = feed::follow_daemon(client, subscription, sender, say) => refused,
    }
}
