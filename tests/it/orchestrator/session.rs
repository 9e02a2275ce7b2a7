//! The tools `skills.list` and `skills.read` against a real daemon: results and errors.

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use caproot_client::fleet::RegistryFuture;
use caproot_client::{DaemonEndpoint, ExecutorConfig, ExecutorRegistry, Fleet};
use caproot_core::wire::cursor::{Cursor, CursorKind, CursorReader, CursorWriter};
use caproot_session::{
    ExecutorStatus, MAX_RESULT_BYTES, Session, SessionOptions, SkillMention, ToolResult, UserPrompt,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use super::{executor, published, read_arguments, serve_tree, start_daemon};
use crate::harness::fixture::Fixture;
use crate::harness::test_servers::unused_address;
use crate::harness::{HANG_TIMEOUT, in_time};

/// Cursor of the list of another session.
struct ForeignListCursor;

impl Cursor for ForeignListCursor {
    const KIND: CursorKind = CursorKind::SessionView;

    fn write_fields(&self, fields: &mut CursorWriter) {
        fields.write_hash(1);
        fields.write_number(0);
    }

    fn read_fields(_: &mut CursorReader<'_>) -> Option<Self> {
        None
    }
}

/// Starts a session with the published roots of these environments and without a grace period.
pub(crate) async fn session(executors: &[(&str, &str)]) -> Session {
    let fleet = executors
        .iter()
        .map(|(id, address)| ((*id).to_owned(), executor(address)));
    let roots = executors.iter().map(|(id, _)| published(id)).collect();
    let options = SessionOptions {
        grace_period: Duration::ZERO,
        ..SessionOptions::default()
    };
    Session::start(&Fleet::from_executors(fleet), roots, &options)
        .await
        .expect("a selection")
}

/// Parses a result. Checks its size limit and its success flag.
pub(crate) fn parse_result(result: &ToolResult) -> Value {
    assert!(
        result.json.len() <= MAX_RESULT_BYTES,
        "{} bytes",
        result.json.len()
    );
    assert!(result.external_context);
    let value: Value = serde_json::from_str(&result.json).expect("JSON");
    assert_eq!(result.success, value.get("error").is_none(), "{value}");
    value
}

/// Makes a call that must succeed.
pub(crate) async fn call(session: &Session, tool: &str, arguments: Value) -> Value {
    let result = in_time(session.call(tool, &arguments)).await;
    assert!(result.success, "{tool} {arguments}: {}", result.json);
    parse_result(&result)
}

/// Makes a call that must fail. Returns the error code.
pub(crate) async fn error_code(session: &Session, tool: &str, arguments: Value) -> String {
    let result = in_time(session.call(tool, &arguments)).await;
    assert!(!result.success, "{tool} {arguments}: {}", result.json);
    let error = parse_result(&result)["error"].clone();
    let has_text = |key: &str| error[key].as_str().is_some_and(|text| !text.is_empty());
    assert!(
        has_text("message") && has_text("next"),
        "a model can act on it: {error}"
    );
    error["code"].as_str().expect("a code").to_owned()
}

/// Reads a whole file with `skills.read`.
pub(crate) async fn read_all(session: &Session, mut arguments: Value) -> String {
    let mut contents = String::new();
    loop {
        let page = call(session, "skills.read", arguments.clone()).await;
        let keys: Vec<_> = page
            .as_object()
            .expect("an object")
            .keys()
            .cloned()
            .collect();
        assert_eq!(keys, ["contents", "next_cursor", "resource", "truncated"]);
        contents.push_str(page["contents"].as_str().expect("text"));
        assert_eq!(page["truncated"], !page["next_cursor"].is_null());
        if page["next_cursor"].is_null() {
            return contents;
        }
        assert_ne!(page["contents"], "", "each page goes on");
        arguments["cursor"] = page["next_cursor"].clone();
    }
}

/// Reads all pages of `skills.list`. Returns packages and warnings.
pub(crate) async fn list_all(session: &Session) -> (Vec<String>, Vec<String>) {
    let (mut packages, mut warnings) = (Vec::new(), Vec::new());
    let mut arguments = json!({});
    loop {
        let page = call(session, "skills.list", arguments).await;
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        packages.extend(
            page["skills"]
                .as_array()
                .expect("a list")
                .iter()
                .map(|s| text(&s["package"])),
        );
        warnings.extend(
            page["warnings"]
                .as_array()
                .expect("a list")
                .iter()
                .map(text),
        );
        if page["next_cursor"].is_null() {
            return (packages, warnings);
        }
        arguments = json!({"cursor": page["next_cursor"]});
    }
}

#[tokio::test]
async fn tool_results_have_exactly_this_json() {
    let (_fixture, daemon) = serve_tree("r", "skill r/a\nfile r/a/x.md\n| hello").await;
    let session = session(&[("r", &daemon.address)]).await;
    let list = session.call("skills.list", &json!({})).await;
    let entry = r#"{"authority":{"kind":"executor","id":"r"},"package":"skill://r/a","name":"a","description":"Does a.","main_resource":"skill://r/a/SKILL.md"}"#;
    let expected =
        format!(r#"{{"skills":[{entry}],"next_cursor":null,"warnings":[],"truncated":false}}"#);
    assert_eq!(list.json, expected);
    let arguments = read_arguments("r", "skill://r/a", "skill://r/a/x.md");
    let read = session.call("skills.read", &arguments);
    let expected = r#"{"resource":"skill://r/a/x.md","contents":"hello\n","next_cursor":null,"truncated":false}"#;
    assert_eq!(read.await.json, expected);
    let main = call(
        &session,
        "skills.read",
        read_arguments("r", "skill://r/a", ""),
    )
    .await;
    assert_eq!(main["resource"], "skill://r/a/SKILL.md");
    assert_eq!(
        call(&session, "skills.list", json!({"cursor": null})).await["skills"][0]["name"],
        "a"
    );

    let tools = session.flat_tools();
    let names: Vec<_> = tools
        .as_array()
        .expect("a list")
        .iter()
        .map(|t| &t["name"])
        .collect();
    assert_eq!(names, ["list", "read", "search"]);
    for tool in tools.as_array().expect("a list") {
        assert_eq!(tool["namespace"], "skills");
        assert_eq!(tool["inputSchema"]["additionalProperties"], false);
    }
    // As a platform registers tools, they are one namespace, and none is deferred.
    let groups = session.dynamic_tools();
    assert_eq!(groups.as_array().map(Vec::len), Some(1));
    assert_eq!(
        (&groups[0]["type"], &groups[0]["name"]),
        (&json!("namespace"), &json!("skills"))
    );
    let mut read = tools[1].clone();
    read["deferLoading"] = json!(false);
    read["type"] = json!("function");
    read.as_object_mut().expect("an object").remove("namespace");
    assert_eq!(groups[0]["tools"][1], read);
    daemon.stop().await;
}

#[tokio::test]
async fn any_file_is_read_exactly_in_pages() {
    let fixture = Fixture::new("skill r/a\nfile r/a/bytes\n| \\xff\\0");
    let texts = prop_oneof![
        Just("\u{1}".repeat(20_000)),
        Just("\"\\\n".repeat(9_000)),
        Just("🦀".repeat(5_000)),
        Just(String::new()),
        "(?s)(a|\u{1}{0,900}|\"{0,900}|🦀|\\n|ä){0,400}",
        prop::collection::vec(any::<char>(), 0..9_000).prop_map(|c| c.into_iter().collect()),
    ];
    let mut runner = TestRunner::deterministic();
    let files: Vec<String> = (0..24)
        .map(|_| texts.new_tree(&mut runner).expect("a text").current())
        .collect();
    for (n, text) in files.iter().enumerate() {
        fixture.write(&format!("r/a/f{n}"), text);
    }
    let daemon = start_daemon("r", fixture.path("r"), None).await;
    let session = session(&[("r", &daemon.address)]).await;
    for (n, text) in files.iter().enumerate() {
        let file = format!("skill://r/a/f{n}");
        let read = read_all(&session, read_arguments("r", "skill://r/a", &file)).await;
        assert_eq!(read, *text, "{file}");
    }
    let bytes = read_arguments("r", "skill://r/a", "skill://r/a/bytes");
    assert_eq!(error_code(&session, "skills.read", bytes).await, "NOT_TEXT");
    daemon.stop().await;
}

/// Change that makes valid arguments invalid.
type ArgumentChange = &'static dyn Fn(&mut Value);

#[tokio::test]
async fn each_error_has_its_code() {
    let fixture = Fixture::new("skill r/a\nfile r/a/long\n| \\{20000*x}\nskill s/b");
    let (r, s) = (
        start_daemon("r", fixture.path("r"), None).await,
        start_daemon("s", fixture.path("s"), None).await,
    );
    let session = session(&[("r", &r.address), ("s", &s.address)]).await;
    let arguments = |change: &dyn Fn(&mut Value)| {
        let mut arguments = read_arguments("r", "skill://r/a", "skill://r/a/SKILL.md");
        change(&mut arguments);
        arguments
    };
    let cases: &[(&str, ArgumentChange)] = &[
        ("INVALID_ARGUMENTS", &|a| a["more"] = json!(1)),
        ("INVALID_ARGUMENTS", &|a| a["authority"]["more"] = json!(1)),
        ("INVALID_ARGUMENTS", &|a| a["package"] = json!(7)),
        ("INVALID_ARGUMENTS", &|a| *a = json!({"package": ""})),
        ("INVALID_ARGUMENTS", &|a| *a = json!({})),
        ("INVALID_ARGUMENTS", &|a| *a = json!("text")),
        ("INVALID_ARGUMENTS", &|a| {
            a["package"] = json!("x".repeat(100_000));
        }),
        ("UNKNOWN_AUTHORITY", &|a| a["authority"]["id"] = json!("q")),
        ("UNKNOWN_AUTHORITY", &|a| {
            a["authority"]["kind"] = json!("host");
        }),
        ("WRONG_AUTHORITY", &|a| a["authority"]["id"] = json!("s")),
        ("PACKAGE_NOT_FOUND", &|a| a["package"] = json!("/etc")),
        ("PACKAGE_NOT_FOUND", &|a| {
            a["package"] = json!("skill://r/none");
        }),
        ("PACKAGE_NOT_FOUND", &|a| {
            a["package"] = json!("skill://r/a/../a");
        }),
        ("RESOURCE_NOT_FOUND", &|a| {
            a["resource"] = json!("skill://s/b/SKILL.md");
        }),
        ("RESOURCE_NOT_FOUND", &|a| {
            a["resource"] = json!("skill://r/a/none");
        }),
        ("INVALID_ARGUMENTS", &|a| {
            a["resource"] = json!("skill://r/a/../a/SKILL.md");
        }),
        ("INVALID_CURSOR", &|a| a["cursor"] = json!("garbage")),
        ("INVALID_CURSOR", &|a| a["cursor"] = json!("")),
    ];
    for (code, change) in cases {
        if arguments(change)["cursor"] == "" {
            // An empty cursor means the first page, as on the wire.
            call(&session, "skills.read", arguments(change)).await;
            continue;
        }
        assert_eq!(
            error_code(&session, "skills.read", arguments(change)).await,
            *code
        );
    }
    for (code, arguments) in [
        ("INVALID_ARGUMENTS", json!({"more": 1})),
        ("INVALID_ARGUMENTS", json!([])),
        ("INVALID_CURSOR", json!({"cursor": "garbage"})),
        (
            "CATALOG_CHANGED",
            json!({"cursor": ForeignListCursor.encode(b"")}),
        ),
    ] {
        assert_eq!(error_code(&session, "skills.list", arguments).await, code);
    }
    assert_eq!(
        error_code(&session, "skills.write", json!({})).await,
        "UNKNOWN_TOOL"
    );

    // One cursor is of another version, and one is of another file.
    let long = read_arguments("r", "skill://r/a", "skill://r/a/long");
    let page = call(&session, "skills.read", long.clone()).await;
    let mut next = long.clone();
    next["cursor"] = page["next_cursor"].clone();
    let other = arguments(&|a| a["cursor"] = page["next_cursor"].clone());
    assert_eq!(
        error_code(&session, "skills.read", other).await,
        "INVALID_CURSOR"
    );
    fixture.write("r/a/long", "y".repeat(20_000));
    assert_eq!(
        error_code(&session, "skills.read", next.clone()).await,
        "RESOURCE_CHANGED"
    );

    // An executor that disappears during a read does not affect the other executor.
    let page = call(&session, "skills.read", long.clone()).await;
    next["cursor"] = page["next_cursor"].clone();
    let address = r.address.clone();
    r.stop().await;
    assert_eq!(
        error_code(&session, "skills.read", next.clone()).await,
        "EXECUTOR_UNAVAILABLE"
    );
    let mut changes = session.watch();
    in_time(async {
        while list_all(&session).await.0 != ["skill://s/b"] {
            changes.next().await;
        }
    })
    .await;
    let (_, warnings) = list_all(&session).await;
    assert!(
        warnings.len() == 1 && warnings[0].contains("\"r\""),
        "{warnings:?}"
    );
    let s_read = read_arguments("s", "skill://s/b", "");
    call(&session, "skills.read", s_read).await;
    // The cursor is still valid after the restart of the daemon.
    let r = start_daemon("r", fixture.path("r"), Some(&address)).await;
    in_time(async {
        while list_all(&session).await.0.len() < 2 {
            changes.next().await;
        }
    })
    .await;
    assert!(read_all(&session, next).await.starts_with('y'));
    r.stop().await;
    s.stop().await;
}

#[tokio::test]
async fn many_concurrent_calls_have_their_own_results() {
    let (_fixture, daemon) = serve_tree("r", "skill r/a\nfile r/a/x\n| \\{9000*\"}").await;
    let session = Arc::new(session(&[("r", &daemon.address)]).await);
    let calls = (0..10_000).map(|n| {
        let session = session.clone();
        tokio::spawn(async move {
            let (tool, arguments) = match n % 3 {
                0 => ("skills.list", json!({})),
                1 => ("skills.read", read_arguments("r", "skill://r/a", "")),
                _ => (
                    "skills.read",
                    read_arguments("r", "skill://r/a", "skill://r/none"),
                ),
            };
            let result = session.call(tool, &arguments).await;
            (
                n % 3 == 2,
                parse_result(&result)
                    .get("error")
                    .map(|error| error["code"].clone()),
            )
        })
    });
    let calls: Vec<_> = calls.collect();
    for call in calls {
        // Each call has its own result. A call may be rejected as overloaded.
        match in_time(call).await.expect("no panic") {
            (false, None) => {}
            (true, Some(code)) => assert_eq!(code, "RESOURCE_NOT_FOUND"),
            (_, code) => assert_eq!(code.expect("a refusal"), "OVERLOADED"),
        }
    }
    daemon.stop().await;
}

#[tokio::test]
async fn an_unknown_executor_is_a_warning() {
    let (_fixture, daemon) = serve_tree("r", "skill r/a").await;
    let fleet = Fleet::from_executors([
        ("r".to_owned(), executor(&daemon.address)),
        ("down".to_owned(), executor(&unused_address())),
    ]);
    let roots = vec![published("lost"), published("r"), published("down")];
    let options = SessionOptions {
        start_timeout: Duration::from_millis(100),
        ..SessionOptions::default()
    };
    let session = Session::start(&fleet, roots, &options)
        .await
        .expect("a selection");
    let mut changes = session.watch();
    in_time(async {
        while list_all(&session).await.0 != ["skill://r/a"] {
            changes.next().await;
        }
    })
    .await;
    let (_, warnings) = list_all(&session).await;
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains("\"down\"") && warnings[1].contains("\"lost\""));
    in_time(async {
        while session.executors()[0].state == ExecutorStatus::Connecting {
            changes.next().await;
        }
    })
    .await;
    let states: Vec<_> = session
        .executors()
        .into_iter()
        .map(|e| (e.environment_id, e.state))
        .collect();
    let named = |id: &str, state| (id.to_owned(), state);
    assert_eq!(
        states,
        [
            named("down", ExecutorStatus::Failed),
            named("lost", ExecutorStatus::Failed),
            named("r", ExecutorStatus::Live)
        ]
    );
    let lost = read_arguments("lost", "skill://lost/a", "");
    assert_eq!(
        error_code(&session, "skills.read", lost).await,
        "EXECUTOR_UNAVAILABLE"
    );
    let instructions = session.instruction_text(8_000);
    assert!(instructions.text.contains("- a: Does a.\n") && instructions.warnings.len() == 2);

    for (roots, part) in [
        (vec![published("")], "1 to 256 bytes"),
        (
            vec![published("a"), {
                let mut b = published("b");
                b.id = "a".into();
                b
            }],
            "two roots",
        ),
    ] {
        let error = Session::start(&fleet, roots, &options)
            .await
            .expect_err(part)
            .to_string();
        assert!(error.contains(part), "{error}");
    }
    daemon.stop().await;
}

/// Invisible characters are escaped in every text for a model. File contents are exact.
#[tokio::test]
async fn hidden_characters_are_escaped() {
    let fixture = Fixture::new("dir r");
    let text = "---\nname: \"a\u{202e}b\"\ndescription: Do\u{200b}es\u{e0041} 👩\u{200d}🚀.\n\
                metadata: {short-description: \"Sh\u{2066}ort.\"}\n---\nBo\u{200b}dy.\n";
    fixture.write("r/a/SKILL.md", text);
    fixture.write("r/b/SKILL.md", text.replace("Bo", "Mo"));
    fixture.write("r/c/SKILL.md", text.replace("a\u{202e}b", "c\u{202e}"));
    let daemon = start_daemon("r", fixture.path("r"), None).await;
    let session = session(&[("r", &daemon.address)]).await;
    let list = call(&session, "skills.list", json!({})).await;
    assert_eq!(list["skills"][0]["name"], r"a\u{202e}b");
    assert_eq!(
        list["skills"][0]["description"],
        "Do\\u{200b}es\\u{e0041} 👩\u{200d}🚀."
    );
    let instructions = session.instruction_text(8_000).text;
    assert!(
        instructions.contains(r"- a\u{202e}b: Sh\u{2066}ort. (skill://r/a)"),
        "{instructions}"
    );
    let several = in_time(session.inject(&UserPrompt {
        mentions: vec![SkillMention {
            name: "a\u{202e}b".into(),
            handle: String::new(),
        }],
        ..UserPrompt::default()
    }))
    .await;
    let candidate = &several.ambiguous[0].candidates[0].description;
    let named = in_time(session.inject(&"[$c](skill://r/c)".into())).await;
    let (head, body) = named.fragments[0]
        .text
        .split_once("</package>\n")
        .expect("a head");
    assert!(head.contains(r"<name>c\u{202e}</name>"), "{head}");
    for text in [&list.to_string(), &instructions, candidate, head] {
        let hidden = ['\u{200b}', '\u{202e}', '\u{2066}', '\u{e0041}'];
        assert!(!text.contains(hidden), "{text:?}");
    }
    assert!(
        body.contains("Bo\u{200b}dy.\n"),
        "a body is exact: {body:?}"
    );
    let read = read_all(&session, read_arguments("r", "skill://r/a", "")).await;
    assert_eq!(read, text);
    daemon.stop().await;
}

#[tokio::test]
async fn a_lost_executor_is_stale() {
    let (_fixture, daemon) = serve_tree("r", "skill r/a").await;
    let session = session(&[("r", &daemon.address)]).await;
    assert_eq!(session.executors()[0].state, ExecutorStatus::Live);
    assert_eq!(session.executors()[0].reason, None);

    let mut changes = session.watch();
    daemon.stop().await;
    let state = in_time(async {
        loop {
            changes.next().await;
            let state = session.executors().remove(0);
            if state.state != ExecutorStatus::Live {
                return state;
            }
        }
    })
    .await;
    assert_eq!((state.state, state.skills), (ExecutorStatus::Stale, 1));
    assert!(state.reason.is_some(), "{state:?}");
}

/// Executors that cannot be connected do not delay the start of a session.
#[tokio::test]
async fn a_dead_executor_is_not_waited_for() {
    let (fixture, daemon) = serve_tree("r", "skill r/a\nskill late/b\ndir empty").await;
    let socket = |name: &str| fixture.path("empty").join(name);
    drop(UnixListener::bind(socket("dead.sock")).expect("a socket"));
    let unix = |name| ExecutorConfig::new(DaemonEndpoint::unix(socket(name)).expect("an endpoint"));
    let address = unused_address();
    let fleet = Fleet::from_executors([
        ("r".to_owned(), executor(&daemon.address)),
        ("refused".to_owned(), executor(&address)),
        ("missing".to_owned(), unix("missing.sock")),
        ("dead".to_owned(), unix("dead.sock")),
    ]);
    let roots = ["refused", "r", "missing", "dead"].map(published).to_vec();
    // The timeout is longer than the test.
    let options = SessionOptions {
        start_timeout: Duration::from_hours(1),
        ..SessionOptions::default()
    };
    let session = in_time(Session::start(&fleet, roots, &options)).await;
    let session = session.expect("a selection");
    let (packages, warnings) = list_all(&session).await;
    assert_eq!(
        (packages, warnings.len()),
        (vec!["skill://r/a".to_owned()], 3)
    );
    for executor in session.executors() {
        let is_live = executor.environment_id == "r";
        assert_eq!(
            (
                executor.state == ExecutorStatus::Live,
                executor.reason.is_none()
            ),
            (is_live, is_live)
        );
    }
    // A daemon that starts later joins the session.
    let mut changes = session.watch();
    let late_daemon = start_daemon("refused", fixture.path("late"), Some(&address)).await;
    in_time(async {
        while list_all(&session).await.0.len() < 2 {
            changes.next().await;
        }
    })
    .await;
    late_daemon.stop().await;
    daemon.stop().await;
}

/// Registry that fails twice and then succeeds.
struct FailingRegistry {
    address: String,
    request_count: AtomicUsize,
}

impl ExecutorRegistry for FailingRegistry {
    fn find_executor<'a>(&'a self, _: &'a str) -> RegistryFuture<'a> {
        let request_count = self.request_count.fetch_add(1, Ordering::Relaxed);
        let error = || "not yet".to_owned();
        let answer = (request_count > 1)
            .then(|| Some(executor(&self.address)))
            .ok_or_else(error);
        Box::pin(std::future::ready(answer))
    }
}

#[tokio::test]
async fn a_failing_registry_is_asked_again() {
    let (_fixture, daemon) = serve_tree("r", "skill r/a").await;
    let registry = FailingRegistry {
        address: daemon.address.clone(),
        request_count: AtomicUsize::new(0),
    };
    let options = SessionOptions {
        start_timeout: HANG_TIMEOUT,
        ..SessionOptions::default()
    };
    let session = Session::start(&Fleet::new(registry), vec![published("r")], &options).await;
    let session = session.expect("a selection");
    assert_eq!(list_all(&session).await.0, ["skill://r/a"]);
    daemon.stop().await;
}
