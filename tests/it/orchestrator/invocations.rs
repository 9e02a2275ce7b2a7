//! Spans of the invocations of a session.

use std::io::Write;
use std::sync::{Arc, Mutex};

use caproot_session::{ForkScope, UserPrompt};
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
async fn invocations_are_spans() {
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
    in_time(session.inject(&UserPrompt::from("use $b"))).await;

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

/// A dropped call is a use, too.
#[tokio::test]
async fn a_dropped_call_is_recorded() {
    let (_fixture, daemon) = serve_tree("r", "skill r/a").await;
    let session = session(&[("r", &daemon.address)]).await;
    let mut usage = session.watch_usage();
    {
        let arguments = read_arguments("r", "skill://r/a", "");
        let call = std::pin::pin!(session.call("skills.read", &arguments));
        // The first poll sends the request to the daemon.
        assert!(futures_util::poll!(call).is_pending());
    }
    let event = in_time(usage.next()).await.expect("an event");
    assert_eq!(
        (event.name.as_str(), event.outcome.as_str()),
        ("a", "DROPPED")
    );
    daemon.stop().await;
}
