//! Flags of the commands that run a session, and the start of the session.

use super::args::{ConnectionArgs, SelectionArgs, parse_timeout, root_arg_parser};
use super::call::tools::{ToolCallbacks, read_tools};
use super::failure::CommandFailure;
use super::mcp_servers::McpServersArgs;
use super::root_arg::RootArg;
use super::{exit, fleet};
use crate::local_source::LocalSource;
use caproot_client::Fleet;
use caproot_client::session::{
    ChoiceRule, Session, SessionOptions, SkillChoice, SkillSource, ToolNames, ToolRegistry,
};
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::proto::caproot::v1::SelectedCapabilityRoot;
use clap::Args;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Flags of a session: its executors, roots, other sources and tools.
#[derive(Debug, Args)]
pub struct SessionArgs {
    /// Only skills for this product, or for every product
    #[arg(
        long,
        value_name = "PRODUCT",
        default_value = "",
        hide_default_value = true
    )]
    product: String,
    /// Only skills that match a rule: name:NAME, handle:HANDLE (also all skills below the handle),
    /// or source:KIND/ID, where KIND is executor, local or mcp. Can be repeated
    #[arg(long, value_name = "RULE")]
    include: Vec<ChoiceRule>,
    /// No skill that matches this rule, even if --include matches. Can be repeated
    #[arg(long, value_name = "RULE")]
    exclude: Vec<ChoiceRule>,
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
    /// Name the tools `skills.list` and `skills.read`, with a namespace, as Codex and the Responses API
    /// register tools. By default, the names are `skills_list` and `skills_read`. A call is accepted
    /// in either spelling
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
    pub roots: Vec<SelectedCapabilityRoot>,
    /// Executors that the session does not have, one line each.
    pub messages: Vec<String>,
}

/// Session, and what further sessions of the process share with it.
pub struct StartedSession {
    pub fleet: Fleet,
    pub options: SessionOptions,
    pub sources: Vec<Arc<dyn SkillSource>>,
    pub session: Arc<Session>,
}

impl SessionArgs {
    /// Whether the roots are read from stdin.
    pub fn reads_stdin(&self) -> bool {
        self.selection.is_of_stdin()
    }

    /// Returns the executors and roots of the session.
    pub async fn open_fleet(&self, env: &ProcessEnv) -> Result<OpenedFleet, CommandFailure> {
        if let Some(file) = self.connection.whole_fleet() {
            let fleet = fleet::read_fleet(file).await?;
            if let Some(roots) = self.selection.roots_from_file()? {
                return Ok(OpenedFleet::new(fleet, roots));
            }
            let published = fleet.published_roots(self.connect_timeout).await;
            return Ok(OpenedFleet {
                messages: published.omitted.iter().map(fleet::omitted_line).collect(),
                ..OpenedFleet::new(fleet, published.roots)
            });
        }

        match self.open_executor(env).await {
            Err(failure) if !self.needs_executor() && failure.exit_code() == exit::NO_DAEMON => {
                let reason = failure.sentence();
                Ok(OpenedFleet {
                    messages: vec![format!("the session has no executor: {reason}")],
                    ..OpenedFleet::new(Fleet::from_executors([]), Vec::new())
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
            Ok(OpenedFleet::new(executor.session_fleet(&roots), roots))
        });

        opened.await.unwrap_or_else(|_| {
            let span = humantime::format_duration(self.connect_timeout);
            let sentence = format!("no daemon answers within {span}");
            let failure = CommandFailure::new(exit::NO_DAEMON, sentence);
            Err(failure.with_hint("--connect-timeout sets how long to wait"))
        })
    }

    /// Starts the session. The calls of the program's tools go to `callbacks`.
    pub async fn start_session(
        &self,
        opened: OpenedFleet,
        callbacks: &Arc<ToolCallbacks>,
        has_plugins: bool,
    ) -> Result<StartedSession, CommandFailure> {
        let options = SessionOptions {
            plugins: has_plugins,
            ..self.session_options(callbacks)?
        };
        let mut sources = start_local_source(&self.local, &options).await?;
        sources.extend(self.mcp_servers.start(self.connect_timeout).await?);

        let OpenedFleet { fleet, roots, .. } = opened;
        let session = Session::start_with(&fleet, roots, sources.clone(), &options)
            .await
            .map_err(|error| CommandFailure::new(exit::BAD_CONFIG, error))?;
        Ok(StartedSession {
            fleet,
            options,
            sources,
            session: Arc::new(session),
        })
    }

    fn session_options(
        &self,
        callbacks: &Arc<ToolCallbacks>,
    ) -> Result<SessionOptions, CommandFailure> {
        let tool_names = if self.namespaced {
            ToolNames::Namespaced
        } else {
            ToolNames::Flat
        };
        let tools = match &self.tools {
            Some(file) => read_tools(file, callbacks, tool_names)?,
            None => ToolRegistry::default(),
        };

        Ok(SessionOptions {
            product: self.product.clone(),
            choice: SkillChoice {
                include: self.include.clone(),
                exclude: self.exclude.clone(),
                within: None,
            },
            tool_names,
            tools,
            start_timeout: self.connect_timeout,
            ..SessionOptions::default()
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

impl OpenedFleet {
    fn new(fleet: Fleet, roots: Vec<SelectedCapabilityRoot>) -> Self {
        Self {
            fleet,
            roots,
            messages: Vec::new(),
        }
    }

    /// Returns the messages as lines of stderr.
    pub fn message_lines(&self) -> Vec<String> {
        let messages = self.messages.iter();
        messages
            .map(|message| format!("caproot: {message}"))
            .collect()
    }
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
