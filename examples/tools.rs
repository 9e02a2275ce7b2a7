//! Registers functions of this program as tools of a session, next to the skills of an executor.
//!
//! ```sh
//! cargo run --example tools
//! ```
//!
//! The example starts a daemon in this process, calls each tool, and prints the tools, the text for a
//! model and the results.

#![allow(clippy::print_stdout)]

use caproot::daemon::config::{Config, RootFlag, ServeFlags};
use caproot::daemon::server;
use caproot_client::{ExecutorConfig, Fleet, parse_selected_roots};
use caproot_core::net::endpoint::ProcessEnv;
use caproot_session::{CustomTool, DEFAULT_BUDGET, Session, SessionOptions, ToolRegistry};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::error::Error;
use std::time::Duration;

/// Counts the words of a text.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Count {
    /// The text.
    text: String,
    /// Words shorter than this are not counted.
    #[serde(default)]
    shortest: usize,
}

/// How many words there are, and the longest of them.
#[derive(Serialize, JsonSchema)]
struct Counted {
    words: usize,
    longest: String,
}

async fn count(Count { text, shortest }: Count) -> Result<Counted, String> {
    let words: Vec<_> = text
        .split_whitespace()
        .filter(|word| word.len() >= shortest)
        .collect();
    let longest = words
        .iter()
        .max_by_key(|word| word.len())
        .ok_or("there is not one word")?;
    Ok(Counted {
        words: words.len(),
        longest: (*longest).to_owned(),
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    for line in run().await? {
        println!("{line}");
    }
    Ok(())
}

pub(crate) async fn run() -> Result<Vec<String>, Box<dyn Error>> {
    // The daemon plays the role of an executor and publishes three small skills.
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/trees/demo").into();
    let flags = ServeFlags {
        roots: vec![RootFlag {
            id: Some("demo".to_owned()),
            dir: demo,
        }],
        listen: vec!["tcp:127.0.0.1:0".to_owned()],
        ..ServeFlags::default()
    };
    let config = Config::from_flags(flags, &ProcessEnv::from_process());
    let daemon = server::build_daemon(config.map_err(|errors| format!("{errors:?}"))?).await?;
    let endpoint = daemon.listen_addresses()[0].parse()?;
    let daemon = tokio::spawn(daemon.run(std::future::pending()));

    // One tool derives its schema from its type. The other tool has an explicit schema.
    let tools = ToolRegistry::new();
    tools.register(CustomTool::new("count", count).in_namespace("words"))?;
    let wait = |_: Value| std::future::pending::<Result<Value, String>>();
    let wait = CustomTool::new("wait", wait)
        .description("Waits for a thing that never comes.")
        .input_schema(json!({"type": "object", "properties": {}, "additionalProperties": false}))
        .time_limit(Duration::from_millis(10));
    tools.register(wait)?;

    let fleet = Fleet::from_executors([("local".to_owned(), ExecutorConfig::new(endpoint))]);
    let selected = json!([{"id": "demo", "location": {
        "type": "environment", "environmentId": "local", "path": "published:demo"}}]);
    let options = SessionOptions {
        tools: tools.clone(),
        ..SessionOptions::default()
    };
    let roots = parse_selected_roots(&selected.to_string())?;
    let session = Session::start(&fleet, roots, &options).await?;

    let mut lines = Vec::new();
    for tool in session.flat_tools().as_array().into_iter().flatten() {
        lines.push(format!(
            "tool {} {}: {}",
            tool["namespace"], tool["name"], tool["description"]
        ));
    }
    lines.push(session.instruction_text(DEFAULT_BUDGET).text);
    for (tool, arguments) in [
        ("words.count", json!({"text": "three short words"})),
        ("words.count", json!({"text": 3, "shortest": -1})),
        ("words.count", json!({"text": ""})),
        ("wait", json!({})),
        ("skills.list", json!({})),
    ] {
        lines.push(format!(
            "{tool} {arguments}: {}",
            session.call(tool, &arguments).await.json
        ));
    }
    if let Err(error) = tools.clear() {
        lines.push(format!("clear: {error}"));
    }
    daemon.abort();
    Ok(lines)
}
