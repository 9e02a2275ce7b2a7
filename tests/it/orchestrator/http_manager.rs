//! The manager over HTTP: event streams that are lost, repeated and hostile, tokens, and prompts.

use std::collections::BTreeMap;
use std::sync::Arc;

use caproot_client::ClientToken;
use caproot_session::Session;
use caproot_session::dispatch::{
    CallDispatcher, CallListener, CallManager as _, DeliveryMode, DispatchOptions, DispatchRecord,
    HttpManager, HttpManagerConfig, ListenError, ManagerPaths, SessionThread,
};
use http::request;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::dispatch::http_manager;
use super::example_dispatch::service::{Fault, Service};
use super::session::session;
use super::start_daemon;
use crate::harness::fixture::Fixture;
use crate::harness::test_servers::{ScriptedServer, event_stream, response};
use crate::harness::{Daemon, in_time};

async fn serve_session(fixture: &Fixture) -> (Daemon, Arc<Session>) {
    let daemon = start_daemon("r", fixture.path("r"), None).await;
    let session = Arc::new(session(&[("r", &daemon.address)]).await);
    (daemon, session)
}

/// Returns a manager, its dispatcher, and the records of ended dispatches.
async fn listening(
    base_url: &str,
    session: &Arc<Session>,
) -> (
    Arc<HttpManager>,
    CallDispatcher,
    UnboundedReceiver<DispatchRecord>,
) {
    let (sender, records) = unbounded_channel();
    let observer = move |record: &DispatchRecord| drop(sender.send(record.clone()));
    let manager = Arc::new(http_manager(base_url).await.with_observer(observer));
    let options = DispatchOptions::default();
    let dispatcher = CallDispatcher::new("mine", manager.clone(), session.clone(), options);
    (manager, dispatcher, records)
}

#[tokio::test]
async fn streamed_calls_are_answered_once_across_lost_streams() {
    let fixture = Fixture::new("skill r/a");
    let (daemon, session) = serve_session(&fixture).await;
    let service = Service::start().await;
    let (manager, dispatcher, mut records) = listening(&service.base_url(), &session).await;
    // The streams end after 3 events, at once, and after 1 event; the next stream stays open.
    service.end_streams([3, 0, 1]);
    service.fail("1", [Fault::Lost]);
    // More failures than attempts: the listener submits the answer again while no event comes.
    service.fail("2", [Fault::Error; 4]);
    service.fail("3", [Fault::Gone]);
    service.fail("4", [Fault::Conflict]);
    for id in 0..8 {
        service.call(&id.to_string(), "mine", "skills.list", &json!({}));
    }
    service.call("other", "theirs", "skills.list", &json!({}));
    // An event that is no call is ignored.
    service.ask(
        "mine",
        json!({"request_id": "approval", "kind": "approval"}),
    );

    let mut listener = CallListener::new(manager);
    let mut attempts = BTreeMap::new();
    let all_done = async {
        while attempts.len() < 8 {
            let record = records.recv().await.expect("the dispatcher lives");
            if record.is_done() {
                attempts.insert(record.request_id.to_string(), record);
            }
        }
        // Another event with a call that is done causes no second answer; a new call follows it.
        service.repeat_event("5");
        service.call("last", "mine", "skills.list", &json!({}));
        assert_eq!(
            records.recv().await.expect("a record").request_id.as_str(),
            "last"
        );
    };
    in_time(async {
        tokio::select! {
            ended = listener.listen(&dispatcher) => panic!("the stream is open: {ended:?}"),
            () = all_done => {}
        }
    })
    .await;
    assert_eq!(dispatcher.mode(), Some(DeliveryMode::Pushed));
    assert_eq!(service.pending(), ["approval", "other"]);
    assert_eq!(service.repeated(), [""; 0]);
    let answer = &service.answers()["0"];
    assert_eq!(answer["success"], true);
    assert_eq!(answer["contentItems"][0]["type"], "inputText");
    assert_eq!(service.result("0")["skills"][0]["package"], "skill://r/a");
    let ids: Vec<_> = service.last_event_ids();
    let ids: Vec<_> = ids.iter().map(Option::as_deref).collect();
    assert_eq!(ids, [None, Some("3"), Some("3"), Some("4")]);
    assert_eq!(attempts["1"].attempts, 2, "the first answer was lost");

    // The listener continues after the last event; a dispatcher that is pushed to cannot drain.
    assert_eq!(listener.last_event_id(), Some("12"));
    assert!(dispatcher.drain().await.is_err());
    daemon.stop().await;
}

