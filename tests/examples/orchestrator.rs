//! All that a session owns, at once: skills of two executors, of a directory of this machine and of a
//! server of Skills over MCP, and functions of this program, for a thread of a platform that keeps
//! pending calls. One of each fails on the way, and the thread goes on.
//!
//!     orchestrator COMMAND ARGUMENT…
//!
//! runs the command as the MCP server; it prints `listening URL` first.

// It is to be seen what happens.
#![allow(clippy::print_stdout)]

// The tests of this repository have it beside other examples with the same modules.
#[allow(dead_code, unreachable_pub, clippy::duplicate_mod)]
#[path = "manager.rs"]
mod manager;
#[allow(dead_code, unreachable_pub, clippy::duplicate_mod)]
#[path = "service.rs"]
mod service;
#[path = "stage.rs"]
mod stage;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use caproot::client::ChangesSince;
use caproot::session::dispatch::{CallDispatcher, DispatchOptions};
use caproot::session::{
    CustomTool, DEFAULT_BUDGET, ForkScope, MemoryStore, Session, SessionOptions, SessionStore as _,
    ToolRegistry,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use manager::HttpThread;
use service::Fault;
use stage::Stage;

const THREAD: &str = "thread-1";

/// Counts the words of a text.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Count {
    /// The text.
    text: String,
}

/// How many words there are.
#[derive(Serialize, JsonSchema)]
struct Counted {
    words: usize,
}

#[tokio::main]
#[allow(dead_code)]
async fn main() -> Result<(), Box<dyn Error>> {
    let command: Vec<String> = std::env::args().skip(1).collect();
    for line in run(&command).await? {
        println!("{line}");
    }
    Ok(())
}

/// What happens, a line each.
pub(crate) async fn run(mcp: &[String]) -> Result<Vec<String>, Box<dyn Error>> {
    let mut stage = Stage::set(mcp).await?;
    let mut said = Vec::new();
    let store = Arc::new(MemoryStore::default());
    let tools = own_tools()?;
    let options =
        SessionOptions { id: Some(THREAD.to_owned()), tools, ..SessionOptions::default() };
    let others = stage.others(&options).await?;
    let session = Session::start_with(&stage.fleet, Stage::selected()?, others, &options).await?;
    let session = Arc::new(session.with_store(store.clone()));
    let text = session.instruction_text(DEFAULT_BUDGET);
    said.push(format!("told: {} skills, and warned {:?}", text.listed, text.warnings));
    let mut thread = Thread { stage: &mut stage, dispatcher: None, made: 0 };
    thread.handled_by(session.clone());

    // The first answer is taken, and nobody hears of it; the second is refused twice.
    thread.stage.service.fail("thread-1/0", [Fault::Lost]);
    thread.stage.service.fail("thread-1/1", [Fault::Error; 2]);
    let calls = [
        ("skills.list", json!({})),
        ("words.count", json!({"text": "three short words"})),
        ("words.count", json!({"text": 3})),
        ("wait", json!({})),
        ("break", json!({})),
    ];
    let mut answers = thread.turn(&calls).await?;
    let skills = answers.remove(0)["skills"].as_array().cloned().unwrap_or_default();
    for skill in &skills {
        said.push(format!("listed: {} {}", skill["authority"]["kind"], skill["name"]));
    }
    said.extend(answers.iter().map(|answer| format!("own tool: {}", short(answer))));

    // A skill of each source.
    let of = |kind: &str, id: &str| {
        let is_it = |s: &&Value| {
            s["authority"]["kind"] == kind && (id.is_empty() || s["authority"]["id"] == id)
        };
        skills.iter().find(is_it).map(read).ok_or_else(|| format!("no skill of {kind} {id}"))
    };
    let reads =
        [of("executor", "build")?, of("executor", "docs")?, of("local", "")?, of("mcp", "")?];
    for answer in thread.turn(&reads).await? {
        said.push(format!("read: {}", short(&answer)));
    }

    // An executor, the MCP server and the platform fail; what is left goes on.
    thread.stage.stop_docs().await?;
    thread.stage.kill_mcp().await?;
    thread.stage.service.fail(&thread.id(0), [Fault::Error; 4]);
    // The server's file from before is still at hand, and is what was promised; another one is not.
    let fresh = skills.iter().filter(|skill| skill["authority"]["kind"] == "mcp").nth(1);
    let calls: Vec<_> = reads.iter().cloned().chain(fresh.map(read)).collect();
    for answer in thread.turn(&calls).await? {
        said.push(format!("read while two are gone: {}", short(&answer)));
    }
    session.persist().await?;
    said.push(format!("deleted: {}", session.close(false).await.deleted));

    // Another process goes on, when all are back; meanwhile somebody added a skill.
    thread.stage.add_release()?;
    thread.stage.start_docs().await?;
    thread.stage.start_mcp().await?;
    let options = SessionOptions { tools: options.tools.copy(), ..SessionOptions::default() };
    let others = thread.stage.others(&options).await?;
    let saved = store.get(THREAD).await?.ok_or("it was kept")?;
    let restored = Session::restore_with(&thread.stage.fleet, &saved, others, &options).await?;
    said.extend(restored.warnings.iter().map(|warning| format!("warned: {warning}")));
    for executor in &restored.changes_since_save {
        let since = match executor.changes.as_deref() {
            Some(ChangesSince::Known { upserted, removed, .. }) => {
                format!("{upserted:?}, gone {removed:?}")
            }
            Some(ChangesSince::Unknown { reason, roots }) => {
                format!("read {roots:?} again: {reason}")
            }
            None => "it does not answer yet".to_owned(),
        };
        said.push(format!("since then in {}: {since}", executor.environment_id));
    }
    let session = Arc::new(restored.session.with_store(store.clone()));
    thread.handled_by(session.clone());
    for answer in thread.turn(&reads).await? {
        said.push(format!("read again: {}", short(&answer)));
    }

    // A subagent has one root, and the functions.
    let fork = session.fork(ForkScope::Only(&["build"]))?;
    let list = fork.call("skills.list", &json!({})).await;
    let list: Value = serde_json::from_str(&list.json)?;
    let names = list["skills"].as_array().into_iter().flatten().map(|skill| &skill["name"]);
    said.push(format!("the fork has: {:?}", names.collect::<Vec<_>>()));
    for series in session.metrics().invocations {
        said.push(format!(
            "counted: {} {} {:?} {} {}",
            series.source_kind, series.source_id, series.kind, series.outcome, series.count
        ));
    }
    said.push(format!("deleted: {}", session.close(true).await.deleted));
    let Thread { stage, .. } = thread;
    said.push(format!("answered twice: {:?}", stage.service.repeated()));
    said.push(format!("still pending: {:?}", stage.service.pending()));
    Ok(said)
}

