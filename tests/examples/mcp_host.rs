//! A host of Skills over MCP: lists the skills of a server as a session does, and reads every file of each
//! by `skills.read`, page by page. Nothing of a file that is not what the server lists is shown.
//!
//!     mcp_host list|read http://127.0.0.1:7421/mcp
//!
//! `list` reads no file. Ends with 0 when all that was read is what it should be, else with 1.
#![allow(clippy::print_stdout, missing_docs, unreachable_pub)]

use caproot::client::Fleet;
use caproot::host::{McpEndpoint, McpServerConfig, McpSource};
use caproot::session::{Session, SessionOptions};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mode, url] = &arguments[..] else { return Err("mcp_host list|read URL".into()) };
    let wrong = run(mode == "read", url).await?;
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Lists, and reads if that is wanted; how many files were refused, or are not what they should be.
pub async fn run(reads: bool, url: &str) -> Result<usize, Box<dyn Error>> {
    // A server may hash all its files before it lists them.
    let patience = Duration::from_mins(1);
    let server = McpServerConfig {
        start_timeout: patience,
        ..McpServerConfig::new("there", McpEndpoint::http(url))
    };
    let source = Arc::new(McpSource::start(server).await?);
    let others = vec![source.clone() as Arc<_>];
    let no_executors = Fleet::from_executors([]);
    let session =
        Session::start_with(&no_executors, Vec::new(), others, &SessionOptions::default()).await?;
    let (mut skills, mut files, mut binary, mut wrong) = (0, 0, 0, 0);
    let mut cursor = Value::Null;
    loop {
        let page = call(&session, "skills.list", json!({ "cursor": cursor })).await?;
        for warning in page["warnings"].as_array().into_iter().flatten() {
            println!("warning: {warning}");
            wrong += usize::from(skills == 0 && page["skills"] == json!([]));
        }
        for skill in page["skills"].as_array().into_iter().flatten() {
            skills += 1;
            println!("{}: {}", skill["name"], skill["description"]);
            // The SKILL.md comes first: a skill of which that is not right is not used.
            let promised = if reads { source.files(text(&skill["package"])) } else { Vec::new() };
            for file in promised {
                let read = whole(&session, skill, &file.resource).await?;
                files += 1;
                match read {
                    Ok(contents) if digest(&contents) == file.digest => {}
                    Ok(_) => wrong += 1,
                    Err(refusal) if refusal["code"] == "NOT_TEXT" => binary += 1,
                    Err(refusal) => {
                        println!("  {}: {} {}", file.resource, refusal["code"], refusal["message"]);
                        wrong += 1;
                        break;
                    }
                }
            }
        }
        cursor = page["next_cursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    println!("{skills} skills, {files} files read, {binary} of them binary, {wrong} wrong");
    Ok(wrong)
}

/// A file by its pages, or why there is none.
async fn whole(
    session: &Session,
    skill: &Value,
    resource: &str,
) -> Result<Result<String, Value>, Box<dyn Error>> {
    let (authority, package) = (&skill["authority"], &skill["package"]);
    let mut arguments = json!({"authority": authority, "package": package, "resource": resource});
    let mut contents = String::new();
    loop {
        let result = session.call("skills.read", &arguments).await;
        let page: Value = serde_json::from_str(&result.json)?;
        if !result.success {
            return Ok(Err(page["error"].clone()));
        }
        contents.push_str(text(&page["contents"]));
        if page["next_cursor"].is_null() {
            return Ok(Ok(contents));
        }
        arguments["cursor"] = page["next_cursor"].clone();
    }
}

async fn call(session: &Session, tool: &str, arguments: Value) -> Result<Value, Box<dyn Error>> {
    let result = session.call(tool, &arguments).await;
    if result.success { Ok(serde_json::from_str(&result.json)?) } else { Err(result.json.into()) }
}

fn digest(contents: &str) -> String {
    let hash = Sha256::digest(contents.as_bytes());
    hash.iter().fold("sha256:".to_owned(), |digest, byte| format!("{digest}{byte:02x}"))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
