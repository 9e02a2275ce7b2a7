//! Saves, forks, closes and restores a session.
//!
//! ```sh
//! cargo run --example durable
//! ```
//!
//! The example starts a daemon in this process, on a directory that the example creates. A skill is
//! added while the session is saved, and the restored session reports the skill as new.

use caproot::daemon::config::{Config, RootFlag, ServeFlags};
use caproot::daemon::server;
use caproot_client::{ChangesSince, ExecutorConfig, Fleet, parse_selected_roots};
use caproot_core::net::endpoint::ProcessEnv;
use caproot_session::{ForkScope, MemoryStore, Session, SessionOptions};
use serde_json::json;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;

#[tokio::main]
#[allow(dead_code, clippy::print_stdout)]
async fn main() -> Result<(), Box<dyn Error>> {
    for line in run().await? {
        println!("{line}");
    }
    Ok(())
}

/// Runs the example. Returns its output, line by line.
pub async fn run() -> Result<Vec<String>, Box<dyn Error>> {
    // The daemon plays the role of an executor and publishes a directory of skills.
    let name = format!("caproot-durable-{}", std::process::id());
    let dir = std::env::temp_dir().join(name);
    write_skill(&dir, "triage", "Finds the first cause in a log.")?;
    let flags = ServeFlags {
        roots: vec![RootFlag {
            id: Some("mine".to_owned()),
            dir: dir.clone(),
        }],
        listen: vec!["tcp:127.0.0.1:0".to_owned()],
        ..ServeFlags::default()
    };
    let config = Config::from_flags(flags, &ProcessEnv::from_process());
    let daemon = server::build_daemon(config.map_err(|errors| format!("{errors:?}"))?).await?;
    let endpoint = daemon.listen_addresses()[0].parse()?;
    let daemon = tokio::spawn(daemon.run(std::future::pending()));
    let result = run_sessions(
        Fleet::from_executors([("local".to_owned(), ExecutorConfig::new(endpoint))]),
        &dir,
    )
    .await;
    daemon.abort();
    std::fs::remove_dir_all(dir)?;
    result
}

async fn run_sessions(fleet: Fleet, dir: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mut lines = Vec::new();
    let store = Arc::new(MemoryStore::default());
    let selected = json!([{"id": "mine", "location": {
        "type": "environment", "environmentId": "local", "path": "published:mine"}}]);
    let roots = parse_selected_roots(&selected.to_string())?;
    let options = SessionOptions {
        id: Some("thread-1".to_owned()),
        ..SessionOptions::default()
    };
    let session = Session::start(&fleet, roots, &options)
        .await?
        .with_store(store.clone());

    // The scope saves its session at the end. A subagent gets a fork, which stays open after the
    // scope.
    let scope = |session: Arc<Session>| async move { session.fork(ForkScope::Only(&["mine"])) };
    let ended = session.run_scope(true, scope).await;
    let fork = ended.value?;
    lines.push(format!(
        "kept: {:?}, deleted: {}",
        ended.persisted, ended.close_outcome.deleted
    ));
    let triage = json!({"authority": {"kind": "executor", "id": "mine"},
        "package": "skill://mine/triage", "resource": ""});
    let mut usage = fork.watch_usage();
    let read = fork.call("skills.read", &triage).await;
    lines.push(format!("the fork reads: {}", read.json));
    if let Some(event) = usage.next().await {
        let bytes = event.bytes.unwrap_or_default();
        lines.push(format!(
            "{}: {} with {bytes} bytes",
            event.package,
            event.kind.name()
        ));
    }

    // A skill is added. The fork waits until the daemon reports the change.
    let mut changes = fork.watch();
    write_skill(dir, "release", "Makes a release.")?;
    changes.next().await;

    // Another process restores the session and gets each change once.
    let restored =
        Session::restore_from_store(&fleet, store, "thread-1", &SessionOptions::default()).await?;
    for executor in &restored.changes_since_save {
        match executor.changes.as_deref() {
            Some(ChangesSince::Known {
                upserted, removed, ..
            }) => {
                lines.push(format!(
                    "since then: new or changed {upserted:?}, gone {removed:?}"
                ));
            }
            Some(ChangesSince::Unknown { reason, roots }) => {
                lines.push(format!("read {roots:?} again: {reason}"));
            }
            None => lines.push(format!("{} does not answer yet", executor.environment_id)),
        }
    }
    let closed = restored.session.close(true).await;
    lines.push(format!("deleted: {}", closed.deleted));
    lines.push(restored.session.call("skills.list", &json!({})).await.json);
    Ok(lines)
}

fn write_skill(dir: &Path, name: &str, description: &str) -> std::io::Result<()> {
    std::fs::create_dir_all(dir.join(name))?;
    let text = format!("---\nname: {name}\ndescription: {description}\n---\n# {name}\n");
    std::fs::write(dir.join(name).join("SKILL.md"), text)
}
