//! Hostile JSON of servers: small on the wire, large as a tree. The memory of the real program stays bounded
//! with four hostile servers at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use serde_json::{Value, json};

use super::call_command::CallProcess;
use super::response_memory::MAX_PROCESS_KIB;
use crate::harness::fixture::Fixture;
use crate::harness::poll_until;
use crate::harness::process::caproot;
use crate::harness::process_usage::most_anonymous;
use crate::harness::test_servers::{HttpServer, free_port, start_http};

/// Number of hostile servers of a session.
const SERVERS: usize = 4;

/// Elements of a list that a hostile server sends.
struct Bomb {
    title: &'static str,
    elements: String,
}

fn bombs() -> Vec<Bomb> {
    let objects = |bytes: usize| "{\"\":0},".repeat(bytes / 7) + "0";
    let skill = |name: &str, more: &str| {
        format!(
            r#"{{"name": "{name}", "uri": "skill://{name}/SKILL.md", "resources": [],
            "frontmatter": {{"name": "{name}", "description": "d", "x": [{more}]}}}}"#
        )
    };
    let long = format!("\"{}\"", "x".repeat(5_500_000));
    let shorter = format!("\"{}\"", "\\\"".repeat(1_900_000));
    let many: Vec<_> = (0..200)
        .map(|n| skill(&format!("a{n}"), &objects(18_000)))
        .collect();
    vec![
        Bomb {
            title: "15 MiB of objects",
            elements: objects(15 << 20),
        },
        Bomb {
            title: "6 MB of objects",
            elements: objects(6_000_000),
        },
        Bomb {
            title: "4 MB of objects",
            elements: objects(4_000_000),
        },
        Bomb {
            title: "objects within the budget",
            elements: objects(110_000),
        },
        Bomb {
            title: "4 MB of entries of objects",
            elements: many.join(","),
        },
        Bomb {
            title: "a long text, and a malformed entry",
            elements: skill("a", &long) + ",null",
        },
        Bomb {
            title: "a text of escapes, and a malformed entry",
            elements: skill("a", &shorter) + ",null",
        },
    ]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerKind {
    Mcp,
    Stdio,
    Plugin,
    Site,
}

/// Starts an MCP server and site whose lists are a bomb. With `at_start`, so is its first response.
async fn start_bomber(result: Bytes, at_start: bool, requests: Arc<AtomicUsize>) -> HttpServer {
    let answer = move |request: Request<Incoming>| {
        let result = result.clone();
        let requests = requests.clone();
        async move {
            requests.fetch_add(1, Ordering::Relaxed);
            Ok(respond(request, &result, at_start).await)
        }
    };
    start_http(&free_port(), answer).await
}

