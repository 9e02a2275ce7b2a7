//! Connections to an MCP server over HTTP, or to a child process over stdin and stdout.

use super::limits::MAX_LARGE_MESSAGE_BYTES;
use super::messages::{LineTransport, McpHttp, ReceivedMessages};
use super::token::{HttpCredential, McpToken, TokenClient, check_credentials};
use crate::network::authorization::Authorizer;
use crate::network::http_client::{build_client, http_client_builder, root_cause};
#[cfg(unix)]
use caproot_core::process_group::kill_group;
use caproot_core::text::SentenceResult as _;
use http::{HeaderName, HeaderValue};
use rmcp::model::{
    ClientCapabilities, ClientConfig, Implementation, JsonObject, ProtocolVersion,
    SKILLS_EXTENSION_ID,
};
use rmcp::service::{
    ClientCacheConfig, ClientInitializeError, ClientLifecycleMode, ClientServiceExt as _,
    NotificationContext, Peer, RunningService, ServiceError,
};
use rmcp::transport::streamable_http_client::{
    StreamableHttpClientTransportConfig, StreamableHttpError,
};
use rmcp::transport::{DynamicTransportError, IntoTransport, StreamableHttpClientTransport};
use rmcp::{ClientHandler, RoleClient};
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::sync::Notify;

/// Interval at which the end of a connection is polled; the SDK has no notification.
const CLOSE_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Environment variables that a server in a child process inherits, as with the official SDKs. Other
/// variables of this process may be secrets of other programs.
const INHERITED_VARIABLES: [&str; 10] = [
    "HOME",
    "LANG",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
    "XDG_RUNTIME_DIR",
];

/// Endpoint of an MCP server.
#[derive(Clone)]
pub enum McpEndpoint {
    /// Server over HTTP.
    Http {
        /// URL of the server, such as `http://127.0.0.1:7421/mcp`.
        url: String,
        /// Headers of each request, such as `authorization`; never logged. Credentials are sent only over
        /// https or to a loopback address.
        headers: Vec<(HeaderName, HeaderValue)>,
        /// Bearer token, if the server needs a token that expires.
        token: Option<McpToken>,
    },
    /// Server in a child process, which ends with the source. Its stderr is the stderr of this
    /// process.
    Process {
        /// Path or name of the program.
        program: String,
        /// Arguments of the program.
        arguments: Vec<String>,
        /// Environment variables. In addition, the process inherits `HOME`, `LANG`, `LOGNAME`,
        /// `PATH`, `SHELL`, `TERM`, `TMPDIR`, `TZ`, `USER` and `XDG_RUNTIME_DIR`.
        environment: BTreeMap<String, String>,
        /// Working directory; that of this process by default. A relative `program` with a slash
        /// starts here.
        working_directory: Option<PathBuf>,
    },
    /// Connection of the program, such as for the tools of the server. The source uses the
    /// connection and never closes it. If the connection ends, the source stays unavailable. The
    /// size limit of a message and the response cache are the program's: switch the cache off with
    /// `set_response_cache_config`, or a file that changed is rejected until the cached file
    /// expires. If the program's handler is notified of changed resources, it calls
    /// [`super::McpSource::refresh`].
    Connected(Peer<RoleClient>),
}

impl McpEndpoint {
    /// Returns an HTTP endpoint without headers.
    #[must_use]
    pub fn http(url: &str) -> Self {
        Self::Http {
            url: url.to_owned(),
            headers: Vec::new(),
            token: None,
        }
    }

    /// Returns the endpoint of a program without arguments and additional environment variables.
    #[must_use]
    pub fn process(program: &str) -> Self {
        Self::Process {
            program: program.to_owned(),
            arguments: Vec::new(),
            environment: BTreeMap::new(),
            working_directory: None,
        }
    }
}

impl fmt::Debug for McpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http { url, .. } => f
                .debug_struct("Http")
                .field("url", url)
                .finish_non_exhaustive(),
            Self::Process { program, .. } => f
                .debug_struct("Process")
                .field("program", program)
                .finish_non_exhaustive(),
            Self::Connected(_) => f.debug_tuple("Connected").finish_non_exhaustive(),
        }
    }
}

/// Initialized connection. Closed on drop, unless the program made the connection.
pub struct McpConnection {
    peer: Peer<RoleClient>,
    /// Messages of the server.
    pub messages: Arc<ReceivedMessages>,
    _service: Option<RunningService<RoleClient, HostHandler>>,
    _process: Option<ServerProcess>,
}

/// Link to a server.
#[derive(Debug, Clone)]
pub struct ServerLink {
    /// Name of the server.
    pub server: String,
    pub peer: Peer<RoleClient>,
    pub messages: Arc<ReceivedMessages>,
}

