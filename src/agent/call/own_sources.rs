//! Executors, other sources and lock that a request names for its session, instead of the command line. Sessions of
//! one process then share the process, and nothing else that they did not choose to share.

use super::answer::RequestError;
use super::program_registry::{FoundExecutor, ProgramRegistry};
use super::tools::{ToolCallbacks, program_authorization, program_token, program_values};
use crate::agent::local::{LocalDirectories, LocalSource, RootPreset};
use crate::cli::agents::session_args::SessionRoots;
use crate::cli::executor::EveryEnvironment;
use crate::cli::fleet::omitted_line;
use caproot_client::{Client, ExecutorConfig, Fleet, Trust, published_selection};
use caproot_core::lock::LockFile;
use caproot_core::sync::Mutex;
use caproot_core::text::quote_value;
use caproot_session::sources::mcp::{McpEndpoint, McpServerList};
use caproot_session::sources::site::{SiteConfig, SiteSource};
use caproot_session::{SessionOptions, SkillSource};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Executors, other sources and lock of one session.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SourcesRequest {
    /// Key of the session in the events `mcpToken`, `serverValue` and `authorize`.
    key: String,
    /// Executors. By default the session has no executors.
    pub executors: Option<ExecutorsRequest>,
    /// Directories of this machine.
    local: Vec<LocalRequest>,
    /// MCP servers with skills.
    mcp_servers: Vec<ServerRequest>,
    /// Names of the MCP servers whose token the event `mcpToken` asks for.
    ask_tokens: Vec<String>,
    /// Sites with an index of skills.
    sites: Vec<SiteRequest>,
    /// Lock that must approve the skills.
    lock: Option<PathBuf>,
    /// Keys that may sign the lock.
    signers: Option<PathBuf>,
    /// Origins of plugins' MCP servers whose addresses need not be globally routable.
    private_origins: Vec<String>,
    /// Whether the event `serverValue` asks for the values that declarations of plugins' MCP servers withhold.
    ask_values: bool,
    /// Whether the event `authorize` asks for `Authorization` after a 401 of an HTTP MCP server whose declaration has
    /// no credential: of plugins, and of `mcp_servers`.
    ask_authorization: bool,
}

/// Executors of a session. The open sessions with the same key share the connections.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecutorsRequest {
    /// Key of the executors, also in the event `findExecutor`.
    key: String,
    /// Origin of the addresses.
    from: ExecutorOrigin,
    /// Whether a session with other sources starts without an executor if no default socket answers. The default is
    /// `false`.
    #[serde(default)]
    pub optional: bool,
}

/// Origin of the addresses of executors.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ExecutorOrigin {
    /// One executor, which has every environment.
    One(FoundExecutor),
    /// Executors by their environments.
    Table(BTreeMap<String, FoundExecutor>),
    /// A fleet file.
    File(PathBuf),
    /// The event `findExecutor` for each environment. These are the environments of sessions without roots.
    Find(Vec<String>),
    /// The event `findExecutor` for one executor, which has every environment.
    FindOne(()),
}

/// Directories of this machine as one source.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LocalRequest {
    /// Id of the source.
    id: String,
    /// Directories by the ids of their authorities.
    #[serde(default)]
    directories: BTreeMap<String, PathBuf>,
    /// Tools whose directories are used, too: `agents`, `claude` or `codex`.
    #[serde(default)]
    presets: Vec<String>,
}

/// MCP server with skills.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ServerRequest {
    /// Name of the server.
    name: String,
    /// Server as in the object `mcpServers` of MCP hosts.
    server: Value,
}

/// Site with an index of skills.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SiteRequest {
    /// Host of the site.
    host: String,
    /// Whether addresses that are not globally routable are allowed. The default is `false`.
    #[serde(default)]
    allow_private: bool,
}

/// Fleets of open sessions by their keys.
#[derive(Default)]
pub struct ProgramFleets(Mutex<HashMap<String, Weak<ProgramFleet>>>);

/// Fleet that a program named.
pub struct ProgramFleet {
    pub fleet: Fleet,
    /// Whether one executor has every environment.
    is_single: bool,
}

