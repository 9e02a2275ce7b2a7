//! Declarations of MCP servers in plugins: their URLs, which must be safe to connect to, and their
//! headers with the values of the program.

use super::limits::{MAX_VALUE_BYTES, VALUE_TIMEOUT};
use crate::network::address_check::{ServerAddress, parse_server_url};
use crate::network::authorization::{AuthorizationRequest, Authorizer};
use crate::options::choice::SkillChoice;
use crate::options::server_options::{McpServerOptions, ServerValueRequest, ServerValues};
use crate::skills::skill_source::SkillSource;
use crate::sources::mcp::token::is_credential;
use caproot_core::proto::caproot::v1::{McpServer, McpTransport, Plugin};
use caproot_core::text::variables::{ValuePart, split_variables};
use caproot_core::wire::handle::format_server_handle;
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use std::sync::Arc;
use tokio::time::timeout;

/// Headers that only the HTTP client sets.
const CLIENT_HEADERS: [&str; 6] = [
    "connection",
    "content-length",
    "host",
    "proxy-authorization",
    "te",
    "transfer-encoding",
];

/// Declaration of a server by a plugin of a source.
#[derive(Debug, Clone)]
pub struct DeclaredServer {
    pub source: Arc<dyn SkillSource>,
    pub plugin: Arc<Plugin>,
    pub server: McpServer,
}

/// Headers of each request, and the names of the values that the program did not give.
#[derive(Default)]
pub struct ServerHeaders {
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub missing: Vec<String>,
}

impl DeclaredServer {
    /// Returns the handle of the server.
    pub fn handle(&self) -> String {
        format_server_handle(&self.plugin.package, &self.server.name)
    }

    /// Returns a phrase for the server.
    pub fn describe(&self) -> String {
        format!("the MCP server {}", self.handle())
    }

    /// Returns the id of the authority of the plugin.
    pub fn authority(&self) -> &str {
        let authority = self.plugin.authority.as_ref();
        authority.map_or("", |authority| &authority.id)
    }

    /// Returns whether a choice includes the plugin.
    pub fn is_included(&self, choice: &SkillChoice) -> bool {
        choice.includes(&*self.source, &self.plugin.name, &self.plugin.package)
    }

    /// Returns the address, or the reason why the server is not used as the end of a sentence.
    pub fn check_address(&self, private_origins: &[String]) -> Result<ServerAddress, String> {
        match self.server.transport() {
            McpTransport::StreamableHttp if self.server.enabled == Some(false) => {
                Err("its declaration disables it".to_owned())
            }
            McpTransport::StreamableHttp => parse_server_url(&self.server.url, private_origins),
            McpTransport::Sse => {
                Err("its transport `sse` is obsolete; use streamable HTTP".to_owned())
            }
            _ => Err(format!(
                "it runs as a process; on its executor, `caproot exec --server {}` starts it",
                self.handle()
            )),
        }
    }

    /// Returns the authorizer of the server at an address; `None` if the declaration has a credential.
    pub fn authorizer(
        &self,
        address: &ServerAddress,
        options: &McpServerOptions,
    ) -> Option<Arc<Authorizer>> {
        let server = &self.server;
        let mut names = server.headers.iter().map(|header| &header.name);
        if !server.bearer_token_variable.is_empty()
            || names.any(|name| is_credential(&name.to_ascii_lowercase()))
        {
            return None;
        }

        let request = AuthorizationRequest {
            source_kind: self.source.kind().name().to_owned(),
            source_id: self.source.id().to_owned(),
            package: Some(self.plugin.package.clone()),
            plugin: Some(self.plugin.name.clone()),
            server: server.name.clone(),
            url: address.url.to_string(),
            origin: address.origin.clone(),
            resource_metadata: None,
            scopes: Vec::new(),
            error: None,
        };
        Some(Authorizer::new(
            options.authorize.clone(),
            request,
            options.private_origins.clone(),
        ))
    }

    /// Checks that the plugin still declares the server with its URL. A source that is unavailable
    /// changes nothing.
    pub fn check_current(&self) -> Result<(), String> {
        let plugins = self.source.plugins();
        let current = plugins
            .iter()
            .find(|plugin| plugin.package == self.plugin.package);
        let reason = match current {
            Some(current) => {
                let McpServer { name, url, .. } = &self.server;
                let mut servers = current.mcp_servers.iter();
                if servers.any(|server| server.name == *name && server.url == *url) {
                    return Ok(());
                }
                "its declared URL changed; start another session to use the new URL"
            }
            None if self.source.snapshot().unavailable_reason.is_some() => return Ok(()),
            None => "its plugin no longer exists",
        };
        Err(reason.to_owned())
    }

    /// Returns the headers of the declaration, with the values that the program gives for an origin.
    pub async fn request_headers(&self, origin: &str, values: &ServerValues) -> ServerHeaders {
        let mut all = ServerHeaders::default();
        let requested = timeout(VALUE_TIMEOUT, self.add_headers(&mut all, origin, values)).await;
        if requested.is_err() {
            all.missing
                .push("values that the program did not give in time".to_owned());
        }
        all
    }

    async fn add_headers(&self, all: &mut ServerHeaders, origin: &str, values: &ServerValues) {
        for declared in &self.server.headers {
            let value = if let Some(value) = &declared.value {
                self.expand_value(value, origin, values).await
            } else {
                let variable = match declared.from_variable.as_str() {
                    "" => &declared.name,
                    variable => variable,
                };
                self.request_value(variable, origin, values).await
            };
            all.add(&declared.name, value);
        }

        let variable = &self.server.bearer_token_variable;
        if !variable.is_empty() {
            let token = self.request_value(variable, origin, values).await;
            let bearer = token.map(|token| format!("Bearer {token}"));
            all.add(AUTHORIZATION.as_str(), bearer);
        }
    }

    /// Returns a declared value with the values of its variables, such as `Bearer ${TOKEN}`. The error
    /// is the name of a missing value.
    async fn expand_value(
        &self,
        value: &str,
        origin: &str,
        values: &ServerValues,
    ) -> Result<String, String> {
        let mut expanded = String::new();
        for part in split_variables(value) {
            match part {
                ValuePart::Text(text) => expanded.push_str(text),
                ValuePart::Variable { name, .. } => {
                    expanded.push_str(&self.request_value(name, origin, values).await?);
                }
            }
        }
        Ok(expanded)
    }

    async fn request_value(
        &self,
        name: &str,
        origin: &str,
        values: &ServerValues,
    ) -> Result<String, String> {
        let request = ServerValueRequest {
            source_kind: self.source.kind(),
            source_id: self.source.id().to_owned(),
            package: self.plugin.package.clone(),
            plugin: self.plugin.name.clone(),
            server: self.server.name.clone(),
            origin: origin.to_owned(),
            name: name.to_owned(),
        };
        let value = values.request(request).await;
        value
            .filter(|value| value.len() <= MAX_VALUE_BYTES)
            .ok_or_else(|| name.to_owned())
    }
}

impl ServerHeaders {
    /// Adds a header, or records that the header cannot be sent.
    fn add(&mut self, name: &str, value: Result<String, String>) {
        let header = value.and_then(|value| {
            let name = HeaderName::try_from(name).map_err(|_| name.to_owned())?;
            let mut value = HeaderValue::try_from(value).map_err(|_| name.to_string())?;
            value.set_sensitive(true);
            if CLIENT_HEADERS.contains(&name.as_str()) {
                return Err(name.to_string());
            }
            Ok((name, value))
        });
        match header {
            Ok(header) => self.headers.push(header),
            Err(name) => self.missing.push(name),
        }
    }
}
