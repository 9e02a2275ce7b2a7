//! Flags of the commands that run a session, and the start of the session.

use crate::agent::call::session_request::SessionRequest;
use crate::agent::call::tools::{SessionTools, ToolCallbacks, read_tools};
use crate::agent::local::{LocalDirectories, LocalSource, RootPreset};
use crate::cli::agents::mcp_servers::McpServersArgs;
use crate::cli::agents::sites_args::{SitesArgs, wait_for_sites};
use crate::cli::args::{
    ConnectionArgs, LockFileArgs, SelectionArgs, parse_timeout, preset_parser, root_arg_parser,
};
use crate::cli::failure::{CommandFailure, CommandResult as _};
use crate::cli::root_arg::RootArg;
use crate::cli::{exit, fleet};
use caproot_client::Fleet;
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::proto::caproot::v1::SelectedCapabilityRoot;
use caproot_core::text::SentenceResult as _;
use caproot_session::{Session, SessionOptions, SkillSource, ToolNames};
use clap::Args;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, join_all};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Flags of a session: its executors, roots, other sources and tools.
#[derive(Debug, Args)]
pub struct SessionArgs {
    #[command(flatten)]
    options: SessionRequest,
    #[command(flatten)]
    lock: LockFileArgs,
    #[command(flatten)]
    mcp_servers: McpServersArgs,
    /// Also the skills below this directory of this machine, with ID as the id of their authority
    /// and first part of their handles. All such directories are the source local/local. Can be
    /// repeated
    #[arg(long, value_name = "ID=DIR", value_parser = root_arg_parser())]
    local: Vec<RootArg>,
    /// Also the skills in the directories of a tool on this machine, such as .claude/skills: in the
    /// working directory and above it up to the root of the repository, and at home. They are part of
    /// the source local/local. Can be repeated
    #[arg(long, value_name = "TOOL", value_parser = preset_parser())]
    preset: Vec<RootPreset>,
    #[command(flatten)]
    sites: SitesArgs,
    /// How long to wait at the start for executors that do not respond, such as 5s or 1m. An
    /// executor is not waited for if its socket is missing or the connection is rejected
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_timeout)]
    connect_timeout: Duration,
    /// Tools of your program as a JSON array, each with namespace, name, description and
    /// inputSchema
    #[arg(long, value_name = "FILE")]
    tools: Option<PathBuf>,
    #[command(flatten, next_help_heading = "Connection options")]
    connection: ConnectionArgs,
    #[command(flatten, next_help_heading = "Root options")]
    selection: SelectionArgs,
}

/// Flags that name the executors and roots of a session.
pub struct ExecutorFlags<'a> {
    pub connection: &'a ConnectionArgs,
    pub selection: &'a SelectionArgs,
    pub connect_timeout: Duration,
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
    /// Whether executors listed the roots.
    pub are_published: bool,
    /// Executors that the session does not have, one line each.
    pub messages: Vec<String>,
}

/// Options, tools and other sources that the sessions of a process share.
pub struct SessionParts {
    pub options: SessionOptions,
    pub tools: SessionTools,
    pub sources: SharedSources,
}

/// Local sources, servers and sites, once the servers and the sites have their first lists.
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
        match self.connection.whole_fleet() {
            Some(file) => self.executor_flags().open_whole_fleet(file).await,
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
        // Whether a flag names an executor or its roots, or there is no other source of skills.
        let has_directories = !self.local.is_empty() || !self.preset.is_empty();
        let has_other_source =
            has_directories || self.mcp_servers.has_servers() || self.sites.has_sites();
        let needs_executor = !has_other_source
            || !self.selection.selects_published()
            || !self.connection.is_default();

        match self.executor_flags().open_executor(env).await {
            Err(failure) if !needs_executor && failure.exit_code() == exit::NO_DAEMON => {
                let reason = failure.sentence();
                Ok(OpenedFleet {
                    fleet: Fleet::from_executors([]),
                    selected: SessionRoots {
                        messages: vec![format!("the session has no executor: {reason}")],
                        ..SessionRoots::default()
                    },
                })
            }
            opened => opened,
        }
    }

    fn executor_flags(&self) -> ExecutorFlags<'_> {
        ExecutorFlags {
            connection: &self.connection,
            selection: &self.selection,
            connect_timeout: self.connect_timeout,
        }
    }

    /// Starts the other sources, and returns what the sessions share. The calls of the program's tools
    /// go to `callbacks`.
    pub async fn start_parts(
        &self,
        callbacks: &Arc<ToolCallbacks>,
        has_plugins: bool,
    ) -> Result<SessionParts, CommandFailure> {
        let tools = match &self.tools {
            Some(file) => read_tools(file, callbacks)?,
            None => SessionTools::default(),
        };
        let mut options = SessionOptions {
            plugins: has_plugins,
            trust: self.lock.read_trust()?,
            tool_names: ToolNames::Flat,
            tools: tools.registry.clone(),
            start_timeout: self.connect_timeout,
            ..SessionOptions::default()
        };
        // The command line is parsed, so that no mistake is left.
        self.options.apply(&mut options, &mut Vec::new());

        let mut sources = start_local_source(&self.local, &self.preset, &options).await?;
        let servers = self.mcp_servers.read().await?;
        let sites = self.sites.open().await?;

        // The servers start on a task, as a server may need a token of the program first.
        let servers = servers.start(self.connect_timeout).boxed();
        let sites = wait_for_sites(sites, self.connect_timeout).boxed();
        let started = tokio::spawn(join_all([servers, sites]));
        let sources = async move {
            // The task fails only if the process ends.
            let started = started.await.unwrap_or_default();
            sources.extend(started.into_iter().flatten());
            sources
        };
        Ok(SessionParts {
            options,
            tools,
            sources: sources.boxed().shared(),
        })
    }
}