/// Returns the `Last-Event-ID` of each request.
fn last_event_ids(server: &ScriptedServer) -> Vec<Option<String>> {
    let id = |head: request::Parts| {
        head.headers
            .get("last-event-id")
            .map(|id| id.to_str().expect("text").to_owned())
    };
    server.requests().into_iter().map(id).collect()
}

#[tokio::test]
async fn hostile_event_streams_are_opened_again() {
    let fixture = Fixture::new("skill r/a");
    let (daemon, session) = serve_session(&fixture).await;
    let call = json!({"requestId": "a", "toolName": "skills.list"});
    let huge = format!("id: 9\ndata: {}", "x".repeat(3 << 20));
    let long_id = format!("id: {}\ndata: 1\n\n", "9".repeat(2_000));
    let server = ScriptedServer::start([
        response(503, "text/plain", "later"),
        event_stream(&format!(
            ": hello\nretry: 1\nid: 1\ndata: {call}\n\nid: 2\ndata: no JSON\n\n"
        )),
        event_stream(&huge),
        event_stream("nonsense\n\n"),
        event_stream("id: \u{1}\ndata: 1\n\n"),
        event_stream(&long_id),
        event_stream("id: 3\ndata: {\"request_id\": \"\", \"tool_name\": \"x\"}\n\n"),
        event_stream("id: 4\nevent: other\n\n"),
        response(204, "text/plain", ""),
    ])
    .await;
    let (manager, dispatcher, mut records) = listening(&server.base_url, &session).await;
    let mut listener = CallListener::new(manager).resume_after("0");
    in_time(listener.listen(&dispatcher))
        .await
        .expect("204 ends the stream");
    let ids = last_event_ids(&server);
    let ids: Vec<_> = ids.iter().map(Option::as_deref).collect();
    // An id that no header can carry resets the position.
    let expected = [
        Some("0"),
        Some("0"),
        Some("2"),
        Some("2"),
        Some("2"),
        None,
        None,
        Some("3"),
        Some("4"),
    ];
    assert_eq!(ids, expected);
    let record = in_time(records.recv()).await.expect("a record");
    assert_eq!(
        (record.tool.as_str(), record.is_done()),
        ("skills.list", true)
    );
    daemon.stop().await;
}

