//! `caproot call`: a session over JSON lines, for programs in other languages and for tests. Each
//! line of stdin is a request, and each line of stdout is a response.

mod answer;
mod event;
mod lines;
mod manager;
mod request;
mod server;
mod tools;

use super::args::{ConnectionArgs, SelectionArgs, parse_timeout, root_arg_parser};
use super::failure::CommandFailure;
use super::mcp_servers::McpServersArgs;
use super::output::{print_stderr, write_stdout};
use super::root_arg::RootArg;
use super::signals::run_until_signal;
use super::{exit, fleet};
use crate::local_source::LocalSource;
use caproot_client::Fleet;
use caproot_client::session::{
    ChoiceRule, Session, SessionOptions, SkillChoice, SkillSource, ToolNames, ToolRegistry,
};
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::proto::caproot::v1::SelectedCapabilityRoot;
use caproot_core::sync::Mutex;
use caproot_core::text::escape_json;
use clap::Args;
use event::CallEvent;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use lines::stdin_lines;
use manager::ManagerArgs;
use server::CallServer;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;
use tools::{ToolCallbacks, read_tools};

/// Maximum number of requests in flight. Further lines are not read meanwhile.
const MAX_IN_FLIGHT: usize = 256;

/// Run a model's tools by JSON lines
///
/// Starts a session with fixed roots and answers requests. Each request is one JSON object per line
/// on stdin. Each response is one line on stdout with the same id, which is any JSON value. A
/// response is printed as soon as it is ready. Exits with 0 after stdin has ended and every request
/// is answered.
///
/// With --fleet, the session is on the executors of the roots of --selected, or on every executor
/// with its published roots. With --environment-id as well, it is on one executor. A session with
/// --local or --mcp-servers needs no executor: if no flag names one and no daemon answers, a message
/// says so, and the session has the other skills.
#[derive(Debug, Args)]
#[command(after_help = include_str!("call/help.txt"))]
pub struct CallArgs {
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
    /// Also the plugins of the executors and local directories, for the request plugins. With
    /// --events, also print a line {"event":"plugins","added":…,"changed":…,"removed":…} after each
    /// change of a plugin
    #[arg(long)]
    plugins: bool,
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
    /// inputSchema. A call of such a tool is a line {"event":"tool",…}, which your program answers
    /// by a line with the result
    #[arg(long, value_name = "FILE")]
    tools: Option<PathBuf>,
    /// Print a line {"event":"changed","executor":…} after each change of an executor's skills or
    /// state, with "source" instead of "executor" for another source
    #[arg(long)]
    events: bool,
    #[command(flatten)]
    manager: ManagerArgs,
    #[command(flatten, next_help_heading = "Connection options")]
    connection: ConnectionArgs,
    #[command(flatten, next_help_heading = "Root options")]
    selection: SelectionArgs,
}

