//! Outcomes of custom tool calls: panics, timeouts, large results and concurrency.

use std::collections::{BTreeMap, HashSet};
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use caproot_session::tool_limits::MAX_CONCURRENT_CALLS;
use caproot_session::{CustomTool, DEFAULT_RESULT_BYTES, MAX_RESULT_BYTES, ToolFunctionError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::{echo, json_tool, start_session_with, tool_error, tool_value};
use crate::harness::in_time;

/// Type that panics during deserialization.
#[derive(JsonSchema)]
struct Broken {}

impl<'de> Deserialize<'de> for Broken {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        assert!(std::hint::black_box(false), "broken in reading");
        Ok(Self {})
    }
}

#[tokio::test]
async fn a_panic_affects_only_its_own_call() {
    let early = json_tool("early", |value| {
        assert!(value.is_null(), "broken before it began");
        pending()
    });
    let late = json_tool("late", |_| async { panic!("a secret of the program") });
    let read =
        CustomTool::new("read", |_: Broken| async { Ok::<_, String>(()) }).description("Breaks.");
    let odd = json_tool("odd", |_| async { std::panic::panic_any(7) });
    let session = start_session_with([early, late, read, odd, echo("echo")]).await;
    for tool in ["early", "late", "read", "odd"] {
        let (broken, fine) = tokio::join!(
            tool_error(&session, tool, json!({})),
            tool_value(&session, "echo", json!({"a": 1})),
        );
        assert_eq!(
            (broken.0.as_str(), fine),
            ("TOOL_INTERNAL_ERROR", json!({"a": 1}))
        );
        assert!(!broken.1.contains("secret"), "{}", broken.1);
    }
}

#[tokio::test]
async fn a_tool_of_data_fails_with_or_without_a_text_for_the_model() {
    let schema = json!({"type": "object", "properties": {"how": {"type": "string"}},
        "required": ["how"]});
    let tool =
        CustomTool::from_schema("data", "Does it.", schema.clone(), |arguments| async move {
            match arguments["how"].as_str() {
                Some("fails") => Err(ToolFunctionError::Failed("the disk is full".to_owned())),
                Some("breaks") => Err(ToolFunctionError::Internal(
                    "a secret of the program".to_owned(),
                )),
                _ => Ok(json!({"how": arguments["how"]})),
            }
        });
    let session = start_session_with([tool.in_namespace("own")]).await;
    let tools = session.flat_tools();
    let payload = json!({"namespace": "own", "name": "data", "description": "Does it.",
        "inputSchema": schema});
    assert_eq!(tools[3], payload);
    assert_eq!(
        tool_value(&session, "own.data", json!({"how": "well"})).await,
        json!({"how": "well"})
    );
    let (code, message) = tool_error(&session, "own.data", json!({"how": "fails"})).await;
    assert_eq!(code, "TOOL_FAILED");
    assert!(message.contains("the disk is full"), "{message}");
    let (code, message) = tool_error(&session, "own.data", json!({"how": "breaks"})).await;
    assert_eq!(code, "TOOL_INTERNAL_ERROR");
    assert!(
        !message.contains("secret") && message.contains("a bug in the tool"),
        "{message}"
    );
    let (code, _) = tool_error(&session, "own.data", json!({})).await;
    assert_eq!(code, "INVALID_ARGUMENTS");
}

/// Guard that reports its drop.
struct DropReport(mpsc::UnboundedSender<()>);

