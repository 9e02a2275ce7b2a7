//! MCP servers of the plugins of a session: start, state and saved digests.

use super::declaration::DeclaredServer;
use super::limits::MAX_SERVERS;
use super::result_store::ResultStore;
use super::server::{ListedTools, PluginServer};
use super::tool_table::{ServerTools, ToolTable};
use crate::network::authorization::Authorizer;
use crate::options::choice::SkillChoice;
use crate::options::server_options::{McpServerChoice, McpServerOptions, fits_server};
use crate::skills::result::ResultForm;
use crate::skills::skill_source::{SkillSource, SourceChanges, channel_changes};
use crate::storage::saved::SavedServer;
use crate::tools::ToolSet;
use caproot_core::sync::Mutex;
use caproot_core::text::{quote_value, single_line};
use futures_util::future::join_all;
use rmcp::model::sha256_digest;
use serde::Serialize;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::watch;

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

/// Servers of a session. The session and its forks share the connections and the tools.
#[derive(Debug, Default)]
pub struct PluginServerSet {
    shared: Arc<SharedServers>,
    /// Indexes of the servers that the session has.
    included: Vec<usize>,
    /// Tools of the program and of the servers, and the revision of the servers.
    tools: Mutex<Option<(u64, Arc<ToolSet>)>>,
}

#[derive(Debug, Default)]
struct SharedServers {
    servers: Vec<SharedServer>,
    table: Mutex<ToolTable>,
    /// Warnings of the start, without those of servers.
    warnings: Vec<String>,
    /// Number of changes of tools.
    revision: AtomicU64,
}

#[derive(Debug)]
struct SharedServer {
    declared: DeclaredServer,
    /// The server, or the reason why the session never has its tools.
    server: Result<Arc<PluginServer>, String>,
    /// Names of the values that the program did not give.
    missing: Vec<String>,
    /// Tools of the first list.
    tools: OnceLock<ServerTools>,
    /// Reason of a failed list.
    list_error: Mutex<Option<String>>,
    /// Notified after each change of the state.
    changes: watch::Sender<()>,
}

impl PluginServerSet {
    /// Connects to the chosen servers of plugins. A server that fails is a warning. A server that needs
    /// `Authorization` of the program is not waited for: its tools are a change.
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

        let starts = declared.into_iter().map(|declared| async {
            let mut missing = Vec::new();
            let server = PluginServer::open(declared.clone(), options, &mut missing).await;
            let server = SharedServer {
                declared,
                server: server.map(Arc::new),
                missing,
                tools: OnceLock::new(),
                list_error: Mutex::default(),
                changes: watch::Sender::default(),
            };
            let listed = server.list_tools().await;
            (server, listed)
        });
        let started = join_all(starts).await;

        let form = start.form;
        let results = Arc::new(ResultStore::new(form.max_bytes));
        let mut table = ToolTable::new(start.program, form.names, results);
        let servers: Vec<_> = started
            .into_iter()
            .map(|(server, listed)| {
                server.store_list(listed, &mut table);
                server
            })
            .collect();

