//! Flags of the commands that run a session, and the start of the session.

use super::args::{ConnectionArgs, SelectionArgs, parse_timeout, preset_parser, root_arg_parser};
use super::call::tools::{SessionTools, ToolCallbacks, read_tools};
use super::failure::CommandFailure;
use super::mcp_servers::McpServersArgs;
use super::root_arg::RootArg;
use super::sites_args::SitesArgs;
use super::{exit, fleet};
use crate::config::RootPreset;
use crate::local_source::{LocalDirectories, LocalSource};
use caproot_client::fleet::{ExecutorRegistry, RegistryFuture};
use caproot_client::session::{
    ChoiceRule, Session, SessionOptions, SkillChoice, SkillSource, ToolNames,
};
use caproot_client::{ExecutorConfig, Fleet};
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
    /// or source:KIND/ID, where KIND is executor, local, mcp or site. Can be repeated
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
    pub sources: Vec<Arc<dyn SkillSource>>,
}

/// Registry in which one executor has every environment: a session may select any root of the daemon.
struct EveryEnvironment(ExecutorConfig);

impl ExecutorRegistry for EveryEnvironment {
    fn find_executor<'a>(&'a self, _: &'a str) -> RegistryFuture<'a> {
        Box::pin(std::future::ready(Ok(Some(self.0.clone()))))
    }
}

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
        if let Some(roots) = self.selection.roots_from_file()? {
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
            let fleet = match executor.fleet() {
                Some(fleet) => fleet.clone(),
                None => Fleet::new(EveryEnvironment(executor.config.clone())),
            };
            Ok(OpenedFleet {
                fleet,
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
    /// go to `callbacks`.
    pub async fn start_parts(
        &self,
        callbacks: &Arc<ToolCallbacks>,
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
            product: self.product.clone(),
            choice: SkillChoice {
                include: self.include.clone(),
                exclude: self.exclude.clone(),
                within: None,
            },
            plugins: has_plugins,
            tool_names,
            tools: tools.registry.clone(),
            start_timeout: self.connect_timeout,
            ..SessionOptions::default()
        };

        let mut sources = start_local_source(&self.local, &self.preset, &options).await?;
        sources.extend(self.mcp_servers.start(self.connect_timeout).await?);
        sources.extend(self.sites.start(self.connect_timeout).await?);
        Ok(SessionParts {
            options,
            tools,
            sources,
        })
    }

    /// Whether a flag names an executor or its roots, or there is no other source of skills.
    fn needs_executor(&self) -> bool {
        let has_servers = self.mcp_servers.has_servers();
        let has_directories = !self.local.is_empty() || !self.preset.is_empty();
        let has_other_source = has_servers || has_directories || self.sites.has_sites();
        let names_roots = !self.selection.selects_published();
        !has_other_source || names_roots || !self.connection.is_default()
    }
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
        Session::start_with(fleet, roots, self.sources.clone(), &self.options)
            .await
            .map_err(|error| CommandFailure::new(exit::BAD_CONFIG, error))
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

    let mut named = Vec::with_capacity(directories.len());
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
    match LocalSource::start("local", directories, options).await {
        Ok(source) => Ok(vec![Arc::new(source)]),
        Err(error) => {
            let sentence = format!("cannot use the local directories: {error}");
            Err(CommandFailure::new(exit::BAD_CONFIG, sentence))
        }
    }
}
