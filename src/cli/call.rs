//! `caproot call`: a session over JSON lines, for programs in other languages and for tests. Each
//! line of stdin is a request, and each line of stdout is a response.

use super::args::{ConnectionArgs, SelectionArgs, parse_timeout};
use super::failure::CommandFailure;
use super::output::{print_stderr, write_stdout};
use super::signals::stop_signal;
use super::{exit, fleet};
use crate::client::{CallError, Client, Fleet};
use crate::model::text::{escape_json, escape_text, quote_value};
use crate::net::endpoint::ProcessEnv;
use crate::proto::caproot::v1::SelectedCapabilityRoot;
use crate::session::{
    ChoiceRule, DEFAULT_BUDGET, Session, SessionOptions, SkillChoice, ToolNames, UserPrompt,
};
use clap::Args;
use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::io::{self, BufRead, IsTerminal as _};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, channel};

/// Maximum number of requests in flight. Further lines are not read meanwhile.
const MAX_IN_FLIGHT: usize = 256;
/// Maximum size of a line.
const MAX_LINE_BYTES: u64 = 1 << 20;
/// Maximum number of lines that were read but not yet handled.
const MAX_QUEUED_LINES: usize = 16;

/// Run a model's tools by JSON lines
///
/// Starts a session with fixed roots and answers requests. Each request is one JSON object per line
/// on stdin. Each response is one line on stdout with the same id, which is any JSON value. A
/// response is printed as soon as it is ready. Exits with 0 after stdin has ended and every request
/// is answered.
#[derive(Debug, Args)]
#[command(after_help = "\
Requests:
  The tools' names and JSON Schemas:
      {\"id\":1,\"method\":\"tools\"}
  A tool's result, success and externalContext:
      {\"id\":2,\"method\":\"call\",\"tool\":\"skills.list\",\"arguments\":{}}
  The text that describes the skills to a model:
      {\"id\":3,\"method\":\"instructions\",\"budget\":8000}
  The skills that a person names; also mentions, connectors, caller_skills:
      {\"id\":4,\"method\":\"inject\",\"text\":\"use $pdf\"}
  State of each executor:
      {\"id\":5,\"method\":\"state\"}

Responses:
  {\"id\":1,\"result\":…} or {\"id\":1,\"error\":{\"code\":\"BAD_REQUEST\",\"message\":…}}

Examples:
  echo '{\"method\":\"call\",\"tool\":\"skills.list\",\"arguments\":{}}' | caproot call
  caproot call --fleet fleet.yaml --selected thread-start.json --events")]
pub struct CallArgs {
    /// Find the executor of each root in this YAML or JSON file, which maps environment ids to
    /// endpoints. Without --selected, uses the published roots of each executor
    #[arg(long, value_name = "FILE", conflicts_with_all = ["root", "timeout", "server_name"])]
    fleet: Option<PathBuf>,
    /// Only skills for this product, or for every product
    #[arg(long, value_name = "PRODUCT", default_value = "", hide_default_value = true)]
    product: String,
    /// Only skills that match a rule: name:NAME, handle:HANDLE (also all skills below the handle),
    /// or source:KIND/ID, where KIND is executor, local or mcp. Can be repeated
    #[arg(long, value_name = "RULE")]
    include: Vec<ChoiceRule>,
    /// No skill that matches this rule, even if --include matches. Can be repeated
    #[arg(long, value_name = "RULE")]
    exclude: Vec<ChoiceRule>,
    /// How long to wait at the start for executors that do not respond, such as 5s or 1m. An
    /// executor is not waited for if its socket is missing or the connection is rejected
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_timeout)]
    connect_timeout: Duration,
    /// Name the two tools without a dot, for platforms that reject dots in names: PREFIX,
    /// --tool-separator, and list or read
    #[arg(long, value_name = "PREFIX")]
    tool_prefix: Option<String>,
    /// With --tool-prefix: the separator between the parts of a tool's name
    #[arg(long, value_name = "TEXT", default_value = "_", requires = "tool_prefix")]
    tool_separator: String,
    /// Print a line {"event":"changed","executor":…} after each change of an executor's skills or
    /// state
    #[arg(long)]
    events: bool,
    #[command(flatten, next_help_heading = "Connection options")]
    connection: ConnectionArgs,
    #[command(flatten, next_help_heading = "Root options")]
    selection: SelectionArgs,
}

/// Answers requests until stdin ends or a signal comes.
pub async fn run(args: CallArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    let stop = stop_signal().map_err(|error| {
        CommandFailure::new(exit::INTERNAL, format!("cannot receive signals: {error}"))
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
    let start_timeout = args.connect_timeout;
    let options = SessionOptions {
        product: args.product,
        choice: SkillChoice { include: args.include, exclude: args.exclude },
        tool_names,
        start_timeout,
        ..SessionOptions::default()
    };
    let session = Session::start(&fleet, roots, &options).await;
    let session = session.map_err(|error| CommandFailure::new(exit::BAD_CONFIG, error))?;
    let mut requests = stdin_lines();
    let mut changes = session.watch();
    let mut working = FuturesUnordered::new();
    let mut more = true;
    while more || !working.is_empty() {
        let line_out = tokio::select! {
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
        write_line(line_out).await?;
    }
    Ok(exit::OK)
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
    if let Some(file) = &args.fleet {
        args.connection.reject_endpoint()?;
        let fleet = fleet::read_fleet(file).await?;
        let roots = match args.selection.roots_from_file()? {
            Some(roots) => roots,
            None => published_roots(&fleet, args.connect_timeout).await,
        };
        return Ok((fleet, roots));
    }
    let connecting = async {
        let (mut client, executor) = args.connection.connect_executor(env).await?;
        let roots = args.selection.selected_roots(&mut client, env).await?;
        Ok((fleet::single_executor_fleet(&executor, &roots), roots))
    };
    tokio::time::timeout(args.connect_timeout, connecting).await.unwrap_or_else(|_| {
        let span = humantime::format_duration(args.connect_timeout);
        let failure =
            CommandFailure::new(exit::NO_DAEMON, format!("no daemon answers within {span}"));
        Err(failure.with_hint("--connect-timeout sets how long to wait"))
    })
}

/// Lists the published roots of a fleet's executors. An executor that does not respond in time is
/// omitted, with a message on stderr.
async fn published_roots(fleet: &Fleet, within: Duration) -> Vec<SelectedCapabilityRoot> {
    let list_roots = async |id: &String| -> Result<Vec<SelectedCapabilityRoot>, String> {
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
                Err(format!("the executor has the environment {:?}", location.environment_id))
            }
        }
    };
    let ask = async |id: &String| {
        tokio::time::timeout(within, list_roots(id)).await.unwrap_or_else(|_| {
            let span = humantime::format_duration(within);
            Err(format!("no response within {span}; --connect-timeout sets how long to wait"))
        })
    };
    let ids = fleet.environment_ids();
    let results = join_all(ids.iter().map(ask)).await;
    let (mut taken, mut roots) = (HashSet::new(), Vec::new());
    for (id, answer) in ids.iter().zip(results) {
        match answer {
            Err(why) => {
                print_stderr(&[format!(
                    "caproot: the roots of {} are omitted: {}",
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

/// Answers one request line with one response line.
async fn answer_line(session: &Session, line: InputLine) -> String {
    let rejected = |id: &Value, message: &str| {
        json!({ "id": id, "error": { "code": "BAD_REQUEST", "message": message } }).to_string()
    };
    let request = match line {
        InputLine::Text(text) => match serde_json::from_str::<Map<String, Value>>(&text) {
            Ok(request) => request,
            Err(error) => {
                return rejected(&Value::Null, &format!("the line is not a JSON object: {error}"));
            }
        },
        InputLine::TooLong => return rejected(&Value::Null, "the line is over 1 MiB"),
        InputLine::NotUtf8 => return rejected(&Value::Null, "the line is not UTF-8"),
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
                // Not serialized again: the limit of the result counts exactly these bytes.
                let (success, json) = (result.success, result.json);
                let external = result.external_context;
                return format!(
                    "{{\"id\":{id},\"success\":{success},\"externalContext\":{external},\"result\":{json}}}"
                );
            }
            Err(why) => Err(why),
        },
        Some(other) => Err(format!("unknown method {}; see caproot help call", quote_value(other))),
        None => Err("`method` is missing or not text".to_owned()),
    };
    match outcome {
        Ok(result) => json!({ "id": id, "result": result }).to_string(),
        Err(why) => rejected(&id, &why),
    }
}

fn parse_params<T: DeserializeOwned>(rest: Value) -> Result<T, String> {
    serde_json::from_value(rest).map_err(|error| error.to_string())
}

/// Writes a line on a blocking thread, so that a slow reader blocks nothing else.
async fn write_line(line: String) -> Result<(), CommandFailure> {
    let line = if io::stdout().is_terminal() { escape_json(&line) } else { line };
    let written =
        tokio::task::spawn_blocking(move || write_stdout(|stdout| writeln!(stdout, "{line}")));
    written.await.unwrap_or_else(|error| Err(CommandFailure::new(exit::INTERNAL, error)))
}

/// One line, without its line feed.
#[derive(Debug, PartialEq, Eq)]
enum InputLine {
    Text(String),
    /// Over 1 MiB, and skipped.
    TooLong,
    NotUtf8,
}

/// Reads the lines of stdin in a thread. Empty lines are skipped. A read error counts as the end.
fn stdin_lines() -> Receiver<InputLine> {
    let (send, receive) = channel(MAX_QUEUED_LINES);
    thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        while let Ok(Some(line)) = next_line(&mut stdin) {
            if send.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receive
}

fn next_line(source: &mut impl BufRead) -> io::Result<Option<InputLine>> {
    loop {
        let mut bytes = Vec::new();
        let mut limited = io::Read::take(&mut *source, MAX_LINE_BYTES + 1);
        if limited.read_until(b'\n', &mut bytes)? == 0 {
            return Ok(None);
        }
        if bytes.len() as u64 > MAX_LINE_BYTES && !bytes.ends_with(b"\n") {
            source.skip_until(b'\n')?;
            return Ok(Some(InputLine::TooLong));
        }
        if !bytes.trim_ascii().is_empty() {
            return Ok(Some(String::from_utf8(bytes).map_or(InputLine::NotUtf8, InputLine::Text)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{InputLine, next_line};

    #[test]
    fn invalid_and_long_lines_are_reported() {
        let long = "x".repeat((1 << 20) + 5);
        let mut source = b"a\n\n \nb\xff\n".to_vec();
        source.extend(long.as_bytes());
        source.extend(b"\n\nlast");
        let mut source = source.as_slice();
        let mut all = Vec::new();
        while let Some(line) = next_line(&mut source).expect("memory") {
            all.push(line);
        }
        let [InputLine::Text(first), InputLine::NotUtf8, InputLine::TooLong, InputLine::Text(last)] =
            &all[..]
        else {
            panic!("four lines: {}", all.len())
        };
        assert_eq!((first.trim_end(), last.as_str()), ("a", "last"));
    }
}
