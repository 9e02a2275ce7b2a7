//! Flags of the commands that run a session, and the start of the session.

use super::args::{
    ConnectionArgs, LockFileArgs, ProductArgs, SelectionArgs, parse_timeout, root_arg_parser,
};
use super::call::tools::{SessionTools, ToolCallbacks, program_token, read_tools};
use super::failure::CommandFailure;
use super::mcp_servers::McpServersArgs;
use super::root_arg::RootArg;
use super::{exit, fleet};
use crate::local_source::LocalSource;
use caproot_client::Fleet;
use caproot_client::session::sources::mcp::{McpEndpoint, McpServerList};
use caproot_client::session::{
    ChoiceRule, Session, SessionOptions, SkillChoice, SkillSource, ToolNames,
};
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::proto::caproot::v1::SelectedCapabilityRoot;
use caproot_core::text::quote_value;
use clap::Args;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Flags of a session: its executors, roots, other sources and tools.
#[derive(Debug, Args)]
pub struct SessionArgs {
    #[command(flatten)]
    product: ProductArgs,
    /// Only skills that match a rule: name:NAME, handle:HANDLE (also all skills below the handle),
    /// or source:KIND/ID, where KIND is executor, local or mcp. Can be repeated
    #[arg(long, value_name = "RULE")]
    include: Vec<ChoiceRule>,
    /// No skill that matches this rule, even if --include matches. Can be repeated
    #[arg(long, value_name = "RULE")]
    exclude: Vec<ChoiceRule>,
    /// Never cut a skill that matches this rule from the text for the model while another skill is in
    /// the text. Can be repeated
    #[arg(long, value_name = "RULE")]
    pin: Vec<ChoiceRule>,
    /// List a skill that matches this rule without its description in the text for the model. Can be
    /// repeated
    #[arg(long, value_name = "RULE")]
    name_only: Vec<ChoiceRule>,
    /// Hide a skill that matches this rule from models: it is neither in the text nor in lists. Only a
    /// person or your program may name it. Can be repeated
    #[arg(long, value_name = "RULE")]
    manual: Vec<ChoiceRule>,
    #[command(flatten)]
    lock: LockFileArgs,
    #[command(flatten)]
    mcp_servers: McpServersArgs,
    /// Also the skills below this directory of this machine, with ID as the id of their authority
    /// and first part of their handles. All such directories are the source local/local. Can be
    /// repeated
    #[arg(long, value_name = "ID=DIR", value_parser = root_arg_parser())]
    local: Vec<RootArg>,
    /// How long to wait at the start for executors that do not respond, such as 5s or 1m. An
    /// executor is not waited for if its socket is missing or the connection is rejected
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_timeout)]
    connect_timeout: Duration,
    /// Name the tools `skills.list`, `skills.read` and `skills.search`, with a namespace, as Codex and
    /// the Responses API register tools. By default, the names are `skills_list` and so on. A call is
    /// accepted in either spelling
    #[arg(long)]
    namespaced: bool,
    /// Tools of your program as a JSON array, each with namespace, name, description and
    /// inputSchema
    #[arg(long, value_name = "FILE")]
    tools: Option<PathBuf>,
    #[command(flatten, next_help_heading = "Connection options")]
    connection: ConnectionArgs,
    #[command(flatten, next_help_heading = "Root options")]
    selection: SelectionArgs,
}

/// Executors and roots of a session.
pub struct OpenedFleet {
    pub fleet: Fleet,
    pub selected: SessionRoots,
}

/// Roots of a session.
#[derive(Default)]
pub struct SessionRoots {
    pub roots: Vec<SelectedCapabilityRoot>,
    /// Executors that the session does not have, one line each.
    pub messages: Vec<String>,
}

/// Options, tools and other sources that the sessions of a process share.
pub struct SessionParts {
    pub options: SessionOptions,
    pub tools: SessionTools,
    pub sources: SharedSources,
}

/// Sources next to the executors, once they have started.
pub type SharedSources = Shared<BoxFuture<'static, Vec<Arc<dyn SkillSource>>>>;

impl SessionArgs {
    /// Whether the roots are read from stdin.
    pub fn reads_stdin(&self) -> bool {
        self.selection.is_of_stdin()
    }