async fn respond(
    request: Request<Incoming>,
    result: &Bytes,
    at_start: bool,
) -> Response<Full<Bytes>> {
    let is_site = request.method() == Method::GET && request.uri().path().ends_with("/index.json");
    let body = request.into_body().collect().await.expect("a body");
    let message: Value = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
    let mut response = Response::new(Full::default());
    let Some(id) = message.get("id").filter(|_| !is_site) else {
        if is_site {
            *response.body_mut() = Full::new(result.clone());
        } else {
            *response.status_mut() = StatusCode::ACCEPTED;
        }
        return response;
    };

    let discovered = json!({
        "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}, "resources": {},
            "extensions": {"io.modelcontextprotocol/skills": {}}},
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "mock", "version": "1"}},
    })
    .to_string();
    let is_discovery = message["method"] == "server/discover" && !at_start;
    let result = if is_discovery {
        discovered.as_bytes()
    } else {
        result
    };
    let head = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":");
    let reply = [head.as_bytes(), result, b"}"].concat();
    *response.body_mut() = Full::new(reply.into());
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// Starts a session with servers of a kind at these addresses.
async fn start_session(kind: ServerKind, fixture: &Fixture, addresses: &[&str]) -> CallProcess {
    let servers = addresses.iter().enumerate();
    let sources = match kind {
        ServerKind::Mcp => {
            let servers = servers.map(|(n, address)| {
                json!({"name": format!("s{n}"), "server": {"url": format!("http://{address}/mcp")}})
            });
            json!({"key": "s", "mcp_servers": servers.collect::<Vec<_>>()})
        }
        ServerKind::Stdio => {
            let script = "read -r line; exec cat \"$0\"";
            let file = fixture.path("line");
            let servers = servers.map(|(n, _)| {
                json!({"name": format!("s{n}"),
                    "server": {"command": "/bin/sh", "args": ["-c", script, file]}})
            });
            json!({"key": "s", "mcp_servers": servers.collect::<Vec<_>>()})
        }
        ServerKind::Plugin => {
            let declared = servers.map(|(n, address)| {
                (
                    format!("s{n}"),
                    json!({"url": format!("http://{address}/mcp")}),
                )
            });
            let declared: serde_json::Map<_, _> = declared.collect();
            let manifest = json!({"name": "kit", "mcpServers": declared});
            fixture.write("mine/kit/.codex-plugin/plugin.json", manifest.to_string());
            let origins = addresses.iter().map(|address| format!("http://{address}"));
            let local = json!({"id": "local", "directories": {"mine": fixture.path("mine")}});
            json!({"key": "s", "local": [local],
                "private_origins": origins.collect::<Vec<_>>()})
        }
        ServerKind::Site => {
            let sites = addresses
                .iter()
                .map(|address| json!({"host": format!("http://{address}"), "allow_private": true}));
            json!({"key": "s", "sites": sites.collect::<Vec<_>>()})
        }
    };
    let mut process = CallProcess::start(caproot(["call", "--no-session"]));
    let mut request = json!({"method": "start", "start_timeout": "60s", "sources": sources});
    if kind == ServerKind::Plugin {
        request["plugin_servers"] = json!(["all"]);
    }
    let started = process.request(request).await;
    assert!(started["result"]["session"].is_string(), "{started}");
    process
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_with_hostile_servers_stays_small() {
    let mut over = Vec::new();
    for bomb in bombs() {
        for kind in [
            ServerKind::Mcp,
            ServerKind::Stdio,
            ServerKind::Plugin,
            ServerKind::Site,
        ] {
            let field = if kind == ServerKind::Plugin {
                "tools"
            } else {
                "skills"
            };
            let elements = &bomb.elements;
            let result = format!(
                r#"{{"resultType":"complete","ttlMs":0,"cacheScope":"private","{field}":[{elements}]}}"#
            );
            let fixture = Fixture::new("dir mine");
            let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{result}}}\n");
            fixture.write("line", line.replace('\n', " ") + "\n");

            let result = Bytes::from(result);
            let requests = Arc::new(AtomicUsize::new(0));
            let mut servers = Vec::new();
            for _ in 0..SERVERS {
                servers.push(start_bomber(result.clone(), false, requests.clone()).await);
            }
            let addresses: Vec<_> = servers.iter().map(|server| &*server.address).collect();
            let process = start_session(kind, &fixture, &addresses).await;
            let sent = requests.load(Ordering::Relaxed);
            assert!(sent >= SERVERS || kind == ServerKind::Stdio, "{kind:?}");
            let peak = most_anonymous(process.pid());
            println!("{} of {SERVERS} {kind:?} servers: {peak} KiB", bomb.title);
            if peak > MAX_PROCESS_KIB {
                over.push(format!("{} of {kind:?}: {peak} KiB", bomb.title));
            }
        }
    }
    assert!(over.is_empty(), "{over:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_reconnect_to_a_hostile_server_stays_small() {
    for bomb in bombs() {
        let elements = &bomb.elements;
        let result = Bytes::from(format!(r#"{{"skills":[{elements}]}}"#));
        let requests = Arc::new(AtomicUsize::new(0));
        let fixture = Fixture::new("");
        let mut servers = Vec::new();
        for _ in 0..SERVERS {
            servers.push(start_bomber(result.clone(), true, requests.clone()).await);
        }
        let addresses: Vec<_> = servers.iter().map(|server| &*server.address).collect();
        let process = start_session(ServerKind::Mcp, &fixture, &addresses).await;
        poll_until("the servers are tried again", || {
            requests.load(Ordering::Relaxed) > 3 * SERVERS
        })
        .await;
        let peak = most_anonymous(process.pid());
        println!("reconnects, {}: {peak} KiB", bomb.title);
        assert!(peak <= MAX_PROCESS_KIB, "{}: {peak} KiB", bomb.title);
    }
}
