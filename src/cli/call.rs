//! `caproot call`: a session over JSON lines, for programs in other languages and for tests. Each
//! line of stdin is a request, and each line of stdout is a response.

mod lines;
mod manager;
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
    ChangedSource, ChoiceRule, Session, SessionOptions, SessionPluginChanges, SkillChoice,
    SkillSource, SourceKind, ToolNames, ToolRegistry,
};
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::proto::caproot::v1::SelectedCapabilityRoot;
use caproot_core::sync::Mutex;
use caproot_core::text::escape_json;
use clap::Args;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use lines::stdin_lines;
use manager::ManagerArgs;
use serde_json::{Value, json};
use server::CallServer;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::unbounded_channel;
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
#[command(after_help = "\
Requests:
  The tools' names and JSON Schemas:
      {\"id\":1,\"method\":\"tools\"}
  A tool's result, success and externalContext:
      {\"id\":2,\"method\":\"call\",\"tool\":\"skills_list\",\"arguments\":{}}
  The text that describes the skills to a model:
      {\"id\":3,\"method\":\"instructions\",\"budget\":8000}
  The skills that a person names; also mentions, connectors, caller_skills:
      {\"id\":4,\"method\":\"inject\",\"text\":\"use $pdf\"}
  State of each executor; counters of the calls:
      {\"id\":5,\"method\":\"state\"}
      {\"id\":6,\"method\":\"metrics\"}
  The plugins with their components, with --plugins:
      {\"id\":7,\"method\":\"plugins\"}
  The answer of your tool: result, error (for the model) or bug (for the log):
      {\"id\":8,\"method\":\"tool_result\",\"call\":1,\"result\":{}}
  The session as JSON; the same session later, and its changes since then:
      {\"id\":9,\"method\":\"save\"}
      {\"id\":10,\"method\":\"restore\",\"saved\":{}}
      {\"id\":11,\"method\":\"changes\",\"session\":\"s-1\"}
  A session with some of the roots; the end of a session:
      {\"id\":12,\"method\":\"fork\",\"roots\":[\"demo\"]}
      {\"id\":13,\"method\":\"close\",\"session\":\"s-1\"}
  With --manager: pending calls, once or as a stream; a prompt, with inject and until:
      {\"id\":14,\"method\":\"drain\"}
      {\"id\":15,\"method\":\"listen\"}
      {\"id\":16,\"method\":\"send\",\"text\":\"use $pdf\",\"until\":[\"completed\"]}
  Each request may name a session that fork or restore returned.

Responses:
  {\"id\":1,\"result\":…} or {\"id\":1,\"error\":{\"code\":\"BAD_REQUEST\",\"message\":…}}

Examples:
  echo '{\"method\":\"call\",\"tool\":\"skills_list\",\"arguments\":{}}' | caproot call
  caproot call --fleet fleet.yaml --selected thread-start.json --events
  caproot call --fleet fleet.yaml --environment-id build-farm   # one executor")]
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
    /// Name the tools skills.list and skills.read, with a namespace, as Codex and the Responses API
    /// register tools. By default, the names are skills_list and skills_read. A call is accepted in
    /// either spelling
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
    let tool_names = if args.namespaced {
        ToolNames::Namespaced
    } else {
        ToolNames::Flat
    };
    let start_timeout = args.connect_timeout;
    let (lines, mut events) = unbounded_channel();
    let callbacks = Arc::new(ToolCallbacks::new(lines.clone()));
    let tools = match &args.tools {
        Some(file) => read_tools(file, &callbacks)?,
        None => ToolRegistry::default(),
    };
    let options = SessionOptions {
        product: args.product,
        choice: SkillChoice {
            include: args.include,
            exclude: args.exclude,
        },
        plugins: args.plugins,
        tool_names,
        tools,
        start_timeout,
        ..SessionOptions::default()
    };
    let sources = start_local_source(&args.local, &options).await?;
    let sources = [sources, args.mcp_servers.start(start_timeout).await?].concat();
    let session = Session::start_with(&fleet, roots, sources.clone(), &options).await;
    let session = session.map_err(|error| CommandFailure::new(exit::BAD_CONFIG, error))?;
    let session = Arc::new(session);
    let mut source_changes = session.watch();
    let mut plugin_changes = session.watch_plugins();
    let server = CallServer {
        manager: args.manager.connect(&session, lines).await?,
        fleet,
        options,
        sources,
        first: session,
        callbacks,
        stdin_ended: watch::Sender::new(false),
        others: Mutex::default(),
    };
    let mut requests = stdin_lines();
    let mut working = FuturesUnordered::new();
    let mut more = true;
    while more || !working.is_empty() {
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
            Some(event) = events.recv() => event.to_string(),
            Some(answer) = working.next() => answer,
            line = requests.recv(), if more && working.len() < limit => {
                match line {
                    None => {
                        more = false;
                        server.end_input();
                    }
                    Some(line) => {
                        let is_overloaded = working.len() >= MAX_IN_FLIGHT;
                        working.push(server.answer_line(line, is_overloaded));
                    }
                }
                continue;
            }
            source = source_changes.next(), if args.events => {
                changed_event(&server.first, &source).to_string()
            }
            changes = plugin_changes.next(), if args.events && args.plugins => {
                let SessionPluginChanges { added, changed, removed } = changes;
                let event = json!({
                    "event": "plugins", "added": added, "changed": changed, "removed": removed,
                });
                event.to_string()
            }
        };
        write_line(line_out).await?;
    }
    while let Ok(event) = events.try_recv() {
        write_line(event.to_string()).await?;
    }
    Ok(exit::OK)
}

/// Returns the event of a changed source.
fn changed_event(session: &Session, changed: &ChangedSource) -> Value {
    if changed.kind != SourceKind::Executor {
        let source = json!({ "kind": changed.kind.name(), "id": changed.id });
        return json!({ "event": "changed", "source": source });
    }
    let mut executors = session.executors().into_iter();
    let executor = executors.find(|executor| executor.environment_id == changed.id);
    json!({ "event": "changed", "executor": executor })
}

/// Starts the source of the local directories, if there is one.
async fn start_local_source(
    directories: &[RootArg],
    options: &SessionOptions,
) -> Result<Vec<Arc<dyn SkillSource>>, CommandFailure> {
    if directories.is_empty() {
        return Ok(Vec::new());
    }
    let named = directories.iter().map(|RootArg { id, dir }| {
        let dir = PathBuf::from(dir);
        id.clone().map(|id| (id, dir.clone())).ok_or_else(|| {
            let sentence = format!("--local {} has no id; write --local ID=DIR", dir.display());
            CommandFailure::new(exit::USAGE, sentence)
        })
    });
    let source = LocalSource::start("local", named.collect::<Result<_, _>>()?, options).await;
    let source = source.map_err(|error| {
        CommandFailure::new(exit::BAD_CONFIG, format!("cannot use --local: {error}"))
    })?;
    Ok(vec![Arc::new(source)])
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
    let connecting = async {
        let mut executor = args.connection.connect(env).await?;
        let roots = args.selection.selected_roots(&mut executor, env).await?;
        Ok((executor.session_fleet(&roots), roots))
    };
    let connected = tokio::time::timeout(args.connect_timeout, connecting).await;
    let connected = connected.unwrap_or_else(|_| {
        let span = humantime::format_duration(args.connect_timeout);
        let failure =
            CommandFailure::new(exit::NO_DAEMON, format!("no daemon answers within {span}"));
        Err(failure.with_hint("--connect-timeout sets how long to wait"))
    });
    match connected {
        Err(failure) if !args.needs_executor() && failure.exit_code() == exit::NO_DAEMON => {
            let reason = failure.sentence();
            print_stderr(&[format!("caproot: the session has no executor: {reason}")]);
            Ok((Fleet::from_executors([]), Vec::new()))
        }
        connected => connected,
    }
}

/// Writes a line on a blocking thread, so that a slow reader blocks nothing else.
async fn write_line(line: String) -> Result<(), CommandFailure> {
    let line = if io::stdout().is_terminal() {
        escape_json(&line)
    } else {
        line
    };
    let written =
        tokio::task::spawn_blocking(move || write_stdout(|stdout| writeln!(stdout, "{line}")));
    written
        .await
        .unwrap_or_else(|error| Err(CommandFailure::new(exit::INTERNAL, error)))
}
