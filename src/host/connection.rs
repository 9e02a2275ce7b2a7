//! A connection to a server: over HTTP, or to a process of its own over stdin and stdout. Says that this
//! host knows skills, and hears that a list changed.

use super::limits::MAX_MESSAGE_BYTES;
use http::{HeaderName, HeaderValue};
use rmcp::model::{
    ClientCapabilities, ClientConfig, Implementation, JsonObject, ProtocolVersion,
    SKILLS_EXTENSION_ID,
};
use rmcp::service::{
    ClientCacheConfig, ClientInitializeError, ClientLifecycleMode, ClientServiceExt as _,
    NotificationContext, Peer, RunningService,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, RoleClient};
use rustls::RootCertStore;
use std::collections::HashMap;
use std::fmt;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::sync::Notify;

/// How often a connection is looked at that does not say when it ends.
const CLOSE_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How a server is reached.
#[derive(Clone, PartialEq, Eq)]
pub enum McpEndpoint {
    /// Over HTTP.
    Http {
        /// Its URL, such as `http://127.0.0.1:7421/mcp`.
        url: String,
        /// What is sent with each request, such as `authorization`; not shown anywhere.
        headers: Vec<(HeaderName, HeaderValue)>,
    },
    /// A program that is started for it, and ends with it. Its stderr is this process's.
    Process {
        /// The program.
        program: String,
        /// Its arguments.
        arguments: Vec<String>,
    },
}

impl McpEndpoint {
    /// Over HTTP, with nothing to show.
    #[must_use]
    pub fn http(url: &str) -> Self {
        Self::Http { url: url.to_owned(), headers: Vec::new() }
    }
}

impl fmt::Debug for McpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http { url, .. } => {
                f.debug_struct("Http").field("url", url).finish_non_exhaustive()
            }
            Self::Process { program, .. } => {
                f.debug_struct("Process").field("program", program).finish_non_exhaustive()
            }
        }
    }
}

/// A connection on which the protocol is agreed on. Dropped, it ends.
pub(super) struct McpConnection {
    service: RunningService<RoleClient, HostHandler>,
    _child: Option<Child>,
}

impl McpConnection {
    pub(super) fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    /// Waits until it ends.
    pub(super) async fn wait_closed(&self) {
        while !self.service.is_transport_closed() {
            tokio::time::sleep(CLOSE_POLL_INTERVAL).await;
        }
    }
}

/// Connects; or why not, as the end of a sentence.
pub(super) async fn connect(
    way: &McpEndpoint,
    changed: Arc<Notify>,
) -> Result<McpConnection, String> {
    let host = HostHandler { relist: changed };
    // Newer servers are asked who they are, older ones shake hands.
    let lifecycle = ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: None,
    };
    let failed = |error: ClientInitializeError| format!("it cannot be connected to: {error}");
    let (running, child) = match way {
        McpEndpoint::Http { url, headers } => {
            let headers: HashMap<_, _> = headers.iter().cloned().collect();
            let config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
                .custom_headers(headers)
                .max_sse_event_size(MAX_MESSAGE_BYTES);
            let transport =
                StreamableHttpClientTransport::with_client(http_client(url).await?, config);
            let running = host.serve_with_lifecycle(transport, lifecycle).await;
            (running.map_err(failed)?, None)
        }
        McpEndpoint::Process { program, arguments } => {
            let mut command = Command::new(program);
            command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
            let child = command.kill_on_drop(true).spawn();
            let mut child = child.map_err(|error| format!("it cannot be started: {error}"))?;
            let (Some(stdout), Some(stdin)) = (child.stdout.take(), child.stdin.take()) else {
                return Err("its stdin and stdout are not to be had".to_owned());
            };
            let lines = AsyncRwTransport::new_client(stdout, stdin);
            let lines = lines.with_max_line_length(MAX_MESSAGE_BYTES);
            let running = host.serve_with_lifecycle(lines, lifecycle).await;
            (running.map_err(failed)?, Some(child))
        }
    };
    // What is read is verified, and a version that is gone is no use.
    running.peer().set_response_cache_config(ClientCacheConfig::disabled()).await;
    Ok(McpConnection { service: running, _child: child })
}

/// The HTTP client. It follows no redirects, so that what is shown to one server is shown to no other.
async fn http_client(url: &str) -> Result<reqwest::Client, String> {
    let failed = |error: &dyn fmt::Display| format!("there is no HTTP client: {error}");
    let roots = if url.starts_with("https:") {
        // Reads files.
        let read = tokio::task::spawn_blocking(native_roots).await;
        read.map_err(|error| failed(&error))?
    } else {
        RootCertStore::empty()
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(reqwest::redirect::Policy::none())
        .pool_max_idle_per_host(0)
        .build()
        .map_err(|error| failed(&error))
}

/// The authorities that this machine trusts.
fn native_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// What a server sees of this host.
#[derive(Debug)]
struct HostHandler {
    relist: Arc<Notify>,
}

impl ClientHandler for HostHandler {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        let skills = [(SKILLS_EXTENSION_ID.to_owned(), JsonObject::new())];
        capabilities.extensions = Some(skills.into_iter().collect());
        let name = Implementation::new("caproot", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(capabilities, name)
    }

    async fn on_resource_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.relist.notify_one();
    }
}