impl ProgramFleets {
    /// Returns the fleet with the key of a request, and opens it if no session has it.
    pub async fn open(
        &self,
        request: &ExecutorsRequest,
        callbacks: &Arc<ToolCallbacks>,
    ) -> Result<Arc<ProgramFleet>, RequestError> {
        let open = self.0.lock().get(&request.key).and_then(Weak::upgrade);
        if let Some(open) = open {
            return Ok(open);
        }

        let opened = Arc::new(request.from.open(&request.key, callbacks).await?);
        let mut fleets = self.0.lock();
        // Another session may have opened the same fleet meanwhile.
        if let Some(open) = fleets.get(&request.key).and_then(Weak::upgrade) {
            return Ok(open);
        }
        // Nothing else removes the keys of fleets whose sessions have ended.
        fleets.retain(|_, fleet| fleet.strong_count() > 0);
        fleets.insert(request.key.clone(), Arc::downgrade(&opened));
        Ok(opened)
    }
}

impl ExecutorOrigin {
    async fn open(
        &self,
        key: &str,
        callbacks: &Arc<ToolCallbacks>,
    ) -> Result<ProgramFleet, RequestError> {
        let asked = |environments: &[String]| {
            Fleet::new(ProgramRegistry {
                callbacks: callbacks.clone(),
                key: key.to_owned(),
                environments: environments.to_vec(),
            })
        };

        let fleet = match self {
            Self::One(executor) => {
                let config = executor.to_config("").map_err(RequestError::bad_config)?;
                Fleet::new(EveryEnvironment(config.with_address().await?))
            }
            Self::Table(executors) => {
                let mut mistakes = Vec::new();
                let mut configs = Vec::new();
                for (id, executor) in executors {
                    match executor.to_config(&format!("executor {id:?}: ")) {
                        Ok(config) => configs.push((id.clone(), config)),
                        Err(found) => mistakes.extend(found),
                    }
                }
                RequestError::refuse(mistakes)?;

                let mut table = BTreeMap::new();
                for (id, config) in configs {
                    table.insert(id, config.with_address().await?);
                }
                Fleet::from_executors(table)
            }
            Self::File(path) => Fleet::from_file(path).await?,
            Self::Find(environments) => asked(environments),
            Self::FindOne(()) => asked(&[]),
        };
        Ok(ProgramFleet {
            fleet,
            is_single: matches!(self, Self::One(_) | Self::FindOne(())),
        })
    }
}

impl ProgramFleet {
    /// Returns the published roots of the executors, and a sentence for each executor that does not answer.
    pub async fn published_roots(&self, timeout: Duration) -> Result<SessionRoots, RequestError> {
        if !self.is_single {
            let published = self.fleet.published_roots(timeout).await;
            return Ok(SessionRoots {
                messages: published.omitted.iter().map(omitted_line).collect(),
                roots: published.roots,
                are_published: true,
            });
        }

        // The one executor has every environment, so that the id has no effect.
        let list_roots = async {
            let ExecutorConfig {
                endpoint,
                credentials,
                timeout,
                ..
            } = self.fleet.find_executor("").await?;
            let mut client = Client::connect(&endpoint, &credentials, timeout).await?;
            Ok(client.list_roots().await?)
        };

        // The timeout of the executor limits each call, and this one limits all calls together.
        let published = tokio::time::timeout(timeout, list_roots)
            .await
            .unwrap_or_else(|_| {
                let span = humantime::format_duration(timeout);
                let sentence = format!("the daemon did not answer within {span}");
                Err(RequestError::unavailable(sentence))
            })?;
        Ok(SessionRoots {
            roots: published_selection(published, None),
            are_published: true,
            messages: Vec::new(),
        })
    }
}

impl SourcesRequest {
    /// Returns whether there is no source next to the executors.
    pub fn has_only_executors(&self) -> bool {
        self.local.is_empty() && self.mcp_servers.is_empty() && self.sites.is_empty()
    }