impl ExecutorFlags<'_> {
    /// Returns the executors of a fleet file, or the one executor, with their roots.
    pub async fn open_fleet(&self, env: &ProcessEnv) -> Result<OpenedFleet, CommandFailure> {
        match self.connection.whole_fleet() {
            Some(file) => self.open_whole_fleet(file).await,
            None => self.open_executor(env).await,
        }
    }

    async fn open_whole_fleet(&self, file: &Path) -> Result<OpenedFleet, CommandFailure> {
        let fleet = fleet::read_fleet(file).await?;
        let selected = select_fleet_roots(self.selection, &fleet, self.connect_timeout).await?;
        Ok(OpenedFleet { fleet, selected })
    }

    /// Connects to the one executor, within the time limit.
    async fn open_executor(&self, env: &ProcessEnv) -> Result<OpenedFleet, CommandFailure> {
        let opened = tokio::time::timeout(self.connect_timeout, async {
            let mut executor = self.connection.connect(env).await?;
            let roots = self.selection.selected_roots(&mut executor, env).await?;
            Ok(OpenedFleet {
                fleet: executor.session_fleet(),
                selected: SessionRoots {
                    roots,
                    are_published: self.selection.selects_published(),
                    messages: Vec::new(),
                },
            })
        });

        opened.await.unwrap_or_else(|_| {
            let span = humantime::format_duration(self.connect_timeout);
            let sentence = format!("no daemon answers within {span}");
            Err(CommandFailure::new(exit::NO_DAEMON, sentence)
                .with_hint("--connect-timeout sets how long to wait"))
        })
    }
}

/// Returns the roots of a file, or the published roots of all executors of a fleet.
async fn select_fleet_roots(
    selection: &SelectionArgs,
    fleet: &Fleet,
    timeout: Duration,
) -> Result<SessionRoots, CommandFailure> {
    if let Some(roots) = selection.roots_from_file()? {
        return Ok(SessionRoots::given(roots));
    }

    let published = fleet.published_roots(timeout).await;
    Ok(SessionRoots {
        messages: published.omitted.iter().map(fleet::omitted_line).collect(),
        roots: published.roots,
        are_published: true,
    })
}

impl SessionRoots {
    /// Returns the roots that a user or a program names.
    pub fn given(roots: Vec<SelectedCapabilityRoot>) -> Self {
        Self {
            roots,
            ..Self::default()
        }
    }

    /// Whether no executor answers.
    pub fn is_lost(&self) -> bool {
        self.roots.is_empty() && !self.messages.is_empty()
    }

    /// Returns the messages as lines of stderr.
    pub fn message_lines(&self) -> Vec<String> {
        let messages = self.messages.iter();
        let lines = messages.map(|message| format!("caproot: {message}"));
        lines.collect()
    }
}

impl SessionParts {
    /// Starts a session on the executors of a fleet.
    pub async fn start_session(
        &self,
        fleet: &Fleet,
        selected: SessionRoots,
    ) -> Result<Session, CommandFailure> {
        let sources = self.sources.clone().await;
        let options = SessionOptions {
            published_roots: selected.are_published,
            ..self.options.clone()
        };
        Ok(Session::start_with(fleet, selected.roots, sources, &options).await?)
    }
}

/// Starts the source of the local directories, if there is one.
async fn start_local_source(
    directories: &[RootArg],
    presets: &[RootPreset],
    options: &SessionOptions,
) -> Result<Vec<Arc<dyn SkillSource>>, CommandFailure> {
    if directories.is_empty() && presets.is_empty() {
        return Ok(Vec::new());
    }

    let mut named = Vec::new();
    for RootArg { id, dir } in directories {
        let dir = PathBuf::from(dir);
        let Some(id) = id else {
            let sentence = format!("--local {} has no id; write --local ID=DIR", dir.display());
            return Err(CommandFailure::new(exit::USAGE, sentence));
        };
        named.push((id.clone(), dir));
    }

    let directories = LocalDirectories {
        named,
        presets: presets.to_vec(),
        project: None,
    };
    let started = LocalSource::start("local", directories, options).await;
    let source = started
        .context("cannot use the local directories")
        .or_exit(exit::BAD_CONFIG)?;
    Ok(vec![Arc::new(source)])
}
