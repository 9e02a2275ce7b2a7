//! Sources of a session next to its executors: local directories, served by a daemon of the Python
//! program, MCP servers, and sites.

use crate::callback::CallbackTarget;
use crate::failure::Failure;
use crate::mailbox::MailboxShared;
use caproot_client::session::SessionOptions;
use caproot_client::session::sources::mcp::{McpEndpoint, McpServerList, McpToken};
use caproot_client::session::sources::site::{SiteConfig, SiteSource};
use caproot_client::session::sources::{DaemonSource, SkillSource, SourceKind};
use caproot_client::{Client, ClientCredentials, DaemonEndpoint, published_selection};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Time limit of a call of a local daemon.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Description of the sources.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourcesSpec {
    local: Vec<LocalSpec>,
    /// Object `mcpServers` of MCP hosts.
    mcp_servers: BTreeMap<String, Value>,
    /// Python functions that return the token of a server, by the name of the server.
    mcp_tokens: BTreeMap<String, u64>,
    sites: Vec<SiteSpec>,
}

/// Site with an index of skills.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SiteSpec {
    host: String,
    allow_private: bool,
}

/// Daemon of local directories.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LocalSpec {
    id: String,
    address: String,
}

impl SourcesSpec {
    /// Returns whether there is no source.
    pub fn is_empty(&self) -> bool {
        self.local.is_empty() && self.mcp_servers.is_empty() && self.sites.is_empty()
    }

    /// Returns the MCP servers, and adds the mistakes.
    pub fn parse_servers(
        &self,
        mailbox: &Arc<MailboxShared>,
        mistakes: &mut Vec<String>,
    ) -> McpServerList {
        if self.mcp_servers.is_empty() {
            return McpServerList::default();
        }
        let text = serde_json::json!({ "mcpServers": self.mcp_servers }).to_string();
        let parsed = McpServerList::parse(&text, &|name| std::env::var(name).ok());
        let mut list = parsed.unwrap_or_else(|errors| {
            mistakes.extend(errors.iter().map(ToString::to_string));
            McpServerList::default()
        });
        mistakes.append(&mut list.warnings);

        for server in &mut list.servers {
            let handler = self.mcp_tokens.get(&server.name);
            if let (Some(handler), McpEndpoint::Http { token, .. }) =
                (handler, &mut server.endpoint)
            {
                *token = Some(callback_token(mailbox.clone(), *handler));
            }
        }
        list
    }

    /// Starts all sources.
    pub async fn start(
        &self,
        servers: McpServerList,
        options: &SessionOptions,
    ) -> Result<Vec<Arc<dyn SkillSource>>, Failure> {
        let mut sources: Vec<Arc<dyn SkillSource>> = Vec::new();
        for local in &self.local {
            sources.push(Arc::new(local.start(options).await?));
        }
        sources.extend(servers.start(options.start_timeout).await);
        for site in &self.sites {
            let started = SiteSource::start(SiteConfig {
                allows_private_addresses: site.allow_private,
                start_timeout: options.start_timeout,
                ..SiteConfig::new(&site.host)
            });
            let source = started.await;
            let source = source.map_err(|error| Failure::config(vec![error.to_string()]))?;
            sources.push(Arc::new(source));
        }
        Ok(sources)
    }
}

impl LocalSpec {
    async fn start(&self, options: &SessionOptions) -> Result<DaemonSource, Failure> {
        let endpoint: DaemonEndpoint = self
            .address
            .parse()
            .map_err(|error| Failure::config(vec![format!("local skills: {error}")]))?;
        let mut client =
            Client::connect(&endpoint, &ClientCredentials::default(), CALL_TIMEOUT).await?;
        let roots = published_selection(client.list_roots().await?, None);

        Ok(DaemonSource::start(SourceKind::Local, &self.id, client, roots, options).await)
    }
}

/// Returns a token that a Python function returns.
fn callback_token(mailbox: Arc<MailboxShared>, handler: u64) -> McpToken {
    let target = CallbackTarget { mailbox, handler };
    McpToken::Callback(Arc::new(move || Box::pin(request_token(target.clone()))))
}

async fn request_token(target: CallbackTarget) -> Result<String, String> {
    let answer = target.call(0, "null".to_owned()).await?;
    serde_json::from_str(&answer).map_err(|error| error.to_string())
}
