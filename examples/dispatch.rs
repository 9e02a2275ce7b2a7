//! Answers the pending calls of a platform with a session.
//!
//! ```sh
//! cargo run --example dispatch
//! ```
//!
//! The example starts a daemon and a small HTTP platform in this process. The platform loses one
//! answer and fails twice for another, and each call still has one answer at the end. Then the
//! platform streams a call as an event, gets a prompt with a skill, and loses the stream.

// The example prints its results.
#![allow(clippy::print_stdout)]

#[allow(dead_code, unreachable_pub)]
#[path = "support/service.rs"]
pub(crate) mod service;

use std::error::Error;
use std::fs;
use std::sync::Arc;

use caproot::daemon::config::{Config, RootFlag, ServeFlags};
use caproot::daemon::server;
use caproot_client::{ExecutorConfig, Fleet, parse_selected_roots};
use caproot_core::net::endpoint::ProcessEnv;
use caproot_session::dispatch::{
    CallListener, DispatchOptions, DispatchRecord, FinishedTurn, HttpManager, HttpManagerConfig,
    SessionThread,
};
use caproot_session::{Session, SessionOptions};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use service::{Fault, Service};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run().await.map(drop)
}

/// Runs the example. Returns the end of the turn and the record of each call.
pub(crate) async fn run() -> Result<(FinishedTurn, Vec<DispatchRecord>), Box<dyn Error>> {
    // The executor is a daemon that serves one skill.
    let dir = tempfile::tempdir()?;
    fs::create_dir(dir.path().join("greet"))?;
    let text = "---\nname: greet\ndescription: Greets.\n---\nSay hello.\n";
    fs::write(dir.path().join("greet/SKILL.md"), text)?;
    let flags = ServeFlags {
        roots: vec![RootFlag {
            id: Some("demo".to_owned()),
            dir: dir.path().to_owned(),
        }],
        environment_ids: vec!["workspace".to_owned()],
        listen: vec!["tcp:127.0.0.1:0".to_owned()],
        ..ServeFlags::default()
    };
    let config =
        Config::from_flags(flags, &ProcessEnv::from_process()).expect("a good configuration");
    let app = server::build_daemon(config).await?;
    let address = app
        .listen_addresses()
        .last()
        .expect("one listener")
        .parse()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let daemon = tokio::spawn(app.run(async { drop(stopped.await) }));

    // The session has that skill.
    let fleet = Fleet::from_executors([("workspace".to_owned(), ExecutorConfig::new(address))]);
    let selected = json!({"selectedCapabilityRoots": [{"id": "demo", "location": {
        "type": "environment", "environmentId": "workspace", "path": "published:demo"}}]});
    let roots = parse_selected_roots(&selected.to_string())?;
    let session = Arc::new(Session::start(&fleet, roots, &SessionOptions::default()).await?);

    // The platform's model lists the skills and reads one. The platform loses the first answer and
    // fails twice for the second. The third call belongs to another thread.
    let service = Service::start().await;
    service.fail("thread-1/0", [Fault::Lost]);
    service.fail("thread-1/1", [Fault::Error, Fault::Error]);
    service.call("other/0", "thread-2", "skills.list", &json!({}));
    let turn = json!({"calls": [
        {"tool": "skills.list", "arguments": {}},
        {"tool": "skills.read", "arguments": {
            "authority": {"kind": "executor", "id": "demo"},
            "package": "skill://demo/greet", "resource": ""}},
    ]});

    let (sender, mut records) = mpsc::unbounded_channel();
    let observer = move |record: &DispatchRecord| drop(sender.send(record.clone()));
    let manager = HttpManager::new(HttpManagerConfig::new(service.base_url(), "thread-1")).await?;
    let manager = Arc::new(manager.with_observer(observer));
    let options = DispatchOptions::default();
    let thread = SessionThread::new("thread-1", manager.clone(), session, options);
    let dispatcher = thread.dispatcher();
    let finished = dispatcher
        .send_and_handle(&*manager, &turn, ["completed", "failed"])
        .await?;

    // The thread may be idle before the platform has confirmed the last answer.
    dispatcher.wait_idle().await;

    println!(
        "the thread is {:?}; still pending: {:?}",
        finished.status,
        service.pending()
    );
    let mut ended = Vec::new();
    while let Ok(record) = records.try_recv() {
        ended.push(record);
    }
    for record in &ended {
        println!(
            "{} {}: {:?} after {} attempts, {} bytes",
            record.request_id, record.tool, record.outcome, record.attempts, record.bytes
        );
    }
    for (call, answer) in service.answers() {
        println!("{call} has {answer}");
    }

    // From now on the platform streams its calls. The stream ends after each of the first events.
    dispatcher.reset_mode();
    service.end_streams([1, 1]);
    service.call("thread-1/2", "thread-1", "skills.list", &json!({}));
    let mut listener = CallListener::new(manager);
    tokio::select! {
        outcome = listener.listen(dispatcher) => outcome?,
        record = records.recv() => println!("streamed: {}", record.ok_or("no record")?.request_id),
    }
    let injected = thread.send("Say hello with $greet.", true).await?;
    println!("the prompt has {} skill", injected.fragments.len());
    drop(thread);
    drop(stop);
    daemon.await??;
    Ok((finished, ended))
}
