//! `caproot call`: a session over JSON lines, for programs in other languages and for tests. Each
//! line of stdin is a request, and each line of stdout is a response.

mod answer;
mod dispatchers;
mod event;
mod executors;
mod in_flight;
mod lines;
mod manager;
mod own_sources;
mod plugin_server_args;
mod program_registry;
mod request;
mod schema;
mod server;
pub mod session_request;
pub mod tools;
mod usage_file;
mod watched;

use crate::cli::agents::session_args::{OpenedFleet, SessionArgs, SessionParts, SessionRoots};
use crate::cli::exit;
use crate::cli::failure::{CommandFailure, CommandResult as _};
use crate::cli::log_args::LogArgs;
use crate::cli::output::{print_stderr, write_stdout};
use crate::cli::signals::run_until_signal;
use caproot_client::Fleet;
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::sync::Mutex;
use caproot_core::text::escape_json;
use clap::Args;
use dispatchers::ProgramDispatchers;
use event::CallEvent;
use executors::SessionExecutors;
use futures_util::stream::{FuturesUnordered, SelectAll, StreamExt as _};
use in_flight::RequestsInFlight;
use lines::InputLines;
use manager::ManagerArgs;
use own_sources::ProgramFleets;
use plugin_server_args::PluginServerArgs;
use rmcp::transport::{StdioWriter, stdio_pipes};
use schema::lines_schema;
use server::{CallServer, MAX_FILES, MAX_IN_FLIGHT, OpenSession};
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{Semaphore, watch};
use tools::ToolCallbacks;
use usage_file::UsageFile;
use watched::{SessionEvents, WatchedSession};

/// Heading of the flags that only our packages for Python and TypeScript use.
const PACKAGE_OPTIONS: &str = "Package options";

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
///
/// With --tools, a call of a tool of your program is a line {"event":"tool",…}, which your program
/// answers by a line with the result.
#[derive(Debug, Args)]
#[command(after_help = include_str!("call/help.txt"))]
#[allow(clippy::struct_excessive_bools)] // each is a flag
pub struct CallArgs {
    /// Also the plugins of the executors and local directories, for the request plugins. With
    /// --events, also print a line {"event":"plugins","added":…,"changed":…,"removed":…} after each
    /// change of a plugin
    #[arg(long)]
    plugins: bool,
    /// Print a line {"event":"changed","executor":…} after each change of an executor's skills or
    /// state, with "source" instead of "executor" for another source
    #[arg(long, conflicts_with = "no_session")]
    events: bool,
    /// Print the JSON Schemas of the lines, as an object with request, answer and event, and exit
    #[arg(long)]
    schema: bool,
    /// Append a line of JSON to FILE for each use of a skill: listed, read, injected or searched, with
    /// time, session, skill and digest. A new file is readable by its owner alone
    #[arg(long, value_name = "FILE")]
    usage: Option<PathBuf>,
    #[command(flatten)]
    plugin_servers: PluginServerArgs,
    #[command(flatten)]
    manager: ManagerArgs,
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    session: SessionArgs,
    /// Start no session and connect to no executor. Each request start names the sources of its session
    #[arg(long, help_heading = PACKAGE_OPTIONS, conflicts_with_all = PLACE_FLAGS)]
    no_session: bool,
}

/// Flags that name the executors, the sources or the lock of the first session.
const PLACE_FLAGS: [&str; 10] = [
    "manager",
    "fleet",
    "root",
    "selected",
    "local",
    "preset",
    "mcp_servers",
    "site",
    "private_site",
    "lock",
];

/// Answers requests until stdin ends or a signal comes.
pub async fn run(args: CallArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    if args.schema {
        let schema = lines_schema();
        write_stdout(|stdout| writeln!(stdout, "{schema:#}"))?;
        return Ok(exit::OK);
    }
    run_until_signal(answer_requests(args, env)).await
}

