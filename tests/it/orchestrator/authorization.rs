//! `Authorization` on demand: HTTP MCP servers that answer 401 and whose declarations have no credential.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use caproot_core::sync::Mutex;
use caproot_session::sources::mcp::{McpEndpoint, McpServerConfig, McpSource};
use caproot_session::{
    AuthorizationFailed, AuthorizationRequest, ForkScope, ServerAuthorization, Session,
    SessionOptions, SkillSource, SourceKind,
};
use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore};
use tokio_stream::StreamExt as _;

use super::call_command::CallProcess;
use super::plugin_servers::{
    Reply, ToolServer, good_result, plugin_tree, server_options, server_tool_names, start_session,
    tools,
};
use super::session::{call, list_all};
use crate::harness::fixture::Fixture;
use crate::harness::process::caproot;
use crate::harness::test_servers::free_port;
use crate::harness::test_servers::mcp_server::{MockOptions, entry, page, start_with};
use crate::harness::{HANG_TIMEOUT, in_time};

const METADATA: &str = "https://tracker.example/.well-known/oauth-protected-resource";

/// Server with the tool `echo`, which accepts only `Bearer tN` of a current number.
struct GuardedServer {
    server: ToolServer,
    accepted: Arc<AtomicUsize>,
    fixture: Fixture,
}

impl GuardedServer {
    async fn start(challenge: &str) -> Self {
        let accepted = Arc::new(AtomicUsize::new(1));
        let number = accepted.clone();
        let challenge = challenge.to_owned();
        let server = ToolServer::start_guarded(move |authorization, method, params| {
            if authorization != format!("Bearer t{}", number.load(Ordering::SeqCst)) {
                return Reply::Unauthorized(challenge.clone());
            }
            match method {
                "tools/list" => Reply::Result(tools(&["echo"])),
                "server/discover" => Reply::Discovery,
                _ => Reply::Result(good_result(params)),
            }
        })
        .await;
        let fixture = plugin_tree(&json!({"url": format!("{}/mcp", server.origin)}));
        Self {
            server,
            accepted,
            fixture,
        }
    }

    fn options(&self, authorize: ServerAuthorization) -> SessionOptions {
        let mut options = server_options(&[&self.server.origin]);
        options.mcp_servers.authorize = authorize;
        options
    }

    fn authorizations(&self) -> Vec<String> {
        let seen = self.server.seen.lock();
        seen.iter().map(|seen| seen.authorization.clone()).collect()
    }
}

/// Function of a program that answers with `Bearer t1`, `Bearer t2` and so on, as often as it has permits.
#[derive(Clone)]
struct Program {
    asked: Arc<Mutex<Vec<AuthorizationRequest>>>,
    permits: Arc<Semaphore>,
    is_asked: Arc<Notify>,
}

impl Program {
    fn new(permits: usize) -> Self {
        Self {
            asked: Arc::default(),
            permits: Arc::new(Semaphore::new(permits)),
            is_asked: Arc::default(),
        }
    }

    fn authorize(&self) -> ServerAuthorization {
        let program = self.clone();
        ServerAuthorization::new(move |request| {
            let program = program.clone();
            async move {
                let count = {
                    let mut asked = program.asked.lock();
                    asked.push(request);
                    asked.len()
                };
                program.is_asked.notify_one();
                program.permits.acquire().await.expect("open").forget();
                Ok(Some(format!("Bearer t{count}")))
            }
        })
    }

    fn count(&self) -> usize {
        self.asked.lock().len()
    }
}

/// Waits until the server's error has a text, or has no error for an empty text.
async fn wait_for_error(session: &Session, text: &str) {
    let mut changes = session.watch();
    in_time(async {
        loop {
            let error = session.mcp_servers()[0].error.clone().unwrap_or_default();
            if error.is_empty() == text.is_empty() && error.contains(text) {
                return;
            }
            changes.next().await;
        }
    })
    .await;
}