impl CallArgs {
    /// Returns the options of the session. The calls of the program's tools go to `callbacks`.
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
            plugins: self.plugins,
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

/// Answers requests until stdin ends or a signal comes.
pub async fn run(args: CallArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    run_until_signal(answer_requests(args, env)).await
}

async fn answer_requests(args: CallArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    let (fleet, roots) = open_fleet(&args, env).await?;
    let (sender, events) = unbounded_channel();
    let callbacks = Arc::new(ToolCallbacks::new(sender.clone()));
    let options = args.session_options(&callbacks)?;

    let mut sources = start_local_source(&args.local, &options).await?;
    sources.extend(args.mcp_servers.start(args.connect_timeout).await?);
    let session = Session::start_with(&fleet, roots, sources.clone(), &options)
        .await
        .map_err(|error| CommandFailure::new(exit::BAD_CONFIG, error))?;
    let first = Arc::new(session);

    let server = CallServer {
        manager: args.manager.connect(&first, sender).await?,
        fleet,
        options,
        sources,
        first,
        callbacks,
        stdin_ended: watch::Sender::new(false),
        others: Mutex::default(),
    };
    write_lines_of(&server, events, args.events).await?;
    Ok(exit::OK)
}

/// Answers the lines of stdin, and writes the events, until stdin ends and all requests are answered.
/// The changes of the session are events if `shows_changes` is set.
async fn write_lines_of(
    server: &CallServer,
    mut events: UnboundedReceiver<CallEvent>,
    shows_changes: bool,
) -> Result<(), CommandFailure> {
    let mut source_changes = server.first.watch();
    let mut plugin_changes = server.first.watch_plugins();
    let shows_plugins = shows_changes && server.options.plugins;

    let mut requests = stdin_lines();
    let mut working = FuturesUnordered::new();
    let mut has_input = true;
    while has_input || !working.is_empty() {
        // Results of tools are read even if the requests that wait for them are the maximum.
        let limit = if server.callbacks.has_waiting() {
            2 * MAX_IN_FLIGHT
        } else {
            MAX_IN_FLIGHT
        };

        let line_out = tokio::select! {
            // Events come first: while one waits, no request goes on and no call of a manager
            // starts, so that the calls in flight limit the waiting events.
            biased;
            Some(event) = events.recv() => event.to_line(),
            Some(answer) = working.next() => answer,
            line = requests.recv(), if has_input && working.len() < limit => {
                if let Some(line) = line {
                    let is_overloaded = working.len() >= MAX_IN_FLIGHT;
                    working.push(server.answer_line(line, is_overloaded));
                } else {
                    has_input = false;
                    server.end_input();
                }
                continue;
            }
            source = source_changes.next(), if shows_changes => {
                CallEvent::from_source(&server.first, &source).to_line()
            }
            changes = plugin_changes.next(), if shows_plugins => {
                CallEvent::Plugins(changes).to_line()
            }
        };
        write_line(line_out).await?;
    }

    while let Ok(event) = events.try_recv() {
        write_line(event.to_line()).await?;
    }
    Ok(())
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

/// Returns the executors and roots of the session.
async fn open_fleet(
    args: &CallArgs,
    env: &ProcessEnv,
) -> Result<(Fleet, Vec<SelectedCapabilityRoot>), CommandFailure> {
    if args.selection.is_of_stdin() {
        let sentence = "--selected - cannot be used here: stdin has the requests; name a file";
        return Err(CommandFailure::new(exit::USAGE, sentence));
    }

    if let Some(file) = args.connection.whole_fleet() {
        let fleet = fleet::read_fleet(file).await?;
        let roots = match args.selection.roots_from_file()? {
            Some(roots) => roots,
            None => fleet::published_roots(&fleet, args.connect_timeout).await,
        };
        return Ok((fleet, roots));
    }

    match open_executor(args, env).await {
        Err(failure) if !args.needs_executor() && failure.exit_code() == exit::NO_DAEMON => {
            let reason = failure.sentence();
            print_stderr(&[format!("caproot: the session has no executor: {reason}")]);
            Ok((Fleet::from_executors([]), Vec::new()))
        }
        opened => opened,
    }
}

/// Connects to the one executor of the session, within the time limit.
async fn open_executor(
    args: &CallArgs,
    env: &ProcessEnv,
) -> Result<(Fleet, Vec<SelectedCapabilityRoot>), CommandFailure> {
    let opened = tokio::time::timeout(args.connect_timeout, async {
        let mut executor = args.connection.connect(env).await?;
        let roots = args.selection.selected_roots(&mut executor, env).await?;
        Ok((executor.session_fleet(&roots), roots))
    });

    opened.await.unwrap_or_else(|_| {
        let span = humantime::format_duration(args.connect_timeout);
        let sentence = format!("no daemon answers within {span}");
        let failure = CommandFailure::new(exit::NO_DAEMON, sentence);
        Err(failure.with_hint("--connect-timeout sets how long to wait"))
    })
}

/// Writes a line on a blocking thread, so that a slow reader blocks nothing else.
async fn write_line(line: serde_json::Result<String>) -> Result<(), CommandFailure> {
    let mut line = line.map_err(|error| CommandFailure::new(exit::INTERNAL, error))?;
    if io::stdout().is_terminal() {
        line = escape_json(&line);
    }

    let written =
        tokio::task::spawn_blocking(move || write_stdout(|stdout| writeln!(stdout, "{line}")));
    written
        .await
        .unwrap_or_else(|error| Err(CommandFailure::new(exit::INTERNAL, error)))
}
