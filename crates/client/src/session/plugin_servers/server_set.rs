//! MCP servers of the plugins of a session: start, state and saved digests.

use super::declaration::DeclaredServer;
use super::limits::MAX_SERVERS;
use super::result_store::ResultStore;
use super::server::{ListedTools, PluginServer};
use super::tool_table::{ServerTools, ToolTable};
use crate::session::choice::SkillChoice;
use crate::session::result::ResultForm;
use crate::session::saved::SavedServer;
use crate::session::server_options::{McpServerChoice, McpServerOptions, fits_server};
use crate::session::skill_source::SkillSource;
use crate::session::tools::{RegisteredTool, ToolSet};
use caproot_core::text::{quote_value, single_line};
use futures_util::future::join_all;
use serde::Serialize;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Handles that a warning lists.
const MAX_LISTED_HANDLES: usize = 16;

/// State of an MCP server of a plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpServerStatus {
    /// Kind of the plugin's source: `executor` or `local`.
    pub source_kind: String,
    /// Id of the plugin's source; the environment of an executor.
    pub source_id: String,
    /// Handle of the server: that of the plugin, `#` and the name.
    pub handle: String,
    /// Handle of the plugin.
    pub package: String,
    /// Name of the plugin.
    pub plugin: String,
    /// Name of the server.
    pub server: String,
    /// Origin of the server; empty if its URL is not used.
    pub origin: String,
    /// Full names of the tools.
    pub tools: Vec<String>,
    /// Digest of the definitions of the tools; empty without tools.
    pub digest: String,
    /// Reason if the server cannot be used; the end of a sentence.
    pub error: Option<String>,
}

/// Parts of a session that the start of its servers needs.
pub struct ServerStart<'a> {
    pub sources: &'a [Arc<dyn SkillSource>],
    pub choice: &'a SkillChoice,
    pub options: &'a McpServerOptions,
    /// Tools of the program.
    pub program: &'a ToolSet,
    pub form: ResultForm,
}

/// Servers of a session.
#[derive(Debug, Clone, Default)]
pub struct PluginServerSet {
    entries: Vec<PluginServerEntry>,
    reader: Option<Arc<RegisteredTool>>,
    /// Warnings of the start, without those of entries.
    warnings: Vec<String>,
}

#[derive(Debug, Clone)]
struct PluginServerEntry {
    declared: DeclaredServer,
    /// The server, or the reason why the session does not have its tools.
    server: Result<Arc<PluginServer>, String>,
    tools: Arc<ServerTools>,
    /// Names of the values that the program did not give.
    missing: Vec<String>,
}

/// Server that answered or failed.
struct StartedServer {
    declared: DeclaredServer,
    missing: Vec<String>,
    outcome: Result<ListedServer, String>,
}

struct ListedServer {
    server: Arc<PluginServer>,
    listed: ListedTools,
}

impl PluginServerSet {
    /// Connects to the chosen servers of plugins. A server that fails is a warning.
    pub async fn start(start: ServerStart<'_>) -> Self {
        let options = start.options;
        let mut warnings = Vec::new();
        let declared = find_declared(start.sources, start.choice);
        let mut declared = choose_servers(declared, &options.servers, &mut warnings);
        if declared.len() > MAX_SERVERS {
            let more = declared.len() - MAX_SERVERS;
            warnings.push(format!(
                "a session uses at most {MAX_SERVERS} MCP servers of plugins; {more} are omitted: \
                 choose servers by name"
            ));
            declared.truncate(MAX_SERVERS);
        }

        let starts = declared
            .into_iter()
            .map(|declared| StartedServer::start(declared, options));
        let started = join_all(starts).await;

        let form = start.form;
        let results = Arc::new(ResultStore::new(form.max_bytes));
        let mut table = ToolTable::new(start.program, form.names, results);
        let entries: Vec<_> = started
            .into_iter()
            .map(|server| server.into_entry(&mut table))
            .collect();
        Self {
            entries,
            reader: table.result_reader(),
            warnings,
        }
    }

    /// Returns the tools of all servers, and the tool that reads the rest of a result.
    pub fn tools(&self) -> impl Iterator<Item = Arc<RegisteredTool>> {
        let servers = self.entries.iter();
        let tools = servers.flat_map(|entry| entry.tools.tools.iter());
        tools.chain(&self.reader).cloned()
    }

    /// Returns the servers of the plugins that `includes` accepts.
    pub fn restricted_to(&self, includes: impl Fn(&DeclaredServer) -> bool) -> Self {
        let entries = self.entries.iter();
        Self {
            entries: entries
                .filter(|entry| includes(&entry.declared))
                .cloned()
                .collect(),
            ..self.clone()
        }
    }

    /// Returns the state of each server.
    pub fn statuses(&self) -> Vec<McpServerStatus> {
        self.entries.iter().map(PluginServerEntry::status).collect()
    }

    /// Returns the warnings of now, each a sentence.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.warnings.clone();
        for entry in &self.entries {
            entry.add_warnings(&mut warnings);
        }
        warnings
    }

    /// Returns the names and digests of the servers with tools.
    pub fn to_saved(&self) -> Vec<SavedServer> {
        let usable = self.entries.iter().filter(|entry| entry.server.is_ok());
        usable.map(PluginServerEntry::to_saved).collect()
    }

    /// Returns the differences from saved servers, one sentence each.
    pub fn changes_since(&self, saved: &[SavedServer]) -> Vec<String> {
        let now = self.to_saved();
        let mut changes = Vec::new();
        for before in saved {
            let phrase = format!("the MCP server {}", single_line(&before.handle));
            match now.iter().find(|server| server.is_same_server(before)) {
                None => changes.push(format!(
                    "{phrase} had tools when the session was saved, and has none now"
                )),
                Some(server) if server.digest != before.digest => {
                    changes.push(format!(
                        "{phrase} has other tools or another URL than when the session was saved"
                    ));
                }
                Some(_) => {}
            }
        }
        changes
    }
}