/// Process of a server. Drop kills the process and its children.
struct ServerProcess(#[cfg_attr(not(unix), allow(dead_code))] Child);

#[cfg(unix)]
impl Drop for ServerProcess {
    fn drop(&mut self) {
        // A process that was waited for has no id any more, so no other group is killed.
        if let Some(id) = self.0.id() {
            kill_group(id);
        }
    }
}

impl McpConnection {
    pub fn peer(&self) -> &Peer<RoleClient> {
        &self.peer
    }

    /// Waits until the connection ends.
    pub async fn wait_closed(&self) {
        while !self.peer.is_transport_closed() {
            tokio::time::sleep(CLOSE_POLL_INTERVAL).await;
        }
    }
}

/// Connects to a server, whose credential can be given after a 401. Errors are the end of a sentence.
pub async fn connect(
    endpoint: &McpEndpoint,
    authorizer: Option<&Arc<Authorizer>>,
    relist: Arc<Notify>,
) -> Result<McpConnection, String> {
    let host = HostHandler {
        relist,
        ..HostHandler::default()
    };
    match endpoint {
        McpEndpoint::Connected(peer) if peer.is_transport_closed() => {
            Err("the program closed the connection".to_owned())
        }
        McpEndpoint::Connected(peer) => Ok(McpConnection {
            peer: peer.clone(),
            messages: Arc::default(),
            _service: None,
            _process: None,
        }),

        McpEndpoint::Http {
            url,
            headers,
            token,
        } => {
            let client = build_client(http_client_builder(url).await?.pool_max_idle_per_host(0))?;
            let credential = match authorizer {
                Some(authorizer) => HttpCredential::OnDemand(authorizer.clone()),
                None => HttpCredential::from_token(token.clone()),
            };
            connect_http(host, client, url, headers, credential).await
        }

        McpEndpoint::Process {
            program,
            arguments,
            environment,
            working_directory,
        } => {
            let mut command = server_command(program, environment);
            command.args(arguments);
            if let Some(directory) = working_directory {
                command.current_dir(directory);
            }

            let mut child = command.spawn().context("it cannot be started")?;
            let (Some(stdout), Some(stdin)) = (child.stdout.take(), child.stdin.take()) else {
                return Err("its stdin and stdout cannot be opened".to_owned());
            };
            let lines = LineTransport::new(stdin, stdout, host.messages.clone());
            host.open_connection(lines, Some(ServerProcess(child)))
                .await
        }
    }
}

/// Connects to a server over HTTP. Errors are the end of a sentence.
pub async fn connect_http(
    host: HostHandler,
    client: reqwest::Client,
    url: &str,
    headers: &[(HeaderName, HeaderValue)],
    credential: HttpCredential,
) -> Result<McpConnection, String> {
    check_credentials(url, headers, matches!(credential, HttpCredential::Token(_)))?;

    let client = TokenClient {
        http: McpHttp {
            client,
            messages: host.messages.clone(),
        },
        credential,
    };

    let config = StreamableHttpClientTransportConfig::with_uri(url)
        .custom_headers(headers.iter().cloned().collect())
        .max_sse_event_size(MAX_LARGE_MESSAGE_BYTES);
    host.open_connection(
        StreamableHttpClientTransport::with_client(client, config),
        None,
    )
    .await
}

/// Returns the command of a server, with the inherited variables of this process.
fn server_command(program: &str, environment: &BTreeMap<String, String>) -> Command {
    let mut command = Command::new(program);
    // The children of the server end with it.
    #[cfg(unix)]
    command.process_group(0);
    command
        .env_clear()
        .envs(
            INHERITED_VARIABLES
                .iter()
                .filter_map(|name| Some((name, std::env::var_os(name)?))),
        )
        .envs(environment)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Returns the reason of a failed initialization, without the names of the transport's types.
fn initialize_error_reason(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::TransportError { error, .. } => transport_reason(error),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => {
            initialize_error_reason(fallback)
        }
        error => error.to_string(),
    }
}

/// Returns the reason of a failed request, without the names of the transport's types.
pub fn transport_reason(error: &DynamicTransportError) -> String {
    match error.error.downcast_ref() {
        Some(StreamableHttpError::<reqwest::Error>::Client(error)) => root_cause(error),
        Some(StreamableHttpError::Io(error)) => error.to_string(),
        _ => error.error.to_string(),
    }
}

/// Returns the reason of a failed request like [`transport_reason`].
pub fn request_reason(error: &ServiceError) -> String {
    match error {
        ServiceError::TransportSend(error) => transport_reason(error),
        error => error.to_string(),
    }
}

/// Handler of the notifications of a server.
#[derive(Debug, Default)]
pub struct HostHandler {
    /// Notified when the skills may have changed.
    pub relist: Arc<Notify>,
    /// Whether the server reported that its tools changed.
    pub changed_tools: Arc<AtomicBool>,
    /// Messages of the server.
    pub messages: Arc<ReceivedMessages>,
}

impl HostHandler {
    /// Initializes a connection over a transport. The connection holds the process of the server.
    async fn open_connection<T, E, A>(
        self,
        transport: T,
        process: Option<ServerProcess>,
    ) -> Result<McpConnection, String>
    where
        T: IntoTransport<RoleClient, E, A>,
        E: Error + Send + Sync + 'static,
    {
        // Newer servers answer a discovery request; older servers need the initialize handshake.
        let lifecycle = ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: None,
        };
        let messages = self.messages.clone();
        let service = self
            .serve_with_lifecycle(transport, lifecycle)
            .await
            .map_err(|error| initialize_error_reason(&error))
            .context("it cannot be connected to")?;

        // Files are verified, so a cached old version is of no use.
        let peer = service.peer().clone();
        peer.set_response_cache_config(ClientCacheConfig::disabled())
            .await;
        Ok(McpConnection {
            peer,
            messages,
            _service: Some(service),
            _process: process,
        })
    }
}

impl ClientHandler for HostHandler {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        capabilities.extensions =
            Some([(SKILLS_EXTENSION_ID.to_owned(), JsonObject::new())].into());
        ClientConfig::new(
            capabilities,
            Implementation::new("caproot", env!("CARGO_PKG_VERSION")),
        )
    }

    async fn on_resource_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.relist.notify_one();
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed_tools.store(true, Ordering::Relaxed);
    }
}