    /// Sets the lock and the answers for plugins' MCP servers, and adds the mistakes.
    pub fn set_options(
        &self,
        options: &mut SessionOptions,
        callbacks: &Arc<ToolCallbacks>,
        mistakes: &mut Vec<String>,
    ) {
        options.trust = self.read_trust(mistakes);
        let servers = &mut options.mcp_servers;
        servers.private_origins.clone_from(&self.private_origins);
        if self.ask_values {
            servers.values = program_values(callbacks, &self.key);
        }
        if self.ask_authorization {
            servers.authorize = program_authorization(callbacks, &self.key);
        }
    }

    fn read_trust(&self, mistakes: &mut Vec<String>) -> Trust {
        let Some(lock) = &self.lock else {
            if self.signers.is_some() {
                mistakes.push("`signers` is set without `lock`: set both".to_owned());
            }
            return Trust::All;
        };
        match LockFile::read(lock, self.signers.as_deref()) {
            Ok(file) => Trust::Lock(Arc::new(file.lock)),
            Err(error) => {
                // The mistake fails the request, so that no session starts without the lock.
                mistakes.push(format!("lock: {error}"));
                Trust::All
            }
        }
    }

    /// Returns the MCP servers, and adds the mistakes.
    pub fn parse_servers(
        &self,
        callbacks: &Arc<ToolCallbacks>,
        mistakes: &mut Vec<String>,
    ) -> McpServerList {
        if self.mcp_servers.is_empty() {
            return McpServerList::default();
        }
        let mut servers = Map::new();
        for ServerRequest { name, server } in &self.mcp_servers {
            if servers.insert(name.clone(), server.clone()).is_some() {
                let shown = quote_value(name);
                mistakes.push(format!("two MCP servers have the name {shown}"));
            }
        }
        let text = json!({ "mcpServers": servers }).to_string();
        let mut list = McpServerList::parse(&text, &|name| std::env::var(name).ok())
            .unwrap_or_else(|errors| {
                mistakes.extend(errors.iter().map(ToString::to_string));
                McpServerList::default()
            });
        // A program means each of its servers.
        mistakes.append(&mut list.warnings);

        for server in &mut list.servers {
            if self.ask_authorization {
                server.authorize = program_authorization(callbacks, &self.key);
            }
            if let McpEndpoint::Http { token, .. } = &mut server.endpoint
                && self.ask_tokens.contains(&server.name)
            {
                let key = self.key.clone();
                *token = Some(program_token(callbacks.clone(), key, server.name.clone()));
            }
        }
        list
    }

    /// Starts all sources next to the executors.
    pub async fn start(
        &self,
        servers: McpServerList,
        options: &SessionOptions,
    ) -> Result<Vec<Arc<dyn SkillSource>>, RequestError> {
        let mut sources: Vec<Arc<dyn SkillSource>> = Vec::new();
        for local in &self.local {
            sources.push(local.start(options).await?);
        }
        sources.extend(servers.start(options.start_timeout).await);
        for site in &self.sites {
            let source = SiteSource::start(SiteConfig {
                allows_private_addresses: site.allow_private,
                start_timeout: options.start_timeout,
                ..SiteConfig::new(&site.host)
            });
            sources.push(Arc::new(source.await?));
        }
        Ok(sources)
    }
}

impl LocalRequest {
    async fn start(&self, options: &SessionOptions) -> Result<Arc<dyn SkillSource>, RequestError> {
        let mut presets = Vec::new();
        for name in &self.presets {
            let Some(preset) = RootPreset::parse(name) else {
                let (shown, known) = (quote_value(name), RootPreset::NAMES.join(", "));
                let mistake = format!("presets: there is no preset {shown}; expected {known}");
                return Err(RequestError::bad_option(&mistake));
            };
            presets.push(preset);
        }

        let directories = LocalDirectories {
            named: self.directories.clone().into_iter().collect(),
            presets,
            project: None,
        };
        match LocalSource::start(&self.id, directories, options).await {
            Ok(source) => Ok(Arc::new(source)),
            Err(error) => Err(RequestError::bad_option(&format!(
                "cannot use the local directories: {error}"
            ))),
        }
    }
}