#[tokio::test]
async fn a_rejected_event_stream_is_an_error() {
    let fixture = Fixture::new("skill r/a");
    let (daemon, session) = serve_session(&fixture).await;
    for (response, part) in [
        (
            response(403, "text/plain", "not yours"),
            "403 Forbidden: not yours",
        ),
        (response(302, "text/plain", ""), "302 Found"),
        (
            response(200, "application/json", "{}"),
            "content type \"application/json\"",
        ),
    ] {
        let server = ScriptedServer::start([response]).await;
        let (manager, dispatcher, _records) = listening(&server.base_url, &session).await;
        let error = in_time(CallListener::new(manager).listen(&dispatcher)).await;
        let error = error.expect_err("another attempt is of no use");
        assert!(
            matches!(&error, ListenError::Rejected(why) if why.contains(part)),
            "{error}"
        );
    }
    // A dispatcher that polls takes no pushed calls.
    let service = Service::start().await;
    let (manager, dispatcher, _records) = listening(&service.base_url(), &session).await;
    service.call("1", "mine", "skills.list", &json!({}));
    in_time(dispatcher.drain()).await.expect("a drain");
    let error = in_time(CallListener::new(manager).listen(&dispatcher)).await;
    assert!(matches!(error, Err(ListenError::Dispatch(_))), "{error:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_prompt_is_sent_with_the_mentioned_skills() {
    let fixture = Fixture::new("skill r/a");
    let (daemon, session) = serve_session(&fixture).await;
    let service = Service::start().await;
    let manager = Arc::new(http_manager(&service.base_url()).await);
    let options = DispatchOptions::default();
    let thread = SessionThread::new("mine", manager.clone(), session, options);
    service.call("1", "mine", "skills.list", &json!({}));
    let sent = in_time(thread.send_and_handle("Use $a.", true, "completed"))
        .await
        .expect("an end");
    assert_eq!(
        (sent.turn.status.as_str(), sent.turn.drained.accepted),
        ("completed", 1)
    );
    assert_eq!(sent.injected.fragments[0].package, "skill://r/a");
    let injected = in_time(thread.send("Use $a.", false)).await.expect("sent");
    assert!(injected.fragments.is_empty());
    let injected = in_time(thread.send("Use nothing.", true))
        .await
        .expect("sent");
    assert!(injected.fragments.is_empty());

    let text = |text: &str| json!({"type": "text", "text": text});
    let fragment = text(&sent.injected.fragments[0].text);
    assert!(
        fragment["text"]
            .as_str()
            .expect("text")
            .starts_with("<skill>")
    );
    let turns: Vec<Value> = [
        vec![fragment, text("Use $a.")],
        vec![text("Use $a.")],
        vec![text("Use nothing.")],
    ]
    .into_iter()
    .map(|input| json!({ "input": input }))
    .collect();
    assert_eq!(service.turns(), turns);
    assert!(thread.dispatcher().mode().is_some());
    daemon.stop().await;
}

#[tokio::test]
async fn tokens_and_paths_are_options() {
    let fixture = Fixture::new("file token\n| one");
    let service = Service::start().await;
    let token = Some(ClientToken::File(fixture.path("token")));
    let good = HttpManagerConfig {
        token,
        ..HttpManagerConfig::new(service.base_url(), "a/b?c")
    };
    let manager = HttpManager::new(good.clone()).await.expect("a manager");
    service.call("1", "a/b?c", "skills.list", &json!({}));
    let page = in_time(manager.list_pending(None, 10))
        .await
        .expect("a page");
    assert_eq!(
        (page.calls.len(), page.calls[0].session_id.as_str()),
        (1, "a/b?c")
    );
    assert_eq!(
        service.last_header("authorization").as_deref(),
        Some("Bearer one")
    );

    // A list alone, in camel case, at another path.
    let body = json!([{"requestId": "2", "toolName": "t", "arguments": {"x": 1}}]).to_string();
    let server = ScriptedServer::start([response(200, "application/json", &body)]).await;
    let pending_calls = "/v2/{session}/pending".to_owned();
    let paths = ManagerPaths {
        pending_calls,
        ..ManagerPaths::default()
    };
    let config = HttpManagerConfig {
        paths,
        ..HttpManagerConfig::new(&server.base_url, "s")
    };
    let manager = HttpManager::new(config).await.expect("a manager");
    let page = in_time(manager.list_pending(None, 10))
        .await
        .expect("a page");
    assert_eq!(page.calls[0].request_id.as_str(), "2");
    assert_eq!(server.requests()[0].uri, "/v2/s/pending");

    // A rejected token is read again.
    let server = ScriptedServer::start([
        response(401, "text/plain", ""),
        response(200, "application/json", "[]"),
    ])
    .await;
    let config = HttpManagerConfig {
        base_url: server.base_url.clone(),
        ..good.clone()
    };
    let manager = HttpManager::new(config).await.expect("a manager");
    fixture.write("token", "two");
    assert!(
        in_time(manager.list_pending(None, 10))
            .await
            .expect("a page")
            .calls
            .is_empty()
    );
    assert_eq!(server.requests()[1].headers["authorization"], "Bearer two");

    let cleartext = HttpManagerConfig {
        base_url: "http://192.0.2.1".to_owned(),
        ..good.clone()
    };
    let no_id = "/response".to_owned();
    let no_id = ManagerPaths {
        call_response: no_id,
        ..ManagerPaths::default()
    };
    for (config, part) in [
        (cleartext, "the token is not sent to http://192.0.2.1"),
        (
            HttpManagerConfig::new("ftp://h", "s"),
            "invalid base URL \"ftp://h\"",
        ),
        (HttpManagerConfig::new("h:1", "s"), "invalid base URL"),
        (
            HttpManagerConfig {
                paths: no_id,
                ..good.clone()
            },
            "contains `{request_id}`",
        ),
        (
            HttpManagerConfig {
                token: Some(ClientToken::Value("two words".to_owned())),
                ..good.clone()
            },
            "the value of the token holds no token",
        ),
    ] {
        let error = HttpManager::new(config)
            .await
            .expect_err("invalid")
            .to_string();
        assert!(error.contains(part), "{error}");
    }
}
