//! Calls the tools of a session, one call for each line of stdin, and prints each result as it is.
//!
//! ```sh
//! caproot serve --root demo=tests/trees/demo
//! echo '{"tool":"skills_list","arguments":{}}' | cargo run --example call_lines -- unix:/…/caproot.sock demo
//! ```
//!
//! The arguments are the address of a daemon and the ids of published roots.

#![allow(clippy::print_stdout)]

use caproot_client::{ExecutorConfig, Fleet, parse_selected_roots};
use caproot_session::{Session, SessionOptions, ToolNames};
use serde::Deserialize;
use serde_json::{Value, json};
use std::error::Error;
use std::io;

/// Line of stdin.
#[derive(Deserialize)]
struct CallLine {
    tool: String,
    arguments: Value,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments
        .next()
        .ok_or("the address of a daemon is missing")?;
    let executor = ExecutorConfig::new(address.parse()?);
    let fleet = Fleet::from_executors([("local".to_owned(), executor)]);

    let selected: Vec<Value> = arguments
        .map(|id| {
            let path = format!("published:{id}");
            let location = json!({"type": "environment", "environmentId": "local", "path": path});
            json!({"id": id, "location": location})
        })
        .collect();
    let roots = parse_selected_roots(&Value::from(selected).to_string())?;
    let options = SessionOptions {
        tool_names: ToolNames::Flat,
        ..SessionOptions::default()
    };
    let session = Session::start(&fleet, roots, &options).await?;

    for line in io::stdin().lines() {
        let CallLine { tool, arguments } = serde_json::from_str(&line?)?;
        let result = session.call(&tool, &arguments).await;
        println!("{}", result.json);
    }
    Ok(())
}