        let included = (0..servers.len()).collect();
        let shared = Arc::new(SharedServers {
            servers,
            table: Mutex::new(table),
            warnings,
            revision: AtomicU64::new(0),
        });
        shared.follow_answers();
        Self {
            shared,
            included,
            tools: Mutex::default(),
        }
    }

    fn servers(&self) -> impl Iterator<Item = &SharedServer> {
        let included = self.included.iter();
        included.map(|index| &self.shared.servers[*index])
    }

    /// Returns the tools of the program followed by those of all servers and the tool that reads the rest
    /// of a result; the same `Arc` if nothing changed.
    pub fn tool_set(&self, program: &Arc<ToolSet>) -> Arc<ToolSet> {
        if self.included.is_empty() {
            return program.clone();
        }

        // The revision is read first: if the tools change meanwhile, the next call reads them again.
        let revision = self.shared.revision.load(Ordering::Acquire);
        let mut cached = self.tools.lock();
        if let Some((of, tools)) = &*cached
            && *of == revision
        {
            return tools.clone();
        }

        let tools = self.servers().filter_map(|server| server.tools.get());
        let tools = tools.flat_map(|tools| tools.tools.iter().cloned());
        let table = self.shared.table.lock();
        let reader = table.result_reader();
        let set = Arc::new(program.with_server_tools(tools.chain(reader)));
        *cached = Some((revision, set.clone()));
        set
    }

    /// Returns the changes of each server, with the source of its plugin.
    pub fn changes(&self) -> impl Iterator<Item = (&dyn SkillSource, SourceChanges)> {
        self.servers().map(|server| {
            let changes = channel_changes(server.changes.subscribe());
            (&*server.declared.source, changes)
        })
    }

    /// Returns the servers of the plugins that `includes` accepts.
    pub fn restricted_to(&self, includes: impl Fn(&DeclaredServer) -> bool) -> Self {
        let indexes = self.included.iter().copied();
        Self {
            shared: self.shared.clone(),
            included: indexes
                .filter(|index| includes(&self.shared.servers[*index].declared))
                .collect(),
            tools: Mutex::default(),
        }
    }

    /// Connects again to the servers that cannot be used, and asks the program for `Authorization` again.
    pub async fn retry(&self) {
        let retries = self.included.iter().map(|index| async {
            let server = &self.shared.servers[*index];
            if server.error().is_none() {
                return;
            }
            if let Some(authorizer) = server.authorizer() {
                authorizer.allow_question();
            }
            self.shared.connect(*index).await;
        });
        join_all(retries).await;
    }

    /// Returns the state of each server.
    pub fn statuses(&self) -> Vec<McpServerStatus> {
        self.servers().map(SharedServer::status).collect()
    }

    /// Returns the warnings of now, each a sentence.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.shared.warnings.clone();
        for server in self.servers() {
            server.add_warnings(&mut warnings);
        }
        warnings
    }

    /// Returns the names and digests of the servers with tools.
    pub fn to_saved(&self) -> Vec<SavedServer> {
        self.servers()
            .filter_map(|server| {
                let tools = server.tools.get()?;
                let DeclaredServer {
                    source,
                    server: declared,
                    ..
                } = &server.declared;
                let url = sha256_digest(declared.url.as_bytes());
                Some(SavedServer {
                    source: format!("{}/{}", source.kind().name(), source.id()),
                    handle: server.declared.handle(),
                    digest: sha256_digest(format!("{url} {}", tools.digest).as_bytes()),
                })
            })
            .collect()
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

impl SharedServers {
    /// Connects to each server after the program gave its `Authorization`, until the sessions have ended.
    fn follow_answers(self: &Arc<Self>) {
        for (index, server) in self.servers.iter().enumerate() {
            let Some(authorizer) = server.authorizer() else {
                continue;
            };

            let mut answers = authorizer.watch();
            // The program may have answered before.
            if authorizer.value().is_some() {
                answers.mark_changed();
            }

            let shared = Arc::downgrade(self);
            tokio::spawn(async move {
                while answers.changed().await.is_ok() {
                    let Some(shared) = shared.upgrade() else {
                        return;
                    };
                    let server = &shared.servers[index];
                    match server.authorizer() {
                        Some(authorizer) if authorizer.value().is_some() => {
                            shared.connect(index).await;
                        }
                        Some(authorizer) if authorizer.missing_reason().is_some() => {
                            server.changes.send_replace(());
                        }
                        _ => {}
                    }
                }
            });
        }
    }

    /// Connects to a server, and adds its tools to the sessions.
    async fn connect(&self, index: usize) {
        let server = &self.servers[index];
        let listed = server.list_tools().await;
        server.store_list(listed, &mut self.table.lock());
        // The tools come before their revision, so that no set caches old tools for it.
        self.revision.fetch_add(1, Ordering::Release);
        server.changes.send_replace(());
    }
}

impl SharedServer {
    fn authorizer(&self) -> Option<&Arc<Authorizer>> {
        let server = self.server.as_ref().ok()?;
        server.authorizer.as_ref()
    }

    async fn list_tools(&self) -> Result<ListedTools, String> {
        match &self.server {
            Ok(server) => server.list_tools().await,
            Err(reason) => Err(reason.clone()),
        }
    }

    /// Stores a list. The session keeps the tools of the first list.
    fn store_list(&self, listed: Result<ListedTools, String>, table: &mut ToolTable) {
        *self.list_error.lock() = listed.as_ref().err().cloned();
        if let (Ok(listed), Ok(server)) = (listed, &self.server) {
            self.tools.get_or_init(|| table.add_server(server, listed));
        }
    }

    /// Returns the reason why the server cannot be used now; the end of a sentence.
    fn error(&self) -> Option<String> {
        let server = self.server.as_ref().ok();
        let ended = server.and_then(|server| server.end_reason());
        ended
            .map(str::to_owned)
            .or_else(|| self.authorizer()?.missing_reason())
            .or_else(|| self.list_error.lock().clone())
    }

    fn status(&self) -> McpServerStatus {
        let declared = &self.declared;
        let tools = self.tools.get();
        McpServerStatus {
            source_kind: declared.source.kind().name().to_owned(),
            source_id: declared.source.id().to_owned(),
            handle: declared.handle(),
            package: declared.plugin.package.clone(),
            plugin: declared.plugin.name.clone(),
            server: declared.server.name.clone(),
            origin: self
                .server
                .as_ref()
                .map(|server| server.address.origin.clone())
                .unwrap_or_default(),
            tools: tools
                .iter()
                .flat_map(|tools| &tools.tools)
                .map(|tool| tool.full_name().to_owned())
                .collect(),
            digest: tools.map(|tools| tools.digest.clone()).unwrap_or_default(),
            error: self.error(),
        }
    }

    fn add_warnings(&self, warnings: &mut Vec<String>) {
        let phrase = self.declared.describe();
        let server = self.server.as_ref().ok();
        if let Some(reason) = server.and_then(|server| server.end_reason()) {
            warnings.push(format!("{phrase} ended: {reason}"));
        } else if let Some(reason) = self.error() {
            warnings.push(format!("{phrase} is not used: {reason}"));
        } else if server.is_some_and(|server| server.changed_tools.load(Ordering::Relaxed)) {
            warnings.push(format!(
                "{phrase} changed its tools; start another session to use the new tools"
            ));
        }

        if !self.missing.is_empty() {
            let names: Vec<_> = self.missing.iter().map(|name| quote_value(name)).collect();
            let names = names.join(", ");
            warnings.push(format!("{phrase} has no value for {names}"));
        }
        let tools = self.tools.get().into_iter();
        warnings.extend(tools.flat_map(|tools| tools.warnings.iter().cloned()));
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

    let chosen = chosen.into_iter();
    chosen.map(|index| declared[index].clone()).collect()
}
