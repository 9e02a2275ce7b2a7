//! How calls of own tools end: by a panic, never, with too much, or with others in their way.

use std::collections::{BTreeMap, HashSet};
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use caproot::session::tool_limits::MAX_CONCURRENT_CALLS;
use caproot::session::{CustomTool, MAX_RESULT_BYTES};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::{called, echo, free, refused, with};
use crate::harness::in_time;

/// Panics when it is read.
#[derive(JsonSchema)]
struct Broken {}

impl<'de> Deserialize<'de> for Broken {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        assert!(std::hint::black_box(false), "broken in reading");
        Ok(Self {})
    }
}

#[tokio::test]
async fn panics_and_others_beside_them() {
    let early = free("early", |value| {
        assert!(value.is_null(), "broken before it began");
        pending()
    });
    let late = free("late", |_| async { panic!("a secret of the program") });
    let read =
        CustomTool::new("read", |_: Broken| async { Ok::<_, String>(()) }).description("Breaks.");
    let odd = free("odd", |_| async { std::panic::panic_any(7) });
    let session = with([early, late, read, odd, echo("echo")]).await;
    for tool in ["early", "late", "read", "odd"] {
        let (broken, fine) = tokio::join!(
            refused(&session, tool, json!({})),
            called(&session, "echo", json!({"a": 1})),
        );
        assert_eq!((broken.0.as_str(), fine), ("TOOL_PANICKED", json!({"a": 1})));
        assert!(!broken.1.contains("secret"), "{}", broken.1);
    }
}

/// Tells when it is dropped.
struct Dropped(mpsc::UnboundedSender<()>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

/// One that never ends, and who is told when it is dropped.
fn endless(name: &str) -> (CustomTool, mpsc::UnboundedReceiver<()>) {
    let (tell, dropped) = mpsc::unbounded_channel();
    let tool = free(name, move |_| {
        let held = Dropped(tell.clone());
        async move {
            let _held = held;
            pending().await
        }
    });
    (tool, dropped)
}

#[tokio::test(start_paused = true)]
async fn what_never_ends() {
    let (default, mut default_dropped) = endless("default");
    let (own, mut own_dropped) = endless("own");
    let session = with([default, own.time_limit(Duration::from_secs(7)), echo("echo")]).await;
    let begun = tokio::time::Instant::now();
    let (default, own, fine) = tokio::join!(
        refused(&session, "default", json!({})),
        refused(&session, "own", json!({})),
        called(&session, "echo", json!({})),
    );
    // Time is not the machine's here.
    assert_eq!(begun.elapsed().as_secs(), 60);
    assert_eq!(
        (default.0.as_str(), own.0.as_str(), fine),
        ("TOOL_TIMED_OUT", "TOOL_TIMED_OUT", json!({}))
    );
    assert!(default.1.contains("within 1m") && own.1.contains("within 7s"), "{default:?} {own:?}");
    assert!(default_dropped.recv().await.is_some() && own_dropped.recv().await.is_some());
    // So is one whose caller went away.
    drop(tokio::time::timeout(Duration::from_secs(1), session.call("default", &json!({}))).await);
    assert!(default_dropped.recv().await.is_some());
}

#[tokio::test]
async fn results_that_are_too_large() {
    #[derive(Deserialize, JsonSchema)]
    struct Bytes {
        bytes: usize,
    }
    let large = CustomTool::new("large", |Bytes { bytes }: Bytes| async move {
        Ok::<_, String>("x".repeat(bytes))
    });
    let failing = free("failing", |_| async { Err("\u{1}\"".repeat(1 << 20)) });
    let odd = || Odd(BTreeMap::from([(vec![7], 1)]));
    let odd = CustomTool::new("odd", move |_: Bytes| async move { Ok::<_, String>(odd()) });
    let session = with([large.description("Large."), failing, odd.description("Odd.")]).await;
    let frame = r#"{"result":""}"#.len();
    let most = MAX_RESULT_BYTES - frame;
    let given = called(&session, "large", json!({"bytes": most})).await;
    assert_eq!(given["result"].as_str().map(str::len), Some(most));
    for bytes in [most + 1, MAX_RESULT_BYTES, 1 << 26] {
        let (code, message) = refused(&session, "large", json!({"bytes": bytes})).await;
        assert!(code == "TOO_LARGE" && message.contains("8192 bytes"), "{message}");
    }
    assert_eq!(refused(&session, "failing", json!({})).await.0, "TOOL_FAILED");
    let (code, message) = refused(&session, "odd", json!({"bytes": 1})).await;
    assert!(code == "TOOL_FAILED" && message.contains("not JSON"), "{message}");
}

/// What JSON has no keys for.
#[derive(Serialize, JsonSchema)]
#[schemars(with = "Value")]
struct Odd(BTreeMap<Vec<u8>, i32>);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_at_once() {
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (open, opened) = watch::channel(());
    let (now, seen) = (running.clone(), most.clone());
    let slow = free("slow", move |value| {
        let (now, seen, mut opened) = (now.clone(), seen.clone(), opened.clone());
        async move {
            seen.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            drop(opened.changed().await);
            tokio::task::yield_now().await;
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(value)
        }
    });
    let session = Arc::new(with([slow]).await);
    let calls: Vec<_> = (0..1_000)
        .map(|n| {
            let session = session.clone();
            tokio::spawn(async move { called(&session, "slow", json!({"n": n})).await })
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
        answered.insert(in_time(call).await.expect("no panic")["n"].as_u64().expect("its own"));
    }
    assert_eq!((answered.len(), most.load(Ordering::SeqCst)), (1_000, 64));
}

#[tokio::test]
async fn more_than_run_at_once() {
    let (tell, mut running) = mpsc::unbounded_channel();
    let wait = free("wait", move |_| {
        // Whoever counts them is there as long as the test.
        let _ = tell.send(());
        pending()
    });
    let session = Arc::new(with([wait, echo("echo")]).await);
    let mut calls = JoinSet::new();
    for _ in 0..MAX_CONCURRENT_CALLS {
        let session = session.clone();
        calls.spawn(async move { refused(&session, "wait", json!({})).await.0 });
        in_time(running.recv()).await.expect("it runs");
    }
    // From here on time goes by itself wherever everybody waits.
    tokio::time::pause();
    let (code, message) = refused(&session, "echo", json!({})).await;
    assert_eq!(code, "OVERLOADED", "{message}");
    while let Some(code) = calls.join_next().await {
        assert_eq!(code.expect("no panic"), "TOOL_TIMED_OUT");
    }
    assert_eq!(called(&session, "echo", json!({"free": "again"})).await["free"], "again");
}