async fn answer_requests(args: CallArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    if args.session.reads_stdin() {
        let sentence = "--selected - cannot be used here: stdin has the requests; name a file";
        return Err(CommandFailure::new(exit::USAGE, sentence));
    }

    args.log.start()?;
    let usage_file = args.usage.as_deref().map(UsageFile::open).transpose()?;

    let (sender, events) = unbounded_channel();
    let callbacks = Arc::new(ToolCallbacks::new(sender.clone()));
    let mut opened = None;
    if !args.no_session {
        let fleet = args.session.open_fleet(env).await?;
        print_stderr(&fleet.selected.message_lines());
        opened = Some(fleet);
    }
    // A request may start a session with plugins.
    let has_plugins = args.no_session || args.plugins || args.plugin_servers.is_chosen();
    let mut parts = args.session.start_parts(&callbacks, has_plugins).await?;
    parts.options.plugins = args.plugins;
    parts.options.mcp_servers = args.plugin_servers.options();
    let mut executors = None;
    let mut first = None;
    if let Some(OpenedFleet { fleet, selected }) = opened {
        first = Some(start_first_session(&parts, &fleet, selected).await?);
        executors = Some(SessionExecutors {
            fleet,
            args: &args.session,
            env,
        });
    }

    let manager = match &first {
        Some(open) => args.manager.connect(&open.session, sender).await?,
        None => None,
    };
    let (watched, new_watches) = unbounded_channel();
    if let Some(open) = first.as_ref().filter(|_| args.events) {
        // The receiver is still open.
        drop(watched.send(WatchedSession::new(open).into_events()));
    }
    if let (Some(open), Some(file)) = (&first, &usage_file) {
        file.follow(&open.session);
    }

    let server = CallServer {
        executors,
        options: parts.options,
        tools: parts.tools,
        sources: parts.sources,
        first,
        dispatchers: ProgramDispatchers::new(callbacks.clone()),
        callbacks,
        manager,
        stdin_ended: watch::Sender::new(false),
        watched,
        in_flight: RequestsInFlight::default(),
        permits: Semaphore::new(MAX_IN_FLIGHT),
        file_permits: Semaphore::new(MAX_FILES),
        others: Mutex::default(),
        fleets: ProgramFleets::default(),
        usage_file,
    };
    let written = write_lines_of(&server, events, new_watches).await;

    // The last uses are written also if stdout has failed.
    server.finish().await;
    written?;
    Ok(exit::OK)
}

/// Starts the session of the command line, which gets the tools, and prints the warnings of its MCP servers.
async fn start_first_session(
    parts: &SessionParts,
    fleet: &Fleet,
    selected: SessionRoots,
) -> Result<OpenSession, CommandFailure> {
    let session = parts.start_session(fleet, selected).await?;
    let warnings = session.mcp_server_warnings().into_iter();
    print_stderr(
        &warnings
            .map(|line| format!("caproot: {line}"))
            .collect::<Vec<_>>(),
    );

    // No session before the first one has the tools.
    let _ = parts.tools.owner.set(session.id().to_owned());
    Ok(OpenSession::new(session, parts.options.plugins))
}

/// Answers the lines of stdin, and writes the events, until stdin ends and all requests are answered.
async fn write_lines_of(
    server: &CallServer<'_>,
    mut events: UnboundedReceiver<CallEvent>,
    mut new_watches: UnboundedReceiver<SessionEvents>,
) -> Result<(), CommandFailure> {
    let (stdin, mut stdout) = stdio_pipes();
    let mut requests = InputLines::new(stdin);
    let mut working = FuturesUnordered::new();
    let mut watching = SelectAll::new();
    let mut has_input = true;
    while has_input || !working.is_empty() {
        // Requests over the maximum wait for a permit, so that a line with `cancel` is read behind them. While
        // calls of own tools wait, such requests are rejected instead: the answers of the tools may be behind
        // them.
        let has_waiting_tools = server.callbacks.has_waiting();
        let limit = MAX_IN_FLIGHT * if has_waiting_tools { 3 } else { 2 };
        let is_overloaded = has_waiting_tools && working.len() >= MAX_IN_FLIGHT;

        let line_out = tokio::select! {
            // Events come first: while one waits, no request goes on and no call of a manager
            // starts, so that the calls in flight limit the waiting events.
            biased;
            Some(event) = events.recv() => {
                server.callbacks.set_queued(events.len());
                event.to_line()
            }
            Some(answer) = working.next() => answer,
            line = requests.next(), if has_input && working.len() < limit => {
                if let Some(line) = line {
                    working.push(server.answer_line(line, is_overloaded));
                } else {
                    // Ends everything that waits for a line of stdin.
                    has_input = false;
                    server.stdin_ended.send_replace(true);
                    server.callbacks.close();
                }
                continue;
            }
            Some(watched) = new_watches.recv() => {
                watching.push(watched);
                continue;
            }
            Some(event) = watching.next() => event.to_line(),
        };
        write_line(&mut stdout, line_out).await?;
    }

    // The loop ends with the last answer, and events that came with the answer may still wait.
    while let Ok(event) = events.try_recv() {
        write_line(&mut stdout, event.to_line()).await?;
    }
    Ok(())
}

async fn write_line(
    stdout: &mut StdioWriter,
    line: serde_json::Result<String>,
) -> Result<(), CommandFailure> {
    let mut line = line.or_exit(exit::INTERNAL)?;
    if io::stdout().is_terminal() {
        line = escape_json(&line);
    }
    line.push('\n');

    let mut written = stdout.write_all(line.as_bytes()).await;
    if written.is_ok() {
        written = stdout.flush().await;
    }
    written.map_err(|error| CommandFailure::from_write_error(&error))
}
