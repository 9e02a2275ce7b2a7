//! A daemon's skills as an MCP server, on the official SDK: over stdio for one client, or over HTTP
//! for any number. It is a client of the daemon like any other, and imports no room of it. Leaves
//! flags, signals and exit codes to whoever runs it.

mod address;
mod catalog;
mod cursor;
mod entry;
mod executor;
mod fault;
mod feed;
mod files;
mod handler;
mod http;
pub mod limits;
mod notices;
mod prompts;
mod sessions;
mod stdio;
mod tools;

pub use feed::Followed;
pub use http::{Allowed, Listener};

use crate::client::{CallError, Client};
use crate::session::Session;
use executor::Executor;
use handler::Handler;
use rmcp::ServiceExt as _;
use std::sync::Arc;
use tokio::sync::watch;

/// How clients come.
#[derive(Debug)]
pub enum Way {
    /// One client, over stdin and stdout.
    Stdio,
    /// Any number of clients.
    Http(Listener, Allowed),
}

/// Serves what is followed: over stdio until stdin ends, over HTTP until it is dropped; with a session
/// also its tools. `say` is told when the daemon is lost and found. An error is of a daemon that refused
/// from the start.
pub async fn serve(
    client: Client,
    followed: Followed,
    way: Way,
    tools: Option<Session>,
    say: impl Fn(String),
) -> Result<(), CallError> {
    let (sender, receiver) = watch::channel(feed::State::default());
    let executor = Arc::new(Executor::new(client.clone(), receiver, tools));
    let served = async {
        match way {
            Way::Stdio => {
                // What is no MCP client, or leaves before it said anything, is not served.
                if let Ok(running) = Handler::new(executor).serve(stdio::transport()).await {
                    let _ = running.waiting().await;
                }
            }
            Way::Http(listener, allowed) => http::serve(executor, listener, allowed).await,
        }
    };
    tokio::select! {
        () = served => Ok(()),
        refused = feed::follow(client, followed, sender, say) => refused,
    }
}
