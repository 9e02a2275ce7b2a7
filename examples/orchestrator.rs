//! Combines all parts of an orchestrator: skills of two executors, a local directory and an MCP
//! server, tools of this program, and a platform with pending calls.
//!
//! ```sh
//! cargo build
//! cargo run --example orchestrator -- target/debug/caproot mcp --http 127.0.0.1:0
//! ```
//!
//! The arguments are the command of the MCP server, which must print `listening URL` first.
//! `caproot mcp` needs a running daemon. An executor, the MCP server, the platform and two tools
//! fail, and the thread continues. Then the session is saved, restored and forked.

// The example prints its results.
#![allow(clippy::print_stdout)]

// The tests include these modules a second time through other examples.
#[path = "support/example_services.rs"]
mod example_services;
#[allow(dead_code, unreachable_pub, clippy::duplicate_mod)]
#[path = "support/service.rs"]
mod service;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use caproot_client::ChangesSince;
use caproot_session::dispatch::{CallDispatcher, DispatchOptions};
use caproot_session::{
    CustomTool, DEFAULT_BUDGET, ForkScope, MemoryStore, RestoredSession, Session, SessionOptions,
    SessionStore as _, ToolRegistry,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use example_services::{ExampleServices, THREAD};
use service::Fault;

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

/// Runs the example. Returns its output, line by line.
pub(crate) async fn run(mcp: &[String]) -> Result<Vec<String>, Box<dyn Error>> {
    let mut services = ExampleServices::start(mcp).await?;
    let mut lines = Vec::new();
    let store = Arc::new(MemoryStore::default());
    let tools = custom_tools()?;
    let options = SessionOptions {
        id: Some(THREAD.to_owned()),
        tools,
        ..SessionOptions::default()
    };
    let other_sources = services.other_sources(&options).await?;
    let session = Session::start_with(
        &services.fleet,
        ExampleServices::selected()?,
        other_sources,
        &options,
    )
    .await?;
    let session = Arc::new(session.with_store(store.clone()));

    let text = session.instruction_text(DEFAULT_BUDGET);
    lines.push(format!(
        "told: {} skills, and warned {:?}",
        text.listed, text.warnings
    ));
    let mut thread = Thread {
        services: &mut services,
        dispatcher: None,
        call_count: 0,
    };
    thread.set_session(session.clone());

    // The first answer is accepted, but its response is lost. The second answer fails twice.
    thread.services.service.fail("thread-1/0", [Fault::Lost]);
    thread
        .services
        .service
        .fail("thread-1/1", [Fault::Error; 2]);
    let calls = [
        ("skills.list", json!({})),
        ("words.count", json!({"text": "three short words"})),
        ("words.count", json!({"text": 3})),
        ("wait", json!({})),
        ("break", json!({})),
    ];
    let mut answers = thread.turn(&calls).await?;
    let skills = answers.remove(0)["skills"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    lines.extend(
        skills
            .iter()
            .map(|skill| format!("listed: {} {}", skill["authority"]["kind"], skill["name"])),
    );
    let own = answers.iter().map(summary);
    lines.extend(own.map(|answer| format!("own tool: {answer}")));

    // One skill of each source is read.
    let read_of = |kind: &str, id: &str| {
        let is_match = |s: &&Value| {
            s["authority"]["kind"] == kind && (id.is_empty() || s["authority"]["id"] == id)
        };
        skills
            .iter()
            .find(is_match)
            .map(read)
            .ok_or_else(|| format!("no skill of {kind} {id}"))
    };
    let reads = [
        read_of("executor", "build")?,
        read_of("executor", "docs")?,
        read_of("local", "")?,
        read_of("mcp", "")?,
    ];
    for answer in thread.turn(&reads).await? {
        lines.push(format!("read: {}", summary(&answer)));
    }

    // An executor, the MCP server and the platform fail. The other sources still work.
    thread.services.stop_docs().await?;
    thread.services.kill_mcp().await?;
    thread
        .services
        .service
        .fail(&thread.id(0), [Fault::Error; 4]);
    // The file of the MCP server that was read before is cached until the source notices the loss.
    // Another file is not available.
    let fresh = skills
        .iter()
        .filter(|skill| skill["authority"]["kind"] == "mcp")
        .nth(1);
    let calls: Vec<_> = reads.iter().cloned().chain(fresh.map(read)).collect();
    for answer in thread.turn(&calls).await? {
        lines.push(format!("read while two are gone: {}", summary(&answer)));
    }
    session.persist().await?;
    lines.push(format!("deleted: {}", session.close(false).await.deleted));

    // Another process restores the session after a skill was added and all services are back.
    thread.services.add_release()?;
    thread.services.start_docs().await?;
    thread.services.start_mcp().await?;
    let restored = restore_session(thread.services, &store, options.tools.copy()).await?;
    lines.extend(
        restored
            .warnings
            .iter()
            .map(|warning| format!("warned: {warning}")),
    );
    lines.extend(restored.changes_since_save.iter().map(|executor| {
        let since = describe_changes(executor.changes.as_deref());
        format!("since then in {}: {since}", executor.environment_id)
    }));
    let session = Arc::new(restored.session.with_store(store.clone()));
    thread.set_session(session.clone());
    for answer in thread.turn(&reads).await? {
        lines.push(format!("read again: {}", summary(&answer)));
    }

    // The subagent has one root, and the tools.
    let fork = session.fork(ForkScope::Only(&["build"]))?;
    lines.push(format!("the fork has: {:?}", listed_names(&fork).await?));

    lines.extend(
        session
            .source_states()
            .iter()
            .map(|state| format!("source: {} {} has {}", state.kind, state.id, state.skills)),
    );
    lines.push(format!("deleted: {}", session.close(true).await.deleted));
    let Thread { services, .. } = thread;
    lines.push(format!("answered twice: {:?}", services.service.repeated()));
    lines.push(format!("still pending: {:?}", services.service.pending()));
    Ok(lines)
}

/// Restores the session that the store has.
async fn restore_session(
    services: &ExampleServices,
    store: &MemoryStore,
    tools: ToolRegistry,
) -> Result<RestoredSession, Box<dyn Error>> {
    let options = SessionOptions {
        tools,
        // Longer than the longest delay of a retry: an executor was lost a moment ago.
        start_timeout: Duration::from_secs(30),
        ..SessionOptions::default()
    };
    let other_sources = services.other_sources(&options).await?;

    let saved = store
        .get(THREAD)
        .await?
        .ok_or("the store has no such session")?;
    Ok(Session::restore_with(&services.fleet, &saved, other_sources, &options).await?)
}

/// Returns the changes of an executor since a session was saved, as text.
fn describe_changes(changes: Option<&ChangesSince>) -> String {
    match changes {
        Some(ChangesSince::Known {
            upserted, removed, ..
        }) => format!("{upserted:?}, gone {removed:?}"),
        Some(ChangesSince::Unknown { reason, roots }) => format!("read {roots:?} again: {reason}"),
        None => "the executor does not answer yet".to_owned(),
    }
}

/// Returns the names of the first page of a session's skills.
async fn listed_names(session: &Session) -> Result<Vec<Value>, Box<dyn Error>> {
    let list = session.call("skills.list", &json!({})).await;
    let list: Value = serde_json::from_str(&list.json)?;

    let skills = list["skills"].as_array().into_iter().flatten();
    Ok(skills.map(|skill| skill["name"].clone()).collect())
}

/// Registers the tools of this program: one counts words, one never ends and one panics.
fn custom_tools() -> Result<ToolRegistry, Box<dyn Error>> {
    let none = json!({"type": "object", "properties": {}, "additionalProperties": false});
    let tools = ToolRegistry::new();
    let count = |Count { text }: Count| async move {
        Ok::<_, String>(Counted {
            words: text.split_whitespace().count(),
        })
    };
    tools.register(CustomTool::new("count", count).in_namespace("words"))?;
    let wait = |_: Value| std::future::pending::<Result<Value, String>>();
    let wait = CustomTool::new("wait", wait).description("Waits for what never comes.");
    tools.register(
        wait.input_schema(none.clone())
            .time_limit(Duration::from_millis(100)),
    )?;
    let first_of_none = |_: Value| async { Err::<Value, _>(Vec::<String>::new().remove(0)) };
    let broken = CustomTool::new("break", first_of_none).description("Breaks down.");
    tools.register(broken.input_schema(none))?;
    Ok(tools)
}

/// Thread of the platform, with the dispatcher that answers its calls.
struct Thread<'a> {
    services: &'a mut ExampleServices,
    dispatcher: Option<CallDispatcher>,
    /// Number of calls so far.
    call_count: usize,
}

impl Thread<'_> {
    fn set_session(&mut self, session: Arc<Session>) {
        let (manager, options) = (self.services.manager.clone(), DispatchOptions::default());
        self.dispatcher = Some(CallDispatcher::new(THREAD, manager, session, options));
    }

    /// Returns the id of a call of the next turn.
    fn id(&self, n: usize) -> String {
        format!("{THREAD}/{}", self.call_count + n)
    }

    /// Sends a turn with these calls. Returns their answers once the thread is idle.
    async fn turn(&mut self, calls: &[(&str, Value)]) -> Result<Vec<Value>, Box<dyn Error>> {
        let ids: Vec<_> = (0..calls.len()).map(|n| self.id(n)).collect();
        self.call_count += calls.len();
        let call =
            |(tool, arguments): &(&str, Value)| json!({"tool": tool, "arguments": arguments});
        let turn = json!({"calls": calls.iter().map(call).collect::<Vec<_>>()});
        let dispatcher = self
            .dispatcher
            .as_ref()
            .ok_or("the thread has no session")?;
        let thread = &*self.services.manager;
        dispatcher
            .send_and_handle(thread, &turn, ["completed", "failed"])
            .await?;
        // The thread may be idle before the platform has confirmed the last answer.
        dispatcher.wait_idle().await;
        Ok(ids
            .iter()
            .map(|id| self.services.service.result(id))
            .collect())
    }
}

/// Returns the call that reads a listed skill.
fn read(skill: &Value) -> (&'static str, Value) {
    let (authority, package) = (&skill["authority"], &skill["package"]);
    (
        "skills.read",
        json!({"authority": authority, "package": package, "resource": ""}),
    )
}

/// Returns the last line of the contents, or the error code.
fn summary(answer: &Value) -> String {
    let error_code = answer["error"]["code"].as_str();
    let contents = answer["contents"]
        .as_str()
        .and_then(|text| text.lines().last());
    error_code
        .or(contents)
        .map_or_else(|| answer.to_string(), str::to_owned)
}
