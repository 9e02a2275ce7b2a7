//! `caproot call`: a session on the command line, for programs in other languages and for tests. One
//! request a line on stdin, one answer a line on stdout. Leaves what requests mean to `session`, and how
//! lines are read to `lines`.

use super::args::{ConnectionArgs, SelectionArgs, parse_timeout};
use super::exit;
use super::failure::CommandFailure;
use super::fleet;
use super::output::{print_stderr, write_stdout};
use super::signals::stop_signal;
use super::stdin_lines::{InputLine, stdin_lines};
use super::text::{escape_json, escape_text};
use crate::client::{CallError, Client, Fleet};
use crate::endpoint::ProcessEnv;
use crate::proto::caproot::v1::SelectedCapabilityRoot;
use crate::session::{DEFAULT_BUDGET, Session, SessionOptions, ToolNames, UserPrompt};
use clap::Args;
use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::time::Duration;

/// The most requests that are worked on at once; further lines wait to be read.
const MAX_IN_FLIGHT: usize = 256;

/// Run a model's tools by JSON lines
///
/// Begins a session with the roots, which stay the same, and answers requests: one JSON object a line on
/// stdin, one a line on stdout for each, with the same id, as soon as it is ready. Ends with 0 when stdin
/// does and everything is answered.
#[derive(Debug, Args)]
#[command(after_help = "\
Requests (id is any JSON value, and comes back):
  {\"id\":1,\"method\":\"tools\"}                            the tools' names and JSON Schemas
  {\"id\":2,\"method\":\"call\",\"tool\":\"skills.list\",\"arguments\":{}}
                                                     a tool's result, success, externalContext
  {\"id\":3,\"method\":\"instructions\",\"budget\":8000}     the text that tells a model what there is
  {\"id\":4,\"method\":\"inject\",\"text\":\"use $pdf\"}       the skills that a person named; also mentions,
                                                     connectors, caller_skills
  {\"id\":5,\"method\":\"state\"}                            how each executor is
Answers:
  {\"id\":1,\"result\":…} or {\"id\":1,\"error\":{\"code\":\"BAD_REQUEST\",\"message\":…}}

Examples:
  echo '{\"method\":\"call\",\"tool\":\"skills.list\",\"arguments\":{}}' | caproot call
  caproot call --fleet fleet.yaml --selected thread-start.json --events")]
pub(super) struct CallArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(flatten)]
    selection: SelectionArgs,
    /// Find the executor of each root in this file, in YAML or JSON, which maps environment ids to
    /// endpoints. Without --selected, the roots that each publishes
    #[arg(long, value_name = "FILE", conflicts_with_all = ["root", "timeout", "server_name"])]
    fleet: Option<PathBuf>,
    /// Only skills for this product, or for every product
    #[arg(long, value_name = "PRODUCT", default_value = "", hide_default_value = true)]
    product: String,
    /// How long to wait at the start for executors that do not answer, such as 5s or 1m. An executor whose
    /// socket is missing or which refuses the connection is not waited for
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_timeout)]
    connect_timeout: Duration,
    /// Name the two tools without a namespace, for platforms that refuse a dot in a name: PREFIX,
    /// --tool-separator, and list or read
    #[arg(long, value_name = "PREFIX")]
    tool_prefix: Option<String>,
    /// With --tool-prefix: the text between the parts of a tool's name
    #[arg(long, value_name = "TEXT", default_value = "_", requires = "tool_prefix")]
    tool_separator: String,
    /// Print a line {"event":"changed","executor":…} whenever an executor's skills or state change
    #[arg(long)]
    events: bool,
}

/// Answers requests until there are no more.
pub(super) async fn run(args: CallArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    let stop = stop_signal().map_err(|error| {
        CommandFailure::new(exit::INTERNAL, format!("signals cannot be received: {error}"))
    })?;
    tokio::select! {
        () = stop => Ok(exit::OK),
        ended = answer_requests(args, env) => ended,
    }
}

async fn answer_requests(args: CallArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    let (fleet, roots) = open_fleet(&args, env).await?;
    let tool_names = match &args.tool_prefix {
        Some(prefix) => ToolNames::flat(prefix, &args.tool_separator)
            .map_err(|error| CommandFailure::new(exit::USAGE, error))?,
        None => ToolNames::default(),
    };
    let patience = args.connect_timeout;
    let options = SessionOptions {
        product: args.product,
        tool_names,
        start_timeout: patience,
        ..SessionOptions::default()
    };
    let session = Session::start(&fleet, roots, &options).await;
    let session = session.map_err(|error| CommandFailure::new(exit::BAD_CONFIG, error))?;
    let mut requests = stdin_lines();
    let mut changes = session.watch();
    let mut working = FuturesUnordered::new();
    let mut more = true;
    while more || !working.is_empty() {
        let said = tokio::select! {
            line = requests.recv(), if more && working.len() < MAX_IN_FLIGHT => {
                match line {
                    None => more = false,
                    Some(line) => working.push(answer_line(&session, line)),
                }
                continue;
            }
            Some(answer) = working.next() => answer,
            whose = changes.next(), if args.events => {
                let mut executors = session.executors().into_iter();
                let executor = executors.find(|executor| executor.environment_id == whose.id);
                json!({ "event": "changed", "executor": executor }).to_string()
            }
        };
        write_line(said).await?;
    }
    Ok(exit::OK)
}

/// The executors and the roots of the session.
async fn open_fleet(
    args: &CallArgs,
    env: &ProcessEnv,
) -> Result<(Fleet, Vec<SelectedCapabilityRoot>), CommandFailure> {
    if args.selection.is_of_stdin() {
        let sentence = "--selected - cannot be used here: stdin is for requests; name a file";
        return Err(CommandFailure::new(exit::USAGE, sentence));
    }
    if let Some(file) = &args.fleet {
        args.connection.refuse_endpoint()?;
        let fleet = fleet::read_fleet(file).await?;
        let roots = match args.selection.roots_from_file()? {
            Some(roots) => roots,
            None => published_roots(&fleet, args.connect_timeout).await,
        };
        return Ok((fleet, roots));
    }
    let begun = async {
        let (mut client, executor) = args.connection.connect_executor(env).await?;
        let roots = args.selection.selected_roots(&mut client, env).await?;
        Ok((fleet::single_executor_fleet(&executor, &roots), roots))
    };
    tokio::time::timeout(args.connect_timeout, begun).await.unwrap_or_else(|_| {
        let span = humantime::format_duration(args.connect_timeout);
        let failure =
            CommandFailure::new(exit::NO_DAEMON, format!("no daemon answers within {span}"));
        Err(failure.with_hint("--connect-timeout sets how long to wait"))
    })
}

/// The roots that the executors of a fleet publish. An executor that does not answer within the time is
/// left out, and stderr says so.
async fn published_roots(fleet: &Fleet, within: Duration) -> Vec<SelectedCapabilityRoot> {
    let asked = async |id: &String| -> Result<Vec<SelectedCapabilityRoot>, String> {
        let mut client: Client = fleet.client(id).await.map_err(|error| error.to_string())?;
        let answer = client.list_roots().await.map_err(|error: CallError| error.to_string())?;
        let roots = answer.roots.into_iter().filter_map(|root| root.selected_capability_root);
        let roots: Vec<_> = roots.collect();
        let is_its = |root: &SelectedCapabilityRoot| {
            root.location.as_ref().is_some_and(|location| location.environment_id == *id)
        };
        match roots.iter().find(|root| !is_its(root)) {
            None => Ok(roots),
            Some(other) => {
                let location = other.location.clone().unwrap_or_default();
                Err(format!("it is the executor of environment {:?}", location.environment_id))
            }
        }
    };
    let ask = async |id: &String| {
        tokio::time::timeout(within, asked(id)).await.unwrap_or_else(|_| {
            let span = humantime::format_duration(within);
            Err(format!("no answer within {span}; --connect-timeout sets how long to wait"))
        })
    };
    let ids = fleet.environment_ids();
    let answers = join_all(ids.iter().map(ask)).await;
    let (mut taken, mut roots) = (HashSet::new(), Vec::new());
    for (id, answer) in ids.iter().zip(answers) {
        match answer {
            Err(why) => {
                print_stderr(&[format!(
                    "caproot: the roots of {} are left out: {}",
                    escape_text(id),
                    escape_text(&why)
                )]);
            }
            Ok(published) => roots.extend(published.into_iter().map(|mut root| {
                if !taken.insert(root.id.clone()) {
                    root.id = format!("{}@{id}", root.id);
                    taken.insert(root.id.clone());
                }
                root
            })),
        }
    }
    roots
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoParams {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallParams {
    tool: String,
    #[serde(default)]
    arguments: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InstructionsParams {
    #[serde(default)]
    budget: Option<usize>,
}

/// The answer to one line, as a line.
async fn answer_line(session: &Session, line: InputLine) -> String {
    let refused = |id: &Value, message: &str| {
        json!({ "id": id, "error": { "code": "BAD_REQUEST", "message": message } }).to_string()
    };
    let request = match line {
        InputLine::Text(text) => match serde_json::from_str::<Map<String, Value>>(&text) {
            Ok(request) => request,
            Err(error) => {
                return refused(&Value::Null, &format!("the line is no JSON object: {error}"));
            }
        },
        InputLine::TooLong => return refused(&Value::Null, "the line is over 1 MiB"),
        InputLine::NotUtf8 => return refused(&Value::Null, "the line is not UTF-8"),
    };
    let mut request = request;
    let id = request.remove("id").unwrap_or_default();
    let method = request.remove("method");
    let rest = Value::Object(request);
    let outcome = match method.as_ref().and_then(Value::as_str) {
        Some("tools") => parse_params(rest).map(|NoParams {}| session.dynamic_tools()),
        Some("state") => parse_params(rest).map(|NoParams {}| json!(session.executors())),
        Some("instructions") => parse_params(rest).map(|InstructionsParams { budget }| {
            json!(session.instruction_text(budget.unwrap_or(DEFAULT_BUDGET)))
        }),
        Some("inject") => match parse_params::<UserPrompt>(rest) {
            Ok(prompt) => Ok(json!(session.inject(&prompt).await)),
            Err(why) => Err(why),
        },
        Some("call") => match parse_params::<CallParams>(rest) {
            Ok(CallParams { tool, arguments }) => {
                let result = session.call(&tool, &arguments).await;
                // As it is, so that its bytes are those of the bound.
                let (success, json) = (result.success, result.json);
                let external = result.external_context;
                return format!(
                    "{{\"id\":{id},\"success\":{success},\"externalContext\":{external},\"result\":{json}}}"
                );
            }
            Err(why) => Err(why),
        },
        Some(other) => Err(format!("there is no method {other:?}; see caproot help call")),
        None => Err("`method` is missing, or no text".to_owned()),
    };
    match outcome {
        Ok(result) => json!({ "id": id, "result": result }).to_string(),
        Err(why) => refused(&id, &why),
    }
}

fn parse_params<T: DeserializeOwned>(rest: Value) -> Result<T, String> {
    serde_json::from_value(rest).map_err(|error| error.to_string())
}

/// Writes a line where a reader that stops for a while stops nothing else.
async fn write_line(line: String) -> Result<(), CommandFailure> {
    let line = if io::stdout().is_terminal() { escape_json(&line) } else { line };
    let written =
        tokio::task::spawn_blocking(move || write_stdout(|stdout| writeln!(stdout, "{line}")));
    written.await.unwrap_or_else(|error| Err(CommandFailure::new(exit::INTERNAL, error)))
}