/// The functions of this program, of which one never ends and one breaks down.
fn own_tools() -> Result<ToolRegistry, Box<dyn Error>> {
    let none = json!({"type": "object", "properties": {}, "additionalProperties": false});
    let tools = ToolRegistry::new();
    let count = |Count { text }: Count| async move {
        Ok::<_, String>(Counted { words: text.split_whitespace().count() })
    };
    tools.register(CustomTool::new("count", count).in_namespace("words"))?;
    let wait = |_: Value| std::future::pending::<Result<Value, String>>();
    let wait = CustomTool::new("wait", wait).description("Waits for what never comes.");
    tools.register(wait.input_schema(none.clone()).time_limit(Duration::from_millis(100)))?;
    let first_of_none = |_: Value| async { Err::<Value, _>(Vec::<String>::new().remove(0)) };
    let broken = CustomTool::new("break", first_of_none).description("Breaks down.");
    tools.register(broken.input_schema(none))?;
    Ok(tools)
}

/// The thread of the platform, and who answers its calls.
struct Thread<'a> {
    stage: &'a mut Stage,
    dispatcher: Option<CallDispatcher>,
    /// How many calls there were.
    made: usize,
}

impl Thread<'_> {
    fn handled_by(&mut self, session: Arc<Session>) {
        let (manager, options) = (self.stage.manager.clone(), DispatchOptions::default());
        self.dispatcher = Some(CallDispatcher::new(THREAD, manager, session, options));
    }

    /// The id of a call of the next turn.
    fn id(&self, n: usize) -> String {
        format!("{THREAD}/{}", self.made + n)
    }

    /// Sends a turn whose model makes these calls; what it is answered, when the thread is at rest.
    async fn turn(&mut self, calls: &[(&str, Value)]) -> Result<Vec<Value>, Box<dyn Error>> {
        let ids: Vec<_> = (0..calls.len()).map(|n| self.id(n)).collect();
        self.made += calls.len();
        let call =
            |(tool, arguments): &(&str, Value)| json!({"tool": tool, "arguments": arguments});
        let turn = json!({"calls": calls.iter().map(call).collect::<Vec<_>>()});
        let dispatcher = self.dispatcher.as_ref().ok_or("nobody answers")?;
        let thread = HttpThread { manager: &self.stage.manager, id: THREAD };
        dispatcher.send_and_handle(&thread, &turn, ["completed", "failed"]).await?;
        // The thread may be at rest before the last answer was acknowledged.
        dispatcher.wait_idle().await;
        let mut answers = self.stage.service.answers();
        Ok(ids.iter().filter_map(|id| answers.remove(id)).map(|a| a["result"].clone()).collect())
    }
}

/// The call that reads a listed skill.
fn read(skill: &Value) -> (&'static str, Value) {
    let (authority, package) = (&skill["authority"], &skill["package"]);
    ("skills.read", json!({"authority": authority, "package": package, "resource": ""}))
}

/// Of an answer its contents, or the code of the refusal.
fn short(answer: &Value) -> String {
    let refused = answer["error"]["code"].as_str();
    let contents = answer["contents"].as_str().and_then(|text| text.lines().last());
    refused.or(contents).map_or_else(|| answer.to_string(), str::to_owned)
}
