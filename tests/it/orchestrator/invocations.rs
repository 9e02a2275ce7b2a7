//! Invocation metrics and spans of a session.

use std::io::Write;
use std::sync::{Arc, Mutex};

use caproot_client::session::{ForkScope, InvocationKind, UserPrompt};
use serde_json::{Value, json};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::FmtSpan;

use super::session::{call, parse_result, session};
use super::{read_arguments, serve_tree};
use crate::harness::in_time;

/// Log writer with JSON lines.
#[derive(Debug, Clone, Default)]
pub(super) struct LogLines(pub(super) Arc<Mutex<Vec<u8>>>);

impl Write for LogLines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for LogLines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn invocations_are_counted_and_traced() {
    let lines = LogLines::default();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .with_span_events(FmtSpan::CLOSE)
        .with_writer(lines.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let (_fixture, daemon) = serve_tree("r", "skill r/a\nskill r/b").await;
    let session = session(&[("r", &daemon.address)]).await;
    // tracing caches the interest of a callsite at its first use, which may be in another test
    // without a subscriber. So the callsite is used once more, and the cache is rebuilt.
    drop(
        session
            .fork(ForkScope::All)
            .expect("open")
            .call("skills.list", &json!({}))
            .await,
    );
    tracing::callsite::rebuild_interest_cache();
    lines.0.lock().expect("no panic").clear();
    call(&session, "skills.list", json!({})).await;
    for _ in 0..2 {
        call(
            &session,
            "skills.read",
            read_arguments("r", "skill://r/a", ""),
        )
        .await;
    }
    let gone =
        in_time(session.call("skills.read", &read_arguments("r", "skill://r/none", ""))).await;
    assert_eq!(parse_result(&gone)["error"]["code"], "PACKAGE_NOT_FOUND");
    in_time(session.call("made-up", &json!({}))).await;
    let injected = in_time(session.inject(&UserPrompt::from("use $b"))).await;
    let text = &injected.fragments[0].text;

    let metrics = session.metrics();
    let rows: Vec<_> = metrics
        .invocations
        .iter()
        .map(|s| {
            (
                s.source_kind.as_str(),
                s.source_id.as_str(),
                s.kind,
                s.outcome.as_str(),
                s.count,
            )
        })
        .collect();
    assert_eq!(
        rows,
        [
            ("executor", "r", InvocationKind::Read, "OK", 2),
            (
                "executor",
                "r",
                InvocationKind::Read,
                "PACKAGE_NOT_FOUND",
                1
            ),
            ("executor", "r", InvocationKind::Inject, "OK", 1),
            ("session", "", InvocationKind::List, "OK", 1),
            ("session", "", InvocationKind::Tool, "UNKNOWN_TOOL", 1),
        ]
    );
    let inject = &metrics.invocations[2];
    assert!(inject.explicit && inject.bytes == text.len() as u64);
    assert!(
        metrics
            .invocations
            .iter()
            .all(|s| *s.buckets.last().expect("one") == s.count)
    );
    let skills: Vec<_> = metrics
        .skills
        .iter()
        .map(|s| (s.skill.as_str(), s.by_tool, s.explicit))
        .collect();
    assert_eq!(skills, [("skill://r/a", 2, 0), ("skill://r/b", 0, 1)]);

    let written = lines.0.lock().expect("no panic").clone();
    let written = String::from_utf8(written).expect("text");
    assert!(!written.contains("Body of"), "no word of a skill's text");
    let spans: Vec<Value> = written
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["span"].clone())
        .filter(|span| span["name"] == "invocation")
        .collect();
    assert_eq!(spans.len(), 6, "{written}");
    let reads: Vec<_> = spans
        .iter()
        .filter(|span| span["gen_ai.skill.source.uri"] == "skill://r/a")
        .collect();
    assert_eq!(reads.len(), 2);
    assert_eq!(
        (&reads[0]["kind"], &reads[0]["explicit"]),
        (&json!("Read"), &json!(false))
    );
    assert_eq!(
        (&reads[0]["source.kind"], &reads[0]["source.id"]),
        (&json!("executor"), &json!("r"))
    );
    assert_eq!(reads[0]["outcome"], "OK");
    assert_eq!(reads[0]["gen_ai.tool.name"], "skills.read");
    assert_eq!(reads[0]["gen_ai.conversation.id"], session.id());
    assert_eq!(reads[0]["gen_ai.skill.name"], "a");
    let digest = reads[0]["skill.digest"].as_str().expect("a digest");
    assert!(digest.starts_with("sha256:"), "{digest}");
    assert!(reads[0]["bytes"].as_u64() > Some(50) && reads[0]["duration_ms"].is_f64());
    assert!(
        spans
            .iter()
            .any(|span| span["explicit"] == true && span["gen_ai.skill.name"] == "b")
    );
    assert!(
        spans
            .iter()
            .any(|span| span["error.type"] == "PACKAGE_NOT_FOUND")
    );
    daemon.stop().await;
}

/// A dropped call is counted too.
#[tokio::test]
async fn a_dropped_call_is_counted() {
    let (_fixture, daemon) = serve_tree("r", "skill r/a").await;
    let session = session(&[("r", &daemon.address)]).await;
    {
        let arguments = read_arguments("r", "skill://r/a", "");
        let call = std::pin::pin!(session.call("skills.read", &arguments));
        // The first poll sends the request to the daemon.
        assert!(futures_util::poll!(call).is_pending());
    }
    let metrics = session.metrics();
    let outcomes: Vec<_> = metrics
        .invocations
        .iter()
        .map(|s| (s.outcome.as_str(), s.count))
        .collect();
    assert_eq!(outcomes, [("DROPPED", 1)]);
    daemon.stop().await;
}
