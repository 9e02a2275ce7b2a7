//! Connections to an MCP server over HTTP, or to a child process over stdin and stdout.

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

/// Interval at which the end of a connection is polled; the SDK has no notification.
const CLOSE_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Endpoint of an MCP server.
#[derive(Clone, PartialEq, Eq)]
pub enum McpEndpoint {
    /// Server over HTTP.
    Http {
        /// URL of the server, such as `http://127.0.0.1:7421/mcp`.
        url: String,
        /// Headers of each request, such as `authorization`; never logged.
        headers: Vec<(HeaderName, HeaderValue)>,
    },
    /// Server in a child process, which ends with the source. Its stderr is the stderr of this
    /// process.
    Process {
        /// Path or name of the program.
        program: String,
        /// Arguments of the program.
        arguments: Vec<String>,
    },
}

impl McpEndpoint {
    /// Returns an HTTP endpoint without headers.
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

/// Initialized connection. Closed on drop.
pub struct McpConnection {
    service: RunningService<RoleClient, HostHandler>,
    _child: Option<Child>,
}

impl McpConnection {
    pub fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    /// Waits until the connection ends.
    pub async fn wait_closed(&self) {
        while !self.service.is_transport_closed() {
            tokio::time::sleep(CLOSE_POLL_INTERVAL).await;
        }
    }
}

/// Connects to a server. Errors are the end of a sentence.
pub async fn connect(endpoint: &McpEndpoint, relist: Arc<Notify>) -> Result<McpConnection, String> {
    let host = HostHandler { relist };
    // Newer servers answer a discovery request; older servers need the initialize handshake.
    let lifecycle = ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: None,
    };
    let failed = |error: ClientInitializeError| format!("it cannot be connected to: {error}");
    let (running, child) = match endpoint {
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
                return Err("its stdin and stdout cannot be opened".to_owned());
            };
            let lines = AsyncRwTransport::new_client(stdout, stdin);
            let lines = lines.with_max_line_length(MAX_MESSAGE_BYTES);
            let running = host.serve_with_lifecycle(lines, lifecycle).await;
            (running.map_err(failed)?, Some(child))
        }
    };
    // Files are verified, so a cached old version is of no use.
    running.peer().set_response_cache_config(ClientCacheConfig::disabled()).await;
    Ok(McpConnection { service: running, _child: child })
}

/// Returns an HTTP client. The client follows no redirects, so that no other server gets the
/// headers.
async fn http_client(url: &str) -> Result<reqwest::Client, String> {
    let failed = |error: &dyn fmt::Display| format!("there is no HTTP client: {error}");
    let roots = if url.starts_with("https:") {
        // The certificates are read from files.
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

/// Returns the certificate authorities that this machine trusts.
fn native_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// Handler of the notifications of a server.
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
