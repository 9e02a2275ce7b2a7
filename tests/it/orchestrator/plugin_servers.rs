//! HTTP MCP servers of plugins as tools of a session: names, values, limits, and hostile servers.

use std::io;
use std::sync::Arc;

use caproot::daemon::local_source::LocalSource;
use caproot_client::Fleet;
use caproot_core::sync::Mutex;
use caproot_session::{
    ForkScope, McpServerChoice, McpServerOptions, ServerValues, Session, SessionOptions,
    SkillSource, ToolNames,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::call_command::CallProcess;
use super::session::{call, list_all};
use crate::harness::fixture::Fixture;
use crate::harness::process::caproot;
use crate::harness::test_servers::{HttpServer, free_port, start_http};
use crate::harness::{HANG_TIMEOUT, in_time};

/// Answer of a tool server.
pub(crate) enum Reply {
    /// Result of the request.
    Result(Value),
    /// Body with a type.
    Body(&'static str, Bytes),
    /// The answer of the request `server/discover`.
    Discovery,
    /// Redirect to a URL.
    Redirect(String),
    /// 401 with a challenge.
    Unauthorized(String),
    /// No answer. The notification gets the end of the request.
    Never(Arc<Notify>),
}

/// Request that a tool server got.
pub(crate) struct SeenRequest {
    method: String,
    pub(crate) authorization: String,
}

/// Returns the answer to the `Authorization`, method and parameters of a request.
type ToolScript = dyn Fn(&str, &str, &Value) -> Reply + Send + Sync;

/// MCP server over HTTP with the answers of a test.
pub(crate) struct ToolServer {
    pub(crate) origin: String,
    pub(crate) seen: Arc<Mutex<Vec<SeenRequest>>>,
    _server: HttpServer,
}

/// Notifies when it is dropped.
struct NotifyOnDrop(Arc<Notify>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl ToolServer {
    async fn start(script: impl Fn(&str, &Value) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_guarded(move |_, method, params| match method {
            "server/discover" => Reply::Discovery,
            _ => script(method, params),
        })
        .await
    }

    /// Starts a server whose script also answers the discovery.
    pub(crate) async fn start_guarded(
        script: impl Fn(&str, &str, &Value) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let script: Arc<ToolScript> = Arc::new(script);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = seen.clone();
        let answer = move |request| {
            let script = script.clone();
            let log = log.clone();
            async move { answer(request, &*script, &log).await }
        };
        let server = start_http(&free_port(), answer).await;
        Self {
            origin: format!("http://{}", server.address),
            seen,
            _server: server,
        }
    }

    /// Starts a server with the tools `echo`, `long`, `picture` and `secret`.
    pub(crate) async fn start_good() -> Self {
        Self::start(|method, params| match method {
            "tools/list" => Reply::Result(tools(&["echo", "long", "picture", "fails", "secret"])),
            _ => Reply::Result(good_result(params)),
        })
        .await
    }

    pub(crate) fn methods(&self) -> Vec<String> {
        let seen = self.seen.lock();
        seen.iter().map(|request| request.method.clone()).collect()
    }
}

pub(crate) fn tools(names: &[&str]) -> Value {
    let tools: Vec<_> = names
        .iter()
        .map(|name| {
            json!({"name": name, "description": format!("Does {name}.\u{202e}"),
                "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}})
        })
        .collect();
    json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "tools": tools})
}

pub(crate) fn good_result(params: &Value) -> Value {
    let (content, is_error) = match params["name"].as_str().expect("a name") {
        "long" => (
            json!({"type": "text", "text": "ä\"\n".repeat(10_000)}),
            false,
        ),
        "picture" => (
            json!({"type": "image", "mimeType": "image/png", "data": "AAEC"}),
            false,
        ),
        "fails" => (json!({"type": "text", "text": "No such row."}), true),
        _ => (
            json!({"type": "text", "text": params["arguments"].to_string()}),
            false,
        ),
    };
    json!({"resultType": "complete", "content": [content], "isError": is_error})
}

async fn answer(
    request: Request<Incoming>,
    script: &ToolScript,
    log: &Mutex<Vec<SeenRequest>>,
) -> io::Result<Response<Full<Bytes>>> {
    let mut response = Response::new(Full::default());
    if request.method() != Method::POST {
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        return Ok(response);
    }
    let authorization = authorization(request.headers());
    let body = request
        .into_body()
        .collect()
        .await
        .map_err(io::Error::other)?;
    let message: Value = serde_json::from_slice(&body.to_bytes()).expect("JSON");
    let method = message["method"].as_str().unwrap_or_default().to_owned();
    log.lock().push(SeenRequest {
        method: method.clone(),
        authorization: authorization.clone(),
    });
    let Some(id) = message.get("id") else {
        *response.status_mut() = StatusCode::ACCEPTED;
        return Ok(response);
    };

    let json_reply = |result: Value| {
        let reply = json!({"jsonrpc": "2.0", "id": id, "result": result});
        ("application/json", Bytes::from(reply.to_string()))
    };
    let (media, bytes) = match script(&authorization, &method, &message["params"]) {
        Reply::Result(result) => json_reply(result),
        Reply::Discovery => json_reply(json!({
            "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
            "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "tools", "version": "1"}},
        })),
        Reply::Unauthorized(challenge) => {
            *response.status_mut() = StatusCode::UNAUTHORIZED;
            let challenge = HeaderValue::from_bytes(challenge.as_bytes()).expect("a header");
            let headers = response.headers_mut();
            headers.insert(header::WWW_AUTHENTICATE, challenge);
            ("text/plain", Bytes::new())
        }
        Reply::Body(media, bytes) => (media, bytes),
        Reply::Redirect(url) => {
            *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
            let url = HeaderValue::try_from(url).expect("a URL");
            response.headers_mut().insert(header::LOCATION, url);
            ("text/plain", Bytes::new())
        }
        Reply::Never(dropped) => {
            let _guard = NotifyOnDrop(dropped);
            return std::future::pending().await;
        }
    };
    *response.body_mut() = Full::new(bytes);
    let media = HeaderValue::from_static(media);
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    Ok(response)
}

fn authorization(headers: &HeaderMap) -> String {
    let value = headers.get(header::AUTHORIZATION);
    value.map_or_else(String::new, |value| {
        value.to_str().expect("text").to_owned()
    })
}

/// Returns a directory with the skill `notes` and the plugin `kit`, whose server `web` has this
/// declaration.
pub(crate) fn plugin_tree(declaration: &Value) -> Fixture {
    let manifest = json!({"name": "kit", "mcpServers": {"web": declaration}});
    Fixture::new(&format!(
        "file mine/kit/.codex-plugin/plugin.json\n| {manifest}\nskill mine/kit/skills/notes\n"
    ))
}

pub(crate) fn server_options(origins: &[&str]) -> SessionOptions {
    SessionOptions {
        start_timeout: HANG_TIMEOUT,
        mcp_servers: McpServerOptions {
            servers: McpServerChoice::All,
            private_origins: origins.iter().map(|origin| (*origin).to_owned()).collect(),
            ..McpServerOptions::default()
        },
        ..SessionOptions::default()
    }
}

async fn local_sources(fixture: &Fixture, options: &SessionOptions) -> Vec<Arc<dyn SkillSource>> {
    let directories = vec![("mine".to_owned(), fixture.path("mine"))];
    let local = LocalSource::start("here", directories, options).await;
    vec![Arc::new(local.expect("a directory"))]
}

pub(crate) async fn start_session(fixture: &Fixture, options: &SessionOptions) -> Session {
    let fleet = Fleet::from_executors([]);
    let sources = local_sources(fixture, options).await;
    in_time(Session::start_with(&fleet, Vec::new(), sources, options))
        .await
        .expect("a session")
}

pub(crate) fn server_tool_names(session: &Session) -> Vec<String> {
    let tools = session.flat_tools();
    let all = tools.as_array().expect("an array").iter();
    let names = all.map(|tool| {
        let namespace = tool["namespace"].as_str().unwrap_or_default();
        format!("{namespace}.{}", tool["name"].as_str().expect("a name"))
    });
    names.filter(|name| name.contains("mcp__")).collect()
}

#[tokio::test]
async fn tools_of_a_plugins_server_are_tools_of_the_session() {
    let server = ToolServer::start_good().await;
    let declaration =
        json!({"url": format!("{}/mcp", server.origin), "disabled_tools": ["secret"]});
    let fixture = plugin_tree(&declaration);
    let options = server_options(&[&server.origin]);
    let session = start_session(&fixture, &options).await;
    assert_eq!(session.mcp_server_warnings(), Vec::<String>::new());
    let names = server_tool_names(&session);
    let expected = ["echo", "long", "picture", "fails"].map(|name| format!("mcp__kit__web.{name}"));
    assert_eq!(names[..4], expected);
    assert_eq!(names[4..], ["mcp__results.read"]);
    let tools = session.flat_tools();
    let echo = &tools.as_array().expect("an array")[3];
    assert_eq!(echo["description"], r"Does echo.\u{202e}");
    assert_eq!(echo["inputSchema"]["properties"]["text"]["type"], "string");

    let arguments = json!({"text": "hello"});
    let echoed = call(&session, "mcp__kit__web.echo", arguments.clone()).await;
    assert_eq!(echoed["contents"], arguments.to_string());
    assert_eq!(echoed["next_cursor"], Value::Null);
    let echoed = call(&session, "mcp__kit__web_echo", json!({})).await;
    assert_eq!(echoed["contents"], "{}");

    // A long result has pages of at most 8,192 bytes each.
    let mut page = call(&session, "mcp__kit__web.long", json!({})).await;
    let mut text = page["contents"].as_str().expect("a text").to_owned();
    while let Some(cursor) = page["next_cursor"].as_str() {
        page = call(&session, "mcp__results.read", json!({"cursor": cursor})).await;
        text.push_str(page["contents"].as_str().expect("a text"));
    }
    assert_eq!(text, "ä\"\n".repeat(10_000));

    let picture = in_time(session.call("mcp__kit__web.picture", &json!({}))).await;
    let page: Value = serde_json::from_str(&picture.json).expect("JSON");
    assert_eq!(page["media"], json!([{"type": "image/png", "bytes": 3}]));
    assert_eq!(picture.images[0].bytes, [0, 1, 2]);
    let failed = in_time(session.call("mcp__kit__web.fails", &json!({}))).await;
    assert!(!failed.success && failed.external_context);
    assert!(failed.json.contains("No such row."), "{}", failed.json);
    let hidden = in_time(session.call("mcp__kit__web.secret", &json!({}))).await;
    assert!(hidden.json.contains("UNKNOWN_TOOL"), "{}", hidden.json);

    // The session has no server unless the program chooses one, by its name.
    let none = SessionOptions {
        start_timeout: HANG_TIMEOUT,
        ..SessionOptions::default()
    };
    assert!(server_tool_names(&start_session(&fixture, &none).await).is_empty());
    let mut chosen = server_options(&[&server.origin]);
    chosen.tool_names = ToolNames::Flat;
    chosen.mcp_servers.servers =
        McpServerChoice::Named(vec!["kit/web".to_owned(), "kit/other".to_owned()]);
    let session = start_session(&fixture, &chosen).await;
    assert_eq!(server_tool_names(&session)[0], ".mcp__kit__web_echo");
    let warnings = session.mcp_server_warnings();
    assert!(
        warnings[0].contains("kit/other") && warnings.len() == 1,
        "{warnings:?}"
    );
    let fork = session.fork(ForkScope::All).expect("an open session");
    assert_eq!(server_tool_names(&fork), server_tool_names(&session));
    call(&fork, "mcp__kit__web_echo", json!({})).await;
}

#[tokio::test]
async fn a_name_that_fits_several_servers_chooses_none() {
    let server = ToolServer::start_good().await;
    let plugin = |directory: &str, name: &str, servers: &[&str]| {
        let declaration = json!({"url": format!("{}/mcp", server.origin)});
        let servers = servers
            .iter()
            .map(|name| ((*name).to_owned(), declaration.clone()));
        let servers: serde_json::Map<_, _> = servers.collect();
        let manifest = json!({"name": name, "mcpServers": servers});
        format!("file mine/{directory}/.codex-plugin/plugin.json\n| {manifest}\n")
    };
    let tree = plugin("a", "issues", &["web"])
        + &plugin("b", "issues", &["web"])
        + &plugin("c", "kit", &["one", "two #2"])
        + &plugin("d", "issues/web", &["evil"]);
    let fixture = Fixture::new(&tree);
    let choose = |text: &str| {
        let mut options = server_options(&[&server.origin]);
        options.mcp_servers.servers = McpServerChoice::Named(vec![text.to_owned()]);
        options
    };

    for (text, fitting) in [
        (
            "issues/web",
            &["skill://mine/a#web", "skill://mine/b#web"][..],
        ),
        ("kit", &["skill://mine/c#one", "skill://mine/c#two%20%232"]),
        ("skill://mine/d#evil", &["declares the MCP server"]),
    ] {
        let session = start_session(&fixture, &choose(text)).await;
        assert!(session.mcp_servers().is_empty(), "{text}");
        let warnings = session.mcp_server_warnings();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        for part in fitting {
            assert!(warnings[0].contains(part), "{text}: {warnings:?}");
        }
    }
    assert!(server.methods().is_empty());

    for (text, handle) in [
        ("skill://mine/b#web", "skill://mine/b#web"),
        ("kit/two #2", "skill://mine/c#two%20%232"),
        ("skill://mine/c#two%20%232", "skill://mine/c#two%20%232"),
    ] {
        let session = start_session(&fixture, &choose(text)).await;
        let servers = session.mcp_servers();
        let handles: Vec<_> = servers.iter().map(|server| &*server.handle).collect();
        assert_eq!(handles, [handle], "{:?}", session.mcp_server_warnings());
        let plugins = session.plugins();
        let declared = plugins.iter().flat_map(|plugin| &plugin.plugin.mcp_servers);
        assert_eq!(declared.filter(|server| server.handle == handle).count(), 1);
    }
}

#[tokio::test]
async fn hidden_characters_of_a_server_do_not_reach_the_model() {
    let server = ToolServer::start(|method, _| match method {
        "tools/list" => {
            let tool = |name: &str, properties: Value| {
                json!({"name": name, "inputSchema": {"type": "object", "properties": properties}})
            };
            let tools = [
                tool("key", json!({"a\u{202e}": {"type": "string"}})),
                tool("value", json!({"a": {"enum": ["x\u{e0041}"]}})),
                tool("good", json!({"a": {"type": "string", "title": "A\u{200b}"}})),
            ];
            Reply::Result(json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "private",
                "tools": tools}))
        }
        _ => Reply::Result(json!({"resultType": "complete", "isError": false,
            "content": [{"type": "text", "text": "a\u{202e}b"}]})),
    })
    .await;
    let fixture = plugin_tree(&json!({"url": format!("{}/mcp", server.origin)}));
    let session = start_session(&fixture, &server_options(&[&server.origin])).await;
    let names = server_tool_names(&session);
    assert_eq!(names[0], "mcp__kit__web.good");
    let warnings = session.mcp_server_warnings().join("\n");
    assert!(
        warnings.contains("hidden characters")
            && warnings.contains("key")
            && warnings.contains("value"),
        "{warnings}"
    );
    let shown = session.flat_tools().to_string();
    assert!(
        !shown.contains(['\u{202e}', '\u{e0041}', '\u{200b}']),
        "{shown}"
    );
    let result = call(&session, "mcp__kit__web.good", json!({})).await;
    assert_eq!(result["contents"], r"a\u{202e}b");
}

#[tokio::test]
async fn values_come_from_the_program_for_one_origin() {
    let server = ToolServer::start_good().await;
    let declaration = json!({"url": format!("{}/mcp", server.origin), "headers":
        {"Authorization": "Bearer ${KIT_TOKEN}"}});
    let fixture = plugin_tree(&declaration);
    let mut options = server_options(&[&server.origin]);
    let session = start_session(&fixture, &options).await;
    let warnings = session.mcp_server_warnings();
    assert!(warnings[0].contains("KIT_TOKEN"), "{warnings:?}");
    assert!(
        server
            .seen
            .lock()
            .iter()
            .all(|seen| seen.authorization.is_empty())
    );

    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    options.mcp_servers.values = ServerValues::new(move |request| {
        log.lock().push(request);
        std::future::ready(Some("kit-secret".to_owned()))
    });
    server.seen.lock().clear();
    let session = start_session(&fixture, &options).await;
    call(&session, "mcp__kit__web.echo", json!({})).await;
    assert!(
        server
            .seen
            .lock()
            .iter()
            .all(|seen| seen.authorization == "Bearer kit-secret")
    );
    let asked = asked.lock();
    assert_eq!(asked.len(), 1);
    assert_eq!(
        (&*asked[0].source_id, &*asked[0].package),
        ("here", "skill://mine/kit")
    );
    assert_eq!((&*asked[0].plugin, &*asked[0].server), ("kit", "web"));
    assert_eq!(
        (&*asked[0].origin, &*asked[0].name),
        (&*server.origin, "KIT_TOKEN")
    );
    assert!(!format!("{session:?}").contains("kit-secret"));
}

#[tokio::test]
async fn a_hostile_server_is_a_warning_and_the_session_goes_on() {
    let other = ToolServer::start_good().await;
    let elsewhere = format!("{}/mcp", other.origin);
    let many: Vec<_> = (0..2_000).map(|number| format!("t{number}")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    let many = tools(&many);
    for (number, part) in [
        "ontent type",
        "does not answer within 1s",
        "6291456",
        "307",
        "over 1000 tools",
    ]
    .into_iter()
    .enumerate()
    {
        let elsewhere = elsewhere.clone();
        let many = many.clone();
        let server = ToolServer::start(move |_, _| match number {
            0 => Reply::Body("text/html", Bytes::from_static(b"<html>Sign in</html>")),
            1 => Reply::Never(Arc::default()),
            2 => Reply::Body("application/json", Bytes::from(vec![b' '; 100 << 20])),
            3 => Reply::Redirect(elsewhere.clone()),
            _ => Reply::Result(many.clone()),
        })
        .await;
        let startup_timeout = if number == 1 { 1 } else { 60 };
        let declaration = json!({"url": format!("{}/mcp", server.origin),
            "startup_timeout_sec": startup_timeout});
        let fixture = plugin_tree(&declaration);
        let session =
            start_session(&fixture, &server_options(&[&server.origin, &other.origin])).await;
        let warnings = session.mcp_server_warnings().join("\n");
        assert!(warnings.contains(part), "{part}: {warnings}");
        assert!(warnings.len() < 2_000, "{warnings}");
        assert!(
            session
                .instruction_text(8_000)
                .warnings
                .join("\n")
                .contains(part)
        );
        let expected = if number == 4 { 65 } else { 0 };
        assert_eq!(server_tool_names(&session).len(), expected, "{part}");
        assert_eq!(
            list_all(&session).await.0,
            ["skill://mine/kit/skills/notes"]
        );
    }
    assert!(other.methods().is_empty(), "{:?}", other.methods());
}

#[tokio::test]
async fn a_hostile_result_is_an_error_and_the_session_goes_on() {
    let server = ToolServer::start(|method, params| match method {
        "tools/list" => Reply::Result(tools(&["html", "never", "large", "input", "echo"])),
        _ => match params["name"].as_str().expect("a name") {
            "html" => Reply::Body("text/html", Bytes::from_static(b"<html>Sign in</html>")),
            "never" => Reply::Never(Arc::default()),
            "large" => Reply::Body("application/json", Bytes::from(vec![b' '; 100 << 20])),
            "input" => Reply::Result(json!({"resultType": "input_required", "inputRequests": {},
                "requestState": "x"})),
            _ => Reply::Result(good_result(params)),
        },
    })
    .await;
    let declaration = json!({"url": format!("{}/mcp", server.origin), "tool_timeout_sec": 1});
    let fixture = plugin_tree(&declaration);
    let session = start_session(&fixture, &server_options(&[&server.origin])).await;
    for (tool, part) in [
        ("html", "TOOL_FAILED"),
        ("never", "TOOL_TIMED_OUT"),
        ("large", "TOOL_FAILED"),
        ("input", "TOOL_FAILED"),
    ] {
        let result = in_time(session.call(&format!("mcp__kit__web.{tool}"), &json!({}))).await;
        assert!(
            !result.success && result.json.contains(part),
            "{}",
            result.json
        );
        assert!(!result.json.contains("rmcp"), "{}", result.json);
        let echoed = call(&session, "mcp__kit__web.echo", json!({})).await;
        assert_eq!(echoed["contents"], "{}");
    }
}

#[tokio::test]
async fn a_dropped_call_is_cancelled_at_the_server() {
    let started = Arc::new(Notify::new());
    let ended = Arc::new(Notify::new());
    let starting = started.clone();
    let ending = ended.clone();
    let server = ToolServer::start(move |method, _| {
        if method == "tools/list" {
            return Reply::Result(tools(&["wait"]));
        }
        starting.notify_one();
        Reply::Never(ending.clone())
    })
    .await;
    let fixture = plugin_tree(&json!({"url": format!("{}/mcp", server.origin)}));
    let session = Arc::new(start_session(&fixture, &server_options(&[&server.origin])).await);
    let calling = session.clone();
    let task = tokio::spawn(async move { calling.call("mcp__kit__web.wait", &json!({})).await });
    in_time(started.notified()).await;
    task.abort();
    in_time(ended.notified()).await;
}

#[tokio::test]
async fn only_allowed_addresses_are_connected_to() {
    let server = ToolServer::start_good().await;
    let port = server.origin.rsplit(':').next().expect("a port").to_owned();
    for (url, part) in [
        (format!("{}/mcp", server.origin), "must use https"),
        (
            server.origin.replace("http:", "https:"),
            "not a globally routable",
        ),
        (format!("https://localhost:{port}/mcp"), "is refused"),
        (format!("https://user@localhost:{port}/mcp"), "withheld"),
        ("https://a.example/${TENANT}".to_owned(), "placeholder"),
    ] {
        let fixture = plugin_tree(&json!({"url": url, "startup_timeout_sec": 5}));
        let session = start_session(&fixture, &server_options(&[])).await;
        let warnings = session.mcp_server_warnings().join("\n");
        assert!(warnings.contains(part), "{url}: {warnings}");
        let status = &session.mcp_servers()[0];
        assert!(
            status.error.is_some() && status.tools.is_empty(),
            "{status:?}"
        );
    }
    assert!(server.methods().is_empty());
    let fleet = Fleet::from_executors([]);
    let options = server_options(&["localhost"]);
    let error = Session::start(&fleet, Vec::new(), &options).await;
    let error = error.expect_err("no origin").to_string();
    assert!(error.contains("is not an origin"), "{error}");
}

#[tokio::test]
async fn a_changed_url_ends_the_server_and_a_saved_session_tells_of_changes() {
    let server = ToolServer::start_good().await;
    let other = ToolServer::start_good().await;
    let fixture = plugin_tree(&json!({"url": format!("{}/mcp", server.origin)}));
    let options = server_options(&[&server.origin, &other.origin]);
    let session = start_session(&fixture, &options).await;
    call(&session, "mcp__kit__web.echo", json!({})).await;
    let saved = session.save().expect("a session");
    assert!(
        !saved.contains("echo") && !saved.contains(&server.origin),
        "{saved}"
    );

    let mut changes = session.watch_plugins();
    let url = format!("{}/mcp", other.origin);
    let manifest = json!({"name": "kit", "mcpServers": {"web": {"url": url}}});
    let file = fixture.path("mine/kit/.codex-plugin/plugin.json");
    std::fs::write(file, manifest.to_string()).expect("a file");
    in_time(changes.next()).await;

    let calls = server.methods().len();
    let ended = in_time(session.call("mcp__kit__web.echo", &json!({}))).await;
    assert!(
        ended.json.contains("declared URL changed"),
        "{}",
        ended.json
    );
    assert_eq!(server.methods().len(), calls);
    assert!(other.methods().is_empty());
    let warnings = session.mcp_server_warnings();
    assert!(warnings[0].contains("declared URL changed"), "{warnings:?}");

    let fleet = Fleet::from_executors([]);
    let sources = local_sources(&fixture, &options).await;
    let restored = Session::restore_with(&fleet, &saved, sources, &options)
        .await
        .expect("a saved session");
    let warnings = restored.warnings.join("\n");
    assert!(warnings.contains("another URL"), "{warnings}");
    call(&restored.session, "mcp__kit__web.echo", json!({})).await;
    assert!(other.methods().contains(&"tools/call".to_owned()));
}

#[tokio::test]
async fn a_program_has_the_servers_and_gives_their_values() {
    let server = ToolServer::start_good().await;
    let declaration = json!({"url": format!("{}/mcp", server.origin), "headers":
        {"Authorization": "Bearer ${KIT_TOKEN}"}});
    let fixture = plugin_tree(&declaration);
    let mut process = CallProcess::start(caproot(["call", "--no-session"]));

    let local = json!({"id": "local", "directories": {"mine": fixture.path("mine")}});
    let sources = json!({"key": "s", "local": [local], "ask_values": true,
        "private_origins": [server.origin]});
    process
        .send(&json!({"id": 1, "method": "start", "plugin_servers": ["kit"], "sources": sources}));
    let asked = process.next().await;
    assert_eq!(asked["event"], "serverValue", "{asked}");
    assert_eq!(
        (&asked["key"], &asked["origin"], &asked["name"]),
        (&json!("s"), &json!(server.origin), &json!("KIT_TOKEN"))
    );
    process.send(
        &json!({"id": 2, "method": "tool_result", "call": asked["call"], "result": "kit-secret"}),
    );
    let mut lines = [process.next().await, process.next().await];
    lines.sort_by_key(|line| line["id"].as_u64());
    let warnings = lines[0]["result"]["warnings"].as_array().expect("a list");
    assert_eq!(warnings.len(), 0, "no failed server: {}", lines[0]);
    let session = lines[0]["result"]["session"].clone();

    let answer = process
        .request(
            json!({"method": "call", "session": session, "tool": "mcp__kit__web_picture",
            "arguments": {}}),
        )
        .await;
    assert_eq!(answer["success"], true, "{answer}");
    assert_eq!(
        answer["images"],
        json!([{"mimeType": "image/png", "data": "AAEC"}])
    );
    let answer = process
        .request(json!({"method": "plugin_servers", "session": session}))
        .await;
    assert_eq!(
        answer["result"][0]["tools"][0], "mcp__kit__web_echo",
        "{answer}"
    );
    let seen = server.seen.lock();
    assert!(
        seen.iter()
            .all(|seen| seen.authorization == "Bearer kit-secret")
    );
}
