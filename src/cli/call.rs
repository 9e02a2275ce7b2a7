//! `caproot call`: a session over JSON lines, for programs in other languages and for tests. Each
//! line of stdin is a request, and each line of stdout is a response.

mod answer;
mod event;
mod lines;
mod manager;
mod request;
mod server;
pub mod tools;

use super::exit;
use super::failure::CommandFailure;
use super::log_args::LogArgs;
use super::output::{print_stderr, write_stdout};
use super::session_args::SessionArgs;
use super::signals::run_until_signal;
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::sync::Mutex;
use caproot_core::text::escape_json;
use clap::Args;
use event::CallEvent;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use lines::stdin_lines;
use manager::ManagerArgs;
use server::CallServer;
use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;
use tools::ToolCallbacks;

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
///
/// With --tools, a call of a tool of your program is a line {"event":"tool",…}, which your program
/// answers by a line with the result.
#[derive(Debug, Args)]
#[command(after_help = include_str!("call/help.txt"))]
pub struct CallArgs {
    /// Also the plugins of the executors and local directories, for the request plugins. With
    /// --events, also print a line {"event":"plugins","added":…,"changed":…,"removed":…} after each
    /// change of a plugin
    #[arg(long)]
    plugins: bool,
    /// Print a line {"event":"changed","executor":…} after each change of an executor's skills or
    /// state, with "source" instead of "executor" for another source
    #[arg(long)]
    events: bool,
    #[command(flatten)]
    manager: ManagerArgs,
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    session: SessionArgs,
}

/// Answers requests until stdin ends or a signal comes.
pub async fn run(args: CallArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    run_until_signal(answer_requests(args, env)).await
}

async fn answer_requests(args: CallArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    if args.session.reads_stdin() {
        let sentence = "--selected - cannot be used here: stdin has the requests; name a file";
        return Err(CommandFailure::new(exit::USAGE, sentence));
    }

    args.log.start()?;
    let opened = args.session.open_fleet(env).await?;
    print_stderr(&opened.message_lines());

    let (sender, events) = unbounded_channel();
    let callbacks = Arc::new(ToolCallbacks::new(sender.clone()));
    let started = args
        .session
        .start_session(opened, &callbacks, args.plugins)
        .await?;

    let server = CallServer {
        manager: args.manager.connect(&started.session, sender).await?,
        fleet: started.fleet,
        options: started.options,
        sources: started.sources,
        first: started.session,
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