    /// Whether the sessions are on all executors of a fleet file.
    pub fn has_whole_fleet(&self) -> bool {
        self.connection.whole_fleet().is_some()
    }

    /// Returns the executors and roots of a session.
    pub async fn open_fleet(&self, env: &ProcessEnv) -> Result<OpenedFleet, CommandFailure> {
        let Some(file) = self.connection.whole_fleet() else {
            return self.open_executor_if_needed(env).await;
        };
        let fleet = fleet::read_fleet(file).await?;
        let selected = self
            .select_fleet_roots(&fleet, self.connect_timeout)
            .await?;
        Ok(OpenedFleet { fleet, selected })
    }

    /// Returns the executors for sessions that later requests start.
    pub async fn open_fleet_without_session(
        &self,
        env: &ProcessEnv,
    ) -> Result<OpenedFleet, CommandFailure> {
        match self.connection.whole_fleet() {
            Some(file) => Ok(OpenedFleet {
                fleet: fleet::read_fleet(file).await?,
                selected: SessionRoots::default(),
            }),
            None => self.open_executor_if_needed(env).await,
        }
    }

    /// Returns the roots of a session on all executors of a fleet.
    pub async fn select_fleet_roots(
        &self,
        fleet: &Fleet,
        timeout: Duration,
    ) -> Result<SessionRoots, CommandFailure> {
        select_fleet_roots(&self.selection, fleet, timeout).await
    }

    /// Connects to the one executor of the session. Without a daemon, a session with another source
    /// has no executor.
    pub async fn open_executor_if_needed(
        &self,
        env: &ProcessEnv,
    ) -> Result<OpenedFleet, CommandFailure> {
        match self.open_executor(env).await {
            Err(failure) if !self.needs_executor() && failure.exit_code() == exit::NO_DAEMON => {
                let reason = failure.sentence();
                Ok(OpenedFleet {
                    fleet: Fleet::from_executors([]),
                    selected: SessionRoots {
                        roots: Vec::new(),
                        messages: vec![format!("the session has no executor: {reason}")],
                    },
                })
            }
            opened => opened,
        }
    }

    /// Connects to the one executor of the session, within the time limit.
    async fn open_executor(&self, env: &ProcessEnv) -> Result<OpenedFleet, CommandFailure> {
        let opened = tokio::time::timeout(self.connect_timeout, async {
            let mut executor = self.connection.connect(env).await?;
            let roots = self.selection.selected_roots(&mut executor, env).await?;
            Ok(OpenedFleet {
                fleet: executor.session_fleet(),
                selected: SessionRoots {
                    roots,
                    messages: Vec::new(),
                },
            })
        });

        opened.await.unwrap_or_else(|_| {
            let span = humantime::format_duration(self.connect_timeout);
            let sentence = format!("no daemon answers within {span}");
            let failure = CommandFailure::new(exit::NO_DAEMON, sentence);
            Err(failure.with_hint("--connect-timeout sets how long to wait"))
        })
    }

    /// Starts the other sources, and returns what the sessions share. The calls of the program's tools
    /// go to `callbacks`, which also have the tokens of the MCP servers `asked_tokens`.
    pub async fn start_parts(
        &self,
        callbacks: &Arc<ToolCallbacks>,
        asked_tokens: &[String],
        has_plugins: bool,
    ) -> Result<SessionParts, CommandFailure> {
        let tool_names = if self.namespaced {
            ToolNames::Namespaced
        } else {
            ToolNames::Flat
        };
        let tools = match &self.tools {
            Some(file) => read_tools(file, callbacks, tool_names)?,
            None => SessionTools::default(),
        };
        let options = SessionOptions {
            product: self.product.product.clone(),
            choice: SkillChoice {
                include: self.include.clone(),
                exclude: self.exclude.clone(),
                pin: self.pin.clone(),
                name_only: self.name_only.clone(),
                manual: self.manual.clone(),
                within: None,
            },
            plugins: has_plugins,
            trust: self.lock.read_trust()?,
            tool_names,
            tools: tools.registry.clone(),
            start_timeout: self.connect_timeout,
            ..SessionOptions::default()
        };

        let local = start_local_source(&self.local, &options).await?;
        let mut servers = self.mcp_servers.read().await?;
        ask_for_tokens(&mut servers, callbacks, asked_tokens)?;
        Ok(SessionParts {
            options,
            tools,
            sources: start_servers(local, servers, self.connect_timeout),
        })
    }