impl Drop for DropReport {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

/// Returns a tool that never ends, and a channel that reports when a call is dropped.
fn endless(name: &str) -> (CustomTool, mpsc::UnboundedReceiver<()>) {
    let (sender, dropped) = mpsc::unbounded_channel();
    let tool = json_tool(name, move |_| {
        let guard = DropReport(sender.clone());
        async move {
            let _guard = guard;
            pending().await
        }
    });
    (tool, dropped)
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_never_ends_times_out() {
    let (default, mut default_dropped) = endless("default");
    let (own, mut own_dropped) = endless("own");
    let session = start_session_with([
        default,
        own.time_limit(Duration::from_secs(7)),
        echo("echo"),
    ])
    .await;
    let started = tokio::time::Instant::now();
    let (default, own, fine) = tokio::join!(
        tool_error(&session, "default", json!({})),
        tool_error(&session, "own", json!({})),
        tool_value(&session, "echo", json!({})),
    );
    // The clock is paused, so the time is exact.
    assert_eq!(started.elapsed().as_secs(), 60);
    assert_eq!(
        (default.0.as_str(), own.0.as_str(), fine),
        ("TOOL_TIMED_OUT", "TOOL_TIMED_OUT", json!({}))
    );
    assert!(
        default.1.contains("within 1m") && own.1.contains("within 7s"),
        "{default:?} {own:?}"
    );
    assert!(default_dropped.recv().await.is_some() && own_dropped.recv().await.is_some());
    // A call is also dropped if its caller goes away.
    drop(tokio::time::timeout(Duration::from_secs(1), session.call("default", &json!({}))).await);
    assert!(default_dropped.recv().await.is_some());
}

#[tokio::test]
async fn too_large_results_are_errors() {
    #[derive(Deserialize, JsonSchema)]
    struct Bytes {
        bytes: usize,
    }
    let large = CustomTool::new("large", |Bytes { bytes }: Bytes| async move {
        Ok::<_, String>("x".repeat(bytes))
    });
    let failing = json_tool("failing", |_| async { Err("\u{1}\"".repeat(1 << 20)) });
    let odd = || ByteKeys(BTreeMap::from([(vec![7], 1)]));
    let odd = CustomTool::new("odd", move |_: Bytes| async move { Ok::<_, String>(odd()) });
    let session = start_session_with([
        large.description("Large."),
        failing,
        odd.description("Odd."),
    ])
    .await;
    let frame = r#"{"result":""}"#.len();
    let most = DEFAULT_RESULT_BYTES - frame;
    let result = tool_value(&session, "large", json!({"bytes": most})).await;
    assert_eq!(result["result"].as_str().map(str::len), Some(most));
    for bytes in [most + 1, MAX_RESULT_BYTES, 1 << 26] {
        let (code, message) = tool_error(&session, "large", json!({"bytes": bytes})).await;
        assert!(
            code == "TOO_LARGE" && message.contains("8192 bytes"),
            "{message}"
        );
    }
    assert_eq!(
        tool_error(&session, "failing", json!({})).await.0,
        "TOOL_FAILED"
    );
    let (code, message) = tool_error(&session, "odd", json!({"bytes": 1})).await;
    assert!(
        code == "TOOL_FAILED" && message.contains("not JSON"),
        "{message}"
    );
}

/// Map whose keys JSON cannot represent.
#[derive(Serialize, JsonSchema)]
#[schemars(with = "Value")]
struct ByteKeys(BTreeMap<Vec<u8>, i32>);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_calls_run_64_at_a_time() {
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (open, opened) = watch::channel(());
    let (now, seen) = (running.clone(), most.clone());
    let slow = json_tool("slow", move |value| {
        let (now, seen, mut opened) = (now.clone(), seen.clone(), opened.clone());
        async move {
            seen.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            drop(opened.changed().await);
            tokio::task::yield_now().await;
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(value)
        }
    });
    let session = Arc::new(start_session_with([slow]).await);
    let calls: Vec<_> = (0..1_000)
        .map(|n| {
            let session = session.clone();
            tokio::spawn(async move { tool_value(&session, "slow", json!({"n": n})).await })
        })
        .collect();
    in_time(async {
        while running.load(Ordering::SeqCst) < 64 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    drop(open);
    let mut answered = HashSet::new();
    for call in calls {
        answered.insert(
            in_time(call).await.expect("no panic")["n"]
                .as_u64()
                .expect("a number"),
        );
    }
    assert_eq!((answered.len(), most.load(Ordering::SeqCst)), (1_000, 64));
}

#[tokio::test]
async fn calls_over_the_limit_are_overloaded() {
    let (sender, mut running) = mpsc::unbounded_channel();
    let wait = json_tool("wait", move |_| {
        // The receiver lives as long as the test.
        let _ = sender.send(());
        pending()
    });
    let session = Arc::new(start_session_with([wait, echo("echo")]).await);
    let mut calls = JoinSet::new();
    for _ in 0..MAX_CONCURRENT_CALLS {
        let session = session.clone();
        calls.spawn(async move { tool_error(&session, "wait", json!({})).await.0 });
        in_time(running.recv()).await.expect("a running call");
    }
    // The paused clock advances when all tasks are idle.
    tokio::time::pause();
    let (code, message) = tool_error(&session, "echo", json!({})).await;
    assert_eq!(code, "OVERLOADED", "{message}");
    while let Some(code) = calls.join_next().await {
        assert_eq!(code.expect("no panic"), "TOOL_TIMED_OUT");
    }
    assert_eq!(
        tool_value(&session, "echo", json!({"free": "again"})).await["free"],
        "again"
    );
}