#[tokio::test]
async fn the_tools_come_by_a_change_after_the_program_authorized() {
    let challenge = format!(
        "Bearer resource_metadata=\"{METADATA}\", scope=\"read write\", error=\"invalid_token\""
    );
    let guarded = GuardedServer::start(&challenge).await;
    let program = Program::new(0);
    let options = guarded.options(program.authorize());

    // The program has not answered, and the session has started.
    let session = start_session(&guarded.fixture, &options).await;
    assert!(server_tool_names(&session).is_empty());
    in_time(program.is_asked.notified()).await;
    let request = program.asked.lock()[0].clone();
    assert_eq!(
        (request.source_kind.as_str(), request.source_id.as_str()),
        ("local", "here")
    );
    assert_eq!(request.plugin.as_deref(), Some("kit"));
    assert_eq!(request.package.as_deref(), Some("skill://mine/kit"));
    assert_eq!(request.server, "web");
    assert_eq!(request.origin, guarded.server.origin);
    assert_eq!(request.url, format!("{}/mcp", guarded.server.origin));
    assert_eq!(request.resource_metadata.as_deref(), Some(METADATA));
    assert_eq!(request.scopes, ["read", "write"]);
    assert_eq!(request.error.as_deref(), Some("invalid_token"));
    let warnings = session.mcp_server_warnings().join("\n");
    assert!(warnings.contains("has not answered yet"), "{warnings}");
    let fork = session.fork(ForkScope::All).expect("an open session");

    let mut changes = session.watch();
    program.permits.add_permits(1);
    let source = in_time(changes.next()).await;
    assert_eq!(
        (source.kind, source.id.as_str()),
        (SourceKind::Local, "here")
    );
    wait_for_error(&session, "").await;
    for session in [&session, &fork] {
        let names = server_tool_names(session);
        assert_eq!(names, ["mcp__kit__web.echo", "mcp__results.read"]);
        let echoed = call(session, "mcp__kit__web.echo", json!({"a": 1})).await;
        assert_eq!(echoed["contents"], r#"{"a":1}"#);
    }
    assert_eq!(program.count(), 1);
    assert_eq!(session.mcp_server_warnings(), Vec::<String>::new());

    // Another 401 asks again, and the calls wait for the renewed value.
    guarded.accepted.store(2, Ordering::SeqCst);
    program.permits.add_permits(1);
    let calls = (0..4).map(|_| call(&session, "mcp__kit__web.echo", json!({})));
    for echoed in futures_util::future::join_all(calls).await {
        assert_eq!(echoed["contents"], "{}");
    }
    assert_eq!(program.count(), 2);

    let saved = session.save().expect("a session");
    let shown = format!("{session:?} {saved} {:?}", session.mcp_servers());
    assert!(
        !shown.contains("Bearer") && !shown.contains("t2"),
        "{shown}"
    );
}

#[tokio::test]
async fn without_a_function_a_warning_says_what_to_give() {
    let guarded = GuardedServer::start("Bearer").await;
    let options = guarded.options(ServerAuthorization::default());
    let session = start_session(&guarded.fixture, &options).await;
    let warnings = session.mcp_server_warnings().join("\n");
    let origin = &guarded.server.origin;
    for part in ["answers 401", "set `authorize`", "`Authorization`", origin] {
        assert!(warnings.contains(part), "{warnings}");
    }

    // A declaration with a credential is not asked about.
    let url = format!("{}/mcp", guarded.server.origin);
    let declaration = json!({"url": url, "headers": {"Authorization": "Bearer ${TOKEN}"}});
    let program = Program::new(0);
    let options = guarded.options(program.authorize());
    let session = start_session(&plugin_tree(&declaration), &options).await;
    let warnings = session.mcp_server_warnings().join("\n");
    assert!(warnings.contains("no value for \"TOKEN\""), "{warnings}");
    assert_eq!(program.count(), 0);
}

#[tokio::test]
async fn a_refused_value_is_asked_for_once_more_and_then_only_when_told() {
    let guarded = GuardedServer::start("Bearer").await;
    guarded.accepted.store(4, Ordering::SeqCst);
    let program = Program::new(Semaphore::MAX_PERMITS);
    let options = guarded.options(program.authorize());
    let session = start_session(&guarded.fixture, &options).await;
    wait_for_error(&session, "refused two values").await;
    assert_eq!(program.count(), 2);
    let requests = guarded.authorizations().len();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(guarded.authorizations().len(), requests);

    in_time(session.retry_servers()).await;
    wait_for_error(&session, "").await;
    assert_eq!(program.count(), 4);
    call(&session, "mcp__kit__web.echo", json!({})).await;
    let sent = guarded.authorizations();
    assert!(sent.contains(&String::new()) && sent.contains(&"Bearer t4".to_owned()));
}

#[tokio::test]
async fn each_failure_of_the_function_is_a_warning() {
    type Answer = fn() -> Result<Option<String>, AuthorizationFailed>;
    let guarded = GuardedServer::start("Bearer").await;
    let answers: [(Answer, &str); 4] = [
        (|| Ok(None), "the program gave no value"),
        (
            || Err(AuthorizationFailed),
            "function `authorize` of the program failed",
        ),
        (
            || panic!("Bearer t1"),
            "function `authorize` of the program failed",
        ),
        (|| Ok(Some("t1\r\nx: y".to_owned())), "such as `Bearer …`"),
    ];
    for (answer, part) in answers {
        let authorize = ServerAuthorization::new(move |_| async move { answer() });
        let session = start_session(&guarded.fixture, &guarded.options(authorize)).await;
        wait_for_error(&session, part).await;
        let warnings = session.mcp_server_warnings().join("\n");
        assert!(warnings.contains("`retry_servers`"), "{warnings}");
        assert!(!warnings.contains("t1"), "{warnings}");
        // The session goes on.
        assert_eq!(list_all(&session).await.0.len(), 1);
    }
    assert!(guarded.authorizations().iter().all(String::is_empty));
}

#[tokio::test]
async fn hostile_challenges_are_bounded_and_never_shown() {
    let secret = "\u{202e}ignore\u{e0041}";
    for (challenge, part) in [
        (
            format!("Bearer scope=\"{}\"", "y".repeat(20_000)),
            "over 8192 bytes",
        ),
        (format!("Bearer realm=\"{secret}\""), "characters that no"),
        (
            "Bearer resource_metadata=\"https://169.254.169.254/latest\"".to_owned(),
            "not a globally routable",
        ),
        (
            "Bearer resource_metadata=\"javascript:x\"".to_owned(),
            "metadata",
        ),
        (", =\"".to_owned(), ""),
    ] {
        let guarded = GuardedServer::start(&challenge).await;
        let program = Program::new(0);
        let options = guarded.options(program.authorize());
        let session = start_session(&guarded.fixture, &options).await;
        in_time(program.is_asked.notified()).await;
        let request = program.asked.lock()[0].clone();
        assert_eq!(request.resource_metadata, None, "{challenge}");
        assert!(request.scopes.is_empty(), "{challenge}");

        let warnings = session.mcp_server_warnings().join("\n");
        assert!(warnings.contains(part), "{challenge}: {warnings}");
        assert!(
            !warnings.contains("ignore") && !warnings.contains("yyy"),
            "{warnings}"
        );
        assert!(warnings.len() < 1_000, "{warnings}");
        program.permits.add_permits(1);
        wait_for_error(&session, "").await;
        call(&session, "mcp__kit__web.echo", json!({})).await;
    }
}

#[tokio::test]
async fn another_origin_never_gets_the_value() {
    let other = ToolServer::start_good().await;
    let target = format!("{}/mcp", other.origin);
    let redirects = Arc::new(AtomicUsize::new(0));
    let is_redirecting = redirects.clone();
    let server = ToolServer::start_guarded(move |authorization, method, _| {
        if authorization.is_empty() {
            return Reply::Unauthorized("Bearer".to_owned());
        }
        if is_redirecting.load(Ordering::SeqCst) > 0 {
            return Reply::Redirect(target.clone());
        }
        match method {
            "server/discover" => Reply::Discovery,
            _ => Reply::Result(tools(&["echo"])),
        }
    })
    .await;
    let fixture = plugin_tree(&json!({"url": format!("{}/mcp", server.origin)}));
    let program = Program::new(1);
    let mut options = server_options(&[&server.origin, &other.origin]);
    options.mcp_servers.authorize = program.authorize();
    let session = start_session(&fixture, &options).await;
    wait_for_error(&session, "").await;

    redirects.store(1, Ordering::SeqCst);
    let result = in_time(session.call("mcp__kit__web.echo", &json!({}))).await;
    assert!(!result.success, "{}", result.json);
    assert!(!result.json.contains("t1"), "{}", result.json);
    assert!(other.methods().is_empty());
}

#[tokio::test]
async fn a_function_that_never_answers_delays_nothing() {
    let guarded = GuardedServer::start("Bearer").await;
    let authorize = ServerAuthorization::new(|_| std::future::pending());
    let started_at = Instant::now();
    let session = start_session(&guarded.fixture, &guarded.options(authorize)).await;
    assert!(started_at.elapsed() < HANG_TIMEOUT / 2);
    assert_eq!(list_all(&session).await.0.len(), 1);
    in_time(session.retry_servers()).await;
    let warnings = session.mcp_server_warnings().join("\n");
    assert!(warnings.contains("has not answered yet"), "{warnings}");
}

#[tokio::test]
async fn a_source_of_skills_is_authorized_too() {
    let options = MockOptions {
        is_authorized: Box::new(|header: &str| header == "Bearer t1"),
        challenge: Some("Bearer scope=\"skills\""),
        ..MockOptions::default()
    };
    let mock = start_with(&free_port(), options, |method, _| {
        (method == "skills/list").then(|| page(&[entry("a", &[("x", "text")])], None))
    })
    .await;
    let program = Program::new(0);
    let server = McpServerConfig {
        authorize: program.authorize(),
        start_timeout: HANG_TIMEOUT,
        ..McpServerConfig::new("docs", McpEndpoint::http(&mock.url))
    };
    // The source has started although the program has not answered.
    let source: Arc<dyn SkillSource> = Arc::new(McpSource::start(server).await.expect("a name"));
    let reason = source.snapshot().unavailable_reason.expect("a reason");
    assert!(reason.contains("was asked for `Authorization`"), "{reason}");
    let request = program.asked.lock()[0].clone();
    assert_eq!(
        (request.source_kind.as_str(), request.server.as_str()),
        ("mcp", "docs")
    );
    assert_eq!((request.plugin, request.package), (None, None));
    assert_eq!(request.scopes, ["skills"]);

    let mut changes = source.changes();
    program.permits.add_permits(1);
    in_time(async {
        while source.snapshot().unavailable_reason.is_some() {
            changes.next().await.expect("a change");
        }
    })
    .await;
    assert_eq!(source.snapshot().listing.skills.len(), 1);
    assert_eq!(program.count(), 1);
}

#[tokio::test]
async fn a_program_authorizes_by_lines() {
    let challenge = format!("Bearer resource_metadata=\"{METADATA}\"");
    let guarded = GuardedServer::start(&challenge).await;
    let mut process = CallProcess::start(caproot(["call", "--no-session"]));
    let local = json!({"id": "local", "directories": {"mine": guarded.fixture.path("mine")}});
    let sources = json!({"key": "s", "local": [local], "ask_authorization": true,
        "private_origins": [guarded.server.origin]});
    process
        .send(&json!({"id": 1, "method": "start", "plugin_servers": ["kit"], "sources": sources}));

    let mut lines = [process.next().await, process.next().await];
    lines.sort_by_key(|line| line["id"].as_u64());
    let [asked, started] = &lines;
    assert_eq!(
        (&asked["event"], &asked["key"], &asked["plugin"]),
        (&json!("authorize"), &json!("s"), &json!("kit"))
    );
    assert_eq!(asked["resourceMetadata"], METADATA);
    assert_eq!(asked["origin"], json!(guarded.server.origin));
    let session = started["result"]["session"].clone();
    let watched = process
        .request(json!({"id": 2, "method": "watch", "session": session}))
        .await;
    let has_echo = |tools: &Value| tools.to_string().contains("mcp__kit__web_echo");
    assert!(!has_echo(&watched["result"]["tools"]), "{watched}");

    // A defect of the program is no answer, and its text stays out of the log and the state.
    process.send(
        &json!({"id": 3, "method": "tool_result", "call": asked["call"],
        "bug": "the login of t1 failed"}),
    );
    let mut states = Vec::new();
    while states.len() < 2 {
        states.push(process.next().await);
    }
    let state = process
        .request(json!({"id": 4, "method": "plugin_servers", "session": session}))
        .await;
    let error = state["result"][0]["error"].as_str().expect("an error");
    assert!(error.contains("failed") && !error.contains("t1"), "{error}");

    process.send(&json!({"id": 5, "method": "retry_servers", "session": session}));
    let mut tools = Value::Null;
    while tools.is_null() {
        let line = process.next().await;
        if line["event"] == "authorize" {
            process.send(
                &json!({"id": 6, "method": "tool_result", "call": line["call"],
                "result": "Bearer t1"}),
            );
        }
        if line["event"] == "changed" {
            assert_eq!(line["source"], json!({"kind": "local", "id": "local"}));
            tools = line["tools"].clone();
        }
    }
    assert!(has_echo(&tools), "{tools}");
}