    /// Whether a flag names an executor or its roots, or there is no other source of skills.
    fn needs_executor(&self) -> bool {
        let has_servers = self.mcp_servers.has_servers();
        let has_other_source = has_servers || !self.local.is_empty();
        let names_roots = !self.selection.selects_published();
        !has_other_source || names_roots || !self.connection.is_default()
    }
}

/// Returns the roots of a file, or the published roots of all executors of a fleet.
pub async fn select_fleet_roots(
    selection: &SelectionArgs,
    fleet: &Fleet,
    timeout: Duration,
) -> Result<SessionRoots, CommandFailure> {
    if let Some(roots) = selection.roots_from_file()? {
        return Ok(SessionRoots {
            roots,
            messages: Vec::new(),
        });
    }

    let published = fleet.published_roots(timeout).await;
    Ok(SessionRoots {
        messages: published.omitted.iter().map(fleet::omitted_line).collect(),
        roots: published.roots,
    })
}

impl SessionRoots {
    /// Returns the messages as lines of stderr.
    pub fn message_lines(&self) -> Vec<String> {
        let messages = self.messages.iter();
        messages
            .map(|message| format!("caproot: {message}"))
            .collect()
    }
}

impl SessionParts {
    /// Starts a session on the executors of a fleet.
    pub async fn start_session(
        &self,
        fleet: &Fleet,
        roots: Vec<SelectedCapabilityRoot>,
    ) -> Result<Session, CommandFailure> {
        let sources = self.sources.clone().await;
        Session::start_with(fleet, roots, sources, &self.options)
            .await
            .map_err(|error| CommandFailure::new(exit::BAD_CONFIG, error))
    }
}

/// Makes the program the origin of the tokens of some servers.
fn ask_for_tokens(
    list: &mut McpServerList,
    callbacks: &Arc<ToolCallbacks>,
    names: &[String],
) -> Result<(), CommandFailure> {
    for name in names {
        let found = list.servers.iter_mut().find(|server| server.name == *name);
        let Some(McpEndpoint::Http { token, .. }) = found.map(|server| &mut server.endpoint) else {
            let shown = quote_value(name);
            let sentence = format!("--ask-token {shown}: no MCP server over HTTP has this name");
            return Err(CommandFailure::new(exit::USAGE, sentence));
        };
        *token = Some(program_token(callbacks.clone(), name.clone()));
    }
    Ok(())
}

/// Starts the servers on a task, as a server may need a token of the program first. The sources are the
/// local ones and the servers.
fn start_servers(
    local: Vec<Arc<dyn SkillSource>>,
    servers: McpServerList,
    within: Duration,
) -> SharedSources {
    let started = tokio::spawn(servers.start(within));
    let sources = async move {
        let mut sources = local;
        // The task fails only if the process ends.
        sources.extend(started.await.unwrap_or_default());
        sources
    };
    sources.boxed().shared()
}

/// Starts the source of the local directories, if there is one.
async fn start_local_source(
    directories: &[RootArg],
    options: &SessionOptions,
) -> Result<Vec<Arc<dyn SkillSource>>, CommandFailure> {
    if directories.is_empty() {
        return Ok(Vec::new());
    }

    let mut named = Vec::with_capacity(directories.len());
    for RootArg { id, dir } in directories {
        let dir = PathBuf::from(dir);
        let Some(id) = id else {
            let sentence = format!("--local {} has no id; write --local ID=DIR", dir.display());
            return Err(CommandFailure::new(exit::USAGE, sentence));
        };
        named.push((id.clone(), dir));
    }

    match LocalSource::start("local", named, options).await {
        Ok(source) => Ok(vec![Arc::new(source)]),
        Err(error) => {
            let sentence = format!("cannot use --local: {error}");
            Err(CommandFailure::new(exit::BAD_CONFIG, sentence))
        }
    }
}