impl StartedServer {
    async fn start(declared: DeclaredServer, options: &McpServerOptions) -> Self {
        let mut missing = Vec::new();
        let outcome = Self::connect(&declared, options, &mut missing).await;
        Self {
            declared,
            missing,
            outcome,
        }
    }

    async fn connect(
        declared: &DeclaredServer,
        options: &McpServerOptions,
        missing: &mut Vec<String>,
    ) -> Result<ListedServer, String> {
        let address = declared.check_address(&options.private_origins)?;
        let headers = declared
            .request_headers(&address.origin, &options.values)
            .await;
        *missing = headers.missing;

        let server = PluginServer::new(declared.clone(), address, headers.headers).await?;
        let listed = server.list_tools().await?;
        Ok(ListedServer {
            server: Arc::new(server),
            listed,
        })
    }

    fn into_entry(self, table: &mut ToolTable) -> PluginServerEntry {
        let (server, tools) = match self.outcome {
            Ok(ListedServer { server, listed }) => {
                let tools = table.add_server(&server, listed);
                (Ok(server), tools)
            }
            Err(reason) => (Err(reason), ServerTools::default()),
        };
        PluginServerEntry {
            declared: self.declared,
            server,
            tools: Arc::new(tools),
            missing: self.missing,
        }
    }
}

impl PluginServerEntry {
    fn status(&self) -> McpServerStatus {
        let declared = &self.declared;
        let tools = self.tools.tools.iter();
        let server = self.server.as_ref();
        McpServerStatus {
            source_kind: declared.source.kind().name().to_owned(),
            source_id: declared.source.id().to_owned(),
            handle: declared.handle(),
            package: declared.plugin.package.clone(),
            plugin: declared.plugin.name.clone(),
            server: declared.server.name.clone(),
            origin: server.map_or_else(|_| String::new(), |server| server.address.origin.clone()),
            tools: tools.map(|tool| tool.full_name().to_owned()).collect(),
            digest: self.tools.digest.clone(),
            error: match server {
                Ok(server) => server.end_reason().map(str::to_owned),
                Err(reason) => Some(reason.clone()),
            },
        }
    }

    fn add_warnings(&self, warnings: &mut Vec<String>) {
        let phrase = self.declared.describe();
        match &self.server {
            Err(reason) => warnings.push(format!("{phrase} is not used: {reason}")),
            Ok(server) => {
                if let Some(reason) = server.end_reason() {
                    warnings.push(format!("{phrase} ended: {reason}"));
                } else if server.has_changed_tools() {
                    warnings.push(format!(
                        "{phrase} changed its tools; start another session to use the new tools"
                    ));
                }
            }
        }

        if !self.missing.is_empty() {
            let names: Vec<_> = self.missing.iter().map(|name| quote_value(name)).collect();
            let names = names.join(", ");
            warnings.push(format!("{phrase} has no value for {names}"));
        }
        warnings.extend(self.tools.warnings.iter().cloned());
    }

    fn to_saved(&self) -> SavedServer {
        let declared = &self.declared;
        let url = rmcp::model::sha256_digest(declared.server.url.as_bytes());
        SavedServer {
            source: format!("{}/{}", declared.source.kind().name(), declared.source.id()),
            handle: declared.handle(),
            digest: rmcp::model::sha256_digest(format!("{url} {}", self.tools.digest).as_bytes()),
        }
    }
}

/// Returns the servers of the plugins that a session has.
fn find_declared(sources: &[Arc<dyn SkillSource>], choice: &SkillChoice) -> Vec<DeclaredServer> {
    let mut declared = Vec::new();
    for source in sources {
        for plugin in source.plugins() {
            declared.extend(plugin.mcp_servers.iter().map(|server| DeclaredServer {
                source: source.clone(),
                plugin: plugin.clone(),
                server: server.clone(),
            }));
        }
    }
    declared.retain(|server: &DeclaredServer| server.is_included(choice));
    declared
}

/// Returns the chosen servers. A text that fits no server or several servers is a warning.
fn choose_servers(
    declared: Vec<DeclaredServer>,
    choice: &McpServerChoice,
    warnings: &mut Vec<String>,
) -> Vec<DeclaredServer> {
    let texts = match choice {
        McpServerChoice::None => return Vec::new(),
        McpServerChoice::All => return declared,
        McpServerChoice::Named(texts) => texts,
    };

    let mut chosen = BTreeSet::new();
    for text in texts {
        let fitting = (0..declared.len())
            .filter(|index| fits_server(text, &declared[*index].plugin, &declared[*index].server));
        match fitting.collect::<Vec<_>>().as_slice() {
            [only] => {
                chosen.insert(*only);
            }
            [] => warnings.push(format!(
                "no plugin of the session declares the MCP server {}",
                quote_value(text)
            )),
            several => {
                let handles = several.iter().take(MAX_LISTED_HANDLES);
                let handles: Vec<_> = handles.map(|index| declared[*index].handle()).collect();
                warnings.push(format!(
                    "{} MCP servers of plugins fit {}, so none is used; choose one by its handle: {}",
                    several.len(),
                    quote_value(text),
                    handles.join(", ")
                ));
            }
        }
    }

    let indexed = declared.into_iter().enumerate();
    let chosen = indexed.filter(|(index, _)| chosen.contains(index));
    chosen.map(|(_, server)| server).collect()
}
