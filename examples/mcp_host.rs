//! Lists and reads the skills of an MCP server, as a session does.
//!
//! ```sh
//! cargo run -- mcp --http 127.0.0.1:7421                          # needs a running daemon
//! cargo run --example mcp_host -- read http://127.0.0.1:7421/mcp
//! ```
//!
//! Instead of the URL, give a program that speaks MCP on stdin and stdout, and its arguments.
//! `list` instead of `read` reads no file. The example reads each file with `skills.read`, page by
//! page, and rejects content that does not match the server's list. If a server declares no
//! files, the example reads each SKILL.md. The exit code is 0 if every file matches, else 1.
#![allow(clippy::print_stdout, missing_docs, unreachable_pub)]

use caproot_client::Fleet;
use caproot_session::sources::mcp::{McpEndpoint, McpServerConfig, McpSource};
use caproot_session::{Session, SessionOptions};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mode, server, rest @ ..] = &arguments[..] else {
        return Err("mcp_host list|read URL, or mcp_host list|read PROGRAM ARGUMENT…".into());
    };
    let rejected = run(mode == "read", endpoint(server, rest)).await?;
    Ok(if rejected == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Returns the endpoint of a URL, or of a program with arguments.
fn endpoint(server: &str, arguments: &[String]) -> McpEndpoint {
    if server.contains("://") {
        return McpEndpoint::http(server);
    }
    McpEndpoint::Process {
        program: server.to_owned(),
        arguments: arguments.to_vec(),
        environment: BTreeMap::new(),
        working_directory: None,
    }
}

/// Lists the skills, and reads their files if `read_files` is set. Returns the number of rejected
/// files.
pub async fn run(read_files: bool, endpoint: McpEndpoint) -> Result<usize, Box<dyn Error>> {
    // The server may hash all files before it answers.
    let start_timeout = Duration::from_mins(1);
    let server = McpServerConfig {
        start_timeout,
        ..McpServerConfig::new("there", endpoint)
    };
    let source = Arc::new(McpSource::start(server).await?);
    let sources = vec![source.clone() as Arc<_>];
    let no_executors = Fleet::from_executors([]);
    let session = Session::start_with(
        &no_executors,
        Vec::new(),
        sources,
        &SessionOptions::default(),
    )
    .await?;
    let (mut skills, mut files, mut binary, mut rejected) = (0, 0, 0, 0);
    let mut cursor = Value::Null;
    loop {
        let page = call(&session, "skills.list", json!({ "cursor": cursor })).await?;
        for warning in page["warnings"].as_array().into_iter().flatten() {
            println!("warning: {warning}");
            rejected += usize::from(skills == 0 && page["skills"] == json!([]));
        }
        for skill in page["skills"].as_array().into_iter().flatten() {
            skills += 1;
            println!("{}: {}", skill["name"], skill["description"]);
            // The SKILL.md comes first. If the SKILL.md is rejected, the skill is not used.
            let declared = source.files(text(&skill["package"]));
            let mut files_to_read: Vec<_> = declared
                .into_iter()
                .map(|file| (file.resource, Some(file.digest)))
                .collect();
            if files_to_read.is_empty() {
                files_to_read.push((text(&skill["main_resource"]).to_owned(), None));
            }
            if !read_files {
                files_to_read.clear();
            }
            for (resource, declared) in files_to_read {
                let read = read_file(&session, skill, &resource).await?;
                files += 1;
                match read {
                    Ok(contents)
                        if declared.is_none_or(|declared| digest(&contents) == declared) => {}
                    Ok(_) => rejected += 1,
                    Err(error) if error["code"] == "NOT_TEXT" => binary += 1,
                    Err(error) => {
                        println!("  {resource}: {} {}", error["code"], error["message"]);
                        rejected += 1;
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
    println!("{skills} skills, {files} files read, {binary} of them binary, {rejected} wrong");
    Ok(rejected)
}

/// Reads a file page by page. Returns its contents or the error of the tool.
async fn read_file(
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
    if result.success {
        Ok(serde_json::from_str(&result.json)?)
    } else {
        Err(result.json.into())
    }
}

fn digest(contents: &str) -> String {
    let hash = Sha256::digest(contents.as_bytes());
    hash.iter().fold("sha256:".to_owned(), |digest, byte| {
        format!("{digest}{byte:02x}")
    })
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
