//! Connection to one MCP server of a plugin: its tools and their calls.

use super::declaration::DeclaredServer;
use super::limits::{
    DEFAULT_STARTUP_TIME, MAX_CALL_TIME, MAX_LISTED_TOOLS, MAX_SERVER_CALLS, MAX_STARTUP_TIME,
};
use crate::network::address_check::{ServerAddress, checked_client_builder};
use crate::network::authorization::Authorizer;
use crate::network::http_client::build_client;
use crate::options::server_options::McpServerOptions;
use crate::sources::mcp::connection::{HostHandler, McpConnection, connect_http, transport_reason};
use crate::sources::mcp::limits::MAX_PAGES;
use crate::sources::mcp::messages::{OmittedEntry, ReceivedMessages};
use crate::sources::mcp::token::HttpCredential;
use crate::tools::limits::DEFAULT_TIME_LIMIT;
use caproot_core::json::{MAX_TREE_MEMORY, estimate_tree_memory};
use caproot_core::text::{single_line, truncate_with_ellipsis};
use http::{HeaderName, HeaderValue};
use rmcp::RoleClient;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, JsonObject, PaginatedRequestParams,
    Tool,
};
use rmcp::service::{Peer, ServiceError};
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::timeout;

/// Limit of a reason that a server wrote, in bytes.
const MAX_REASON_BYTES: usize = 512;

/// MCP server of a plugin.
pub struct PluginServer {
    pub declared: DeclaredServer,
    pub address: ServerAddress,
    client: reqwest::Client,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// Missing if the declaration has a credential.
    pub authorizer: Option<Arc<Authorizer>>,
    /// The lock is held during a connection attempt, so that one attempt serves all calls.
    connection: Mutex<Option<McpConnection>>,
    /// Whether the server reported that its tools changed.
    pub changed_tools: Arc<AtomicBool>,
    messages: Arc<ReceivedMessages>,
    /// Reason of the end; the end of a sentence.
    end_reason: OnceLock<String>,
    permits: Semaphore,
}

/// Tools of a server.
#[derive(Default)]
pub struct ListedTools {
    pub tools: Vec<Tool>,
    /// Whether the server has more tools than are read.
    pub truncated: bool,
    /// Malformed tools.
    pub omitted: Vec<OmittedEntry>,
}

impl PluginServer {
    /// Returns a server that is not connected, and adds the names of the values that the program did not
    /// give to `missing`. Errors are the end of a sentence.
    pub async fn open(
        declared: DeclaredServer,
        options: &McpServerOptions,
        missing: &mut Vec<String>,
    ) -> Result<Self, String> {
        let address = declared.check_address(&options.private_origins)?;
        let values = declared.request_headers(&address.origin, &options.values);
        let values = values.await;
        missing.extend(values.missing);

        let builder = checked_client_builder(&address.url, address.policy).await?;
        // A new connection for each request, so that each request has a checked address.
        let client = build_client(builder.pool_max_idle_per_host(0))?;
        Ok(Self {
            authorizer: declared.authorizer(&address, options),
            declared,
            address,
            client,
            headers: values.headers,
            connection: Mutex::default(),
            changed_tools: Arc::default(),
            messages: Arc::default(),
            end_reason: OnceLock::new(),
            permits: Semaphore::new(MAX_SERVER_CALLS),
        })
    }

    /// Returns the time limit of a call.
    pub fn call_time(&self) -> Duration {
        let declared = self.declared.server.tool_timeout_ms;
        let limit = declared.map_or(DEFAULT_TIME_LIMIT, Duration::from_millis);
        limit.clamp(Duration::from_millis(1), MAX_CALL_TIME)
    }

    fn startup_time(&self) -> Duration {
        let declared = self.declared.server.startup_timeout_ms;
        let limit = declared.map_or(DEFAULT_STARTUP_TIME, Duration::from_millis);
        limit.min(MAX_STARTUP_TIME)
    }

    /// Returns the reason why the server ended, as the end of a sentence. A server ends for good if its
    /// declaration changed.
    pub fn end_reason(&self) -> Option<&str> {
        if self.end_reason.get().is_none()
            && let Err(reason) = self.declared.check_current()
        {
            return Some(self.end_reason.get_or_init(|| reason));
        }
        self.end_reason.get().map(String::as_str)
    }

