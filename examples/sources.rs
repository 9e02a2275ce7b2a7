//! Merges the skills of an executor, a local directory and an MCP server in one session.
//!
//! ```sh
//! cargo run --example sources
//! cargo run --example sources -- http://127.0.0.1:7421/mcp
//! cargo run --example sources -- mcp.json
//! ```
//!
//! The executor is a daemon in this process. The optional argument is the URL of the MCP server, or
//! a file `{"mcpServers": …}` with several servers, as MCP hosts share.
#![allow(clippy::print_stdout, missing_docs, unreachable_pub)]

use caproot::daemon::config::{Config, RootFlag, ServeFlags};
use caproot::daemon::local_source::LocalSource;
use caproot::daemon::server;
use caproot_client::proto::caproot::v1::{CapabilityRootLocation, SelectedCapabilityRoot};
use caproot_client::{ExecutorConfig, Fleet};
use caproot_core::net::endpoint::ProcessEnv;
use caproot_session::sources::mcp::{McpEndpoint, McpServerConfig, McpServerList};
use caproot_session::{DEFAULT_BUDGET, Session, SessionOptions, SkillSource};
use serde_json::json;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::Arc;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let scratch = std::env::temp_dir().join(format!("caproot-sources-{}", std::process::id()));
    let output = run(&scratch, std::env::args().nth(1).as_deref()).await;
    fs::remove_dir_all(&scratch)?;
    print!("{}", output?);
    Ok(())
}

/// Returns the instructions for a model and the skill `pdf`.
pub async fn run(scratch: &Path, mcp: Option<&str>) -> Result<String, Box<dyn Error>> {
    write_skill(
        &scratch.join("executor/pdf"),
        "pdf",
        "Fills forms, as the platform has it.",
    )?;
    write_skill(
        &scratch.join("local/pdf"),
        "pdf",
        "Fills forms, as a person has it.",
    )?;
    write_skill(&scratch.join("local/notes"), "notes", "Keeps notes.")?;

    // In production, this daemon runs on the executor's machine.
    let flags = ServeFlags {
        roots: vec![RootFlag {
            id: Some("team".to_owned()),
            dir: scratch.join("executor"),
        }],
        environment_ids: vec!["workspace".to_owned()],
        listen: vec!["tcp:127.0.0.1:0".to_owned()],
        ..ServeFlags::default()
    };
    let config =
        Config::from_flags(flags, &ProcessEnv::from_process()).map_err(|all| format!("{all:?}"))?;
    let daemon = server::build_daemon(config).await?;
    let endpoint = daemon.listen_addresses()[0].parse()?;
    let running = tokio::spawn(daemon.run(std::future::pending()));

    // The platform selects a root of this executor.
    let fleet = Fleet::from_executors([("workspace".to_owned(), ExecutorConfig::new(endpoint))]);
    let selected = SelectedCapabilityRoot {
        id: "team".to_owned(),
        location: Some(CapabilityRootLocation {
            r#type: "environment".to_owned(),
            environment_id: "workspace".to_owned(),
            path: "published:team".to_owned(),
        }),
    };

    // The other sources are a local directory and the MCP servers.
    let options = SessionOptions::default();
    let directories = vec![("mine".to_owned(), scratch.join("local"))];
    let mut other_sources: Vec<Arc<dyn SkillSource>> = vec![Arc::new(
        LocalSource::start("here", directories, &options).await?,
    )];
    if let Some(mcp) = mcp {
        let list = if mcp.starts_with("http") {
            let server = McpServerConfig::new("docs", McpEndpoint::http(mcp));
            McpServerList {
                servers: vec![server],
                warnings: Vec::new(),
            }
        } else {
            McpServerList::parse(&fs::read_to_string(mcp)?, &|name| std::env::var(name).ok())?
        };
        other_sources.extend(list.start(options.start_timeout).await);
    }

    let session = Session::start_with(&fleet, vec![selected], other_sources, &options).await?;
    // Both `pdf` skills have the same name. The executor's is listed, and a warning names the
    // other.
    let instructions = session.instruction_text(DEFAULT_BUDGET);
    let pdf = json!({"authority": {"kind": "executor", "id": "team"}, "package": "skill://team/pdf", "resource": ""});
    let read = session.call("skills.read", &pdf).await;
    running.abort();
    Ok(format!(
        "{}\n{}\n\n{}\n",
        instructions.text,
        instructions.warnings.join("\n"),
        read.json
    ))
}

fn write_skill(dir: &Path, name: &str, description: &str) -> std::io::Result<()> {
    fs::create_dir_all(dir)?;
    let text = format!("---\nname: {name}\ndescription: {description}\n---\nAll about {name}.\n");
    fs::write(dir.join("SKILL.md"), text)
}
