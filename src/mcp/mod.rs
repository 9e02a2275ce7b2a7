//! A daemon's skills as an MCP server, on the official SDK: over stdio for one client, or over HTTP
//! for any number. It is a client of the daemon like any other, and imports no room of it. Leaves
//! flags, signals and exit codes to whoever runs it.

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

/// How clients come.
#[derive(Debug)]
pub enum ServerTransport {
    /// One client, over stdin and stdout.
    Stdio,
    /// Any number of clients.
    Http(HttpListener, HttpAllowlist),
}

/// Serves what is followed: over stdio until stdin ends, over HTTP until it is dropped; with a session
/// also its tools. `say` is told when the daemon is lost and found. An error is of a daemon that refused
/// from the start.
pub async fn serve(
    client: Client,
    followed: SkillSubscription,
    way: ServerTransport,
    tools: Option<Session>,
    say: impl Fn(String),
) -> Result<(), CallError> {
    let (sender, receiver) = watch::channel(feed::FeedState::default());
    let executor = Arc::new(McpBackend::new(client.clone(), receiver, tools));
    let served = async {
        match way {
            ServerTransport::Stdio => {
                // What is no MCP client, or leaves before it said anything, is not served.
                if let Ok(running) = McpHandler::new(executor).serve(stdio::stdio_transport()).await
                {
                    let _ = running.waiting().await;
                }
            }
            ServerTransport::Http(listener, allowed) => {
                http::serve_http(executor, listener, allowed).await
            }
        }
    };
    tokio::select! {
        () = served => Ok(()),
        refused = feed::follow_daemon(client, followed, sender, say) => refused,
    }
}