    /// Connects and returns the tools of the server, within the time limit of the start. Errors are the
    /// end of a sentence.
    pub async fn list_tools(&self) -> Result<ListedTools, String> {
        let limit = self.startup_time();
        let listed = timeout(limit, self.list_pages()).await;
        let listed = listed.unwrap_or_else(|_| {
            let limit = humantime::format_duration(limit);
            Err(format!("it does not answer within {limit}"))
        })?;
        if let Some(authorizer) = &self.authorizer {
            authorizer.accept_value();
        }
        Ok(listed)
    }

    async fn list_pages(&self) -> Result<ListedTools, String> {
        let peer = self.connect().await?;

        // Malformed entries of an earlier list do not count.
        self.messages.take_omitted();
        let mut listed = ListedTools::default();
        let mut memory = 0;
        let mut cursor = None;
        for _ in 0..MAX_PAGES {
            let page = PaginatedRequestParams::default().with_cursor(cursor);
            let page = peer.list_tools(Some(page)).await;
            let page = page.map_err(|error| {
                format!("its tools cannot be listed: {}", service_reason(&error))
            })?;

            listed.omitted.extend(self.messages.take_omitted());
            for tool in page.tools {
                let json = serde_json::to_vec(&tool).unwrap_or_default();
                memory += estimate_tree_memory(&json);
                if listed.tools.len() == MAX_LISTED_TOOLS || memory > MAX_TREE_MEMORY {
                    listed.truncated = true;
                    break;
                }
                listed.tools.push(tool);
            }
            cursor = page.next_cursor;
            if cursor.is_none() || listed.truncated {
                return Ok(listed);
            }
        }
        listed.truncated = true;
        Ok(listed)
    }

    /// Calls a tool, without a time limit. If the future is dropped, the call is cancelled at the server.
    /// Errors are the end of a sentence.
    pub async fn call_tool(
        &self,
        name: String,
        arguments: JsonObject,
    ) -> Result<CallToolResult, String> {
        let permit = self.permits.acquire().await;
        let _permit = permit.map_err(|_| "it is closed".to_owned())?;
        if let Some(reason) = self.end_reason() {
            let reason = reason.to_owned();
            // Closes the connection.
            self.connection.lock().await.take();
            return Err(reason);
        }

        let connected = timeout(self.startup_time(), self.connect()).await;
        let peer = connected.map_err(|_| "it does not answer in time".to_owned())??;
        let request = CallToolRequestParams::new(name).with_arguments(arguments);
        match peer.call_tool_once(request).await {
            Ok(CallToolResponse::Complete(result)) => Ok(result),
            Ok(_) => Err("it asks for input or starts a task, which is not offered".to_owned()),
            Err(error) => Err(service_reason(&error)),
        }
    }

    /// Returns the peer of the connection, and connects if there is none.
    async fn connect(&self) -> Result<Peer<RoleClient>, String> {
        let mut current = self.connection.lock().await;
        if let Some(connection) = &*current
            && !connection.peer().is_transport_closed()
        {
            return Ok(connection.peer().clone());
        }

        let host = HostHandler {
            changed_tools: self.changed_tools.clone(),
            messages: self.messages.clone(),
            ..HostHandler::default()
        };
        let url = self.address.url.as_str();
        let credential = match &self.authorizer {
            Some(authorizer) => HttpCredential::OnDemand(authorizer.clone()),
            None => HttpCredential::None,
        };
        let connected = connect_http(host, self.client.clone(), url, &self.headers, credential);
        let connection = connected.await.map_err(|reason| clean_reason(&reason))?;
        let peer = connection.peer().clone();
        *current = Some(connection);
        Ok(peer)
    }
}

impl fmt::Debug for PluginServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PluginServer")
            .field("server", &self.declared.server.name)
            .field("origin", &self.address.origin)
            .finish_non_exhaustive()
    }
}

/// Returns the reason of a failed request, without the names of the transport's types.
fn service_reason(error: &ServiceError) -> String {
    match error {
        ServiceError::McpError(error) => clean_reason(&error.message),
        ServiceError::TransportSend(error) => clean_reason(&transport_reason(error)),
        error => clean_reason(&error.to_string()),
    }
}

/// Returns a text of a server as a part of a sentence.
fn clean_reason(reason: &str) -> String {
    truncate_with_ellipsis(&single_line(reason), MAX_REASON_BYTES)
}
