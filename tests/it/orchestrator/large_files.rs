//! Files of 16 MiB of MCP servers and sites: read and pulled whole, one at a time, in bounded memory. A server
//! sends no large message that was not asked for.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::join_all;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use serde_json::{Value, json};

use super::call_command::CallProcess;
use crate::harness::content_digest;
use crate::harness::fixture::Fixture;
use crate::harness::process::{caproot, run_command};
use crate::harness::process_usage::most_anonymous;
use crate::harness::test_servers::{HttpServer, free_port, start_http};

/// Bytes of the large files.
const LARGE: usize = (16 << 20) - 200;
/// Memory of a process that reads one of them at a time, and has the last one.
const MAX_PROCESS_KIB: u64 = 96 << 10;

const MAIN: &str = "SKILL.md";
/// Name of a large file that is no text.
const BINARY: &str = "data.bin";

/// Skill of a server: its files by name.
type Files = BTreeMap<&'static str, Vec<u8>>;

/// Returns the files of a skill with a large file, which can be the SKILL.md.
fn skill_files(name: &str, large: &'static str, letter: char) -> Files {
    let main = format!("---\nname: {name}\ndescription: Does {name}.\n---\n");
    let line = format!("{}\n", letter.to_string().repeat(99));
    let mut text = line.repeat(LARGE / 100).into_bytes();
    if large == BINARY {
        text[7] = 0xff;
    }
    if large == MAIN {
        return Files::from([(MAIN, [main.into_bytes(), text].concat())]);
    }
    Files::from([(MAIN, main.into_bytes()), (large, text)])
}

/// Starts an MCP server and site with one skill.
async fn start_server(name: &'static str, files: Files) -> HttpServer {
    let files = Arc::new(files);
    let answer = move |request: Request<Incoming>| {
        let files = files.clone();
        async move { Ok(respond(request, name, &files).await) }
    };
    start_http(&free_port(), answer).await
}

async fn respond(request: Request<Incoming>, name: &str, files: &Files) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let mut response = Response::new(Full::default());
    if head.method == Method::GET {
        let path = head.uri.path().strip_prefix("/.well-known/agent-skills/");
        let file = path.and_then(|path| path.strip_prefix(name)?.strip_prefix('/'));
        if path == Some("index.json") {
            *response.body_mut() = Full::new(site_index(name, files).into());
        } else if let Some(content) = file.and_then(|file| files.get(file)) {
            *response.body_mut() = Full::new(content.clone().into());
        } else {
            *response.status_mut() = StatusCode::NOT_FOUND;
        }
        return response;
    }

    let body = body.collect().await.expect("a body").to_bytes();
    let message: Value = serde_json::from_slice(&body).expect("a message");
    let Some(id) = message.get("id") else {
        *response.status_mut() = StatusCode::ACCEPTED;
        return response;
    };
    let answer = match message["method"].as_str() {
        Some("server/discover") => json!({
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"resources": {}, "extensions": {"io.modelcontextprotocol/skills": {}}},
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "mock", "version": "1"}},
        }),
        Some("skills/list") => json!({"skills": [listed_skill(name, files)]}),
        Some("skills/get") => json!({"skill": listed_skill(name, files)}),
        Some("resources/read") => read_resource(name, files, &message["params"]["uri"]),
        method => panic!("{method:?}"),
    };
    let mut result = json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "private"});
    let fields = result.as_object_mut().expect("an object");
    fields.extend(answer.as_object().expect("an object").clone());
    let reply = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
    *response.body_mut() = Full::new(reply.into());
    let json = "application/json".parse().expect("a header");
    response.headers_mut().insert("content-type", json);
    response
}

fn listed_skill(name: &str, files: &Files) -> Value {
    let resources = files.iter().map(|(file, content)| {
        json!({"uri": format!("skill://{name}/{file}"), "digest": content_digest(content), "size": content.len()})
    });
    json!({"name": name, "uri": format!("skill://{name}/SKILL.md"),
        "resources": resources.collect::<Vec<_>>(),
        "frontmatter": {"name": name, "description": format!("Does {name}.")}})
}

fn read_resource(name: &str, files: &Files, uri: &Value) -> Value {
    let uri = uri.as_str().expect("a URI");
    let file = uri
        .strip_prefix(&format!("skill://{name}/"))
        .expect("a file");
    let content = &files[file];
    let contents = match String::from_utf8(content.clone()) {
        Ok(text) if file != BINARY => json!({"uri": uri, "text": text}),
        _ => json!({"uri": uri, "blob": STANDARD.encode(content)}),
    };
    json!({"contents": [contents]})
}

/// Returns the index of a site. A skill of a site is one file.
fn site_index(name: &str, files: &Files) -> String {
    let digest = content_digest(&files[MAIN]);
    json!({"skills": [{"name": name, "type": "skill-md", "description": format!("Does {name}."),
        "url": format!("{name}/SKILL.md"), "digest": digest}]})
    .to_string()
}

/// Starts a session with three MCP servers and a site, which have a large text each.
async fn start_session(servers: &[HttpServer]) -> (CallProcess, Value) {
    let [a, b, c, site] = servers else {
        panic!("four servers")
    };
    let configs = [a, b, c].into_iter().enumerate().map(|(n, server)| {
        json!({"name": format!("s{n}"), "server": {"url": format!("http://{}/mcp", server.address)}})
    });
    let site = json!({"host": format!("http://{}", site.address), "allow_private": true});
    let sources = json!({"key": "s", "mcp_servers": configs.collect::<Vec<_>>(), "sites": [site]});
    let mut process = CallProcess::start(caproot(["call", "--no-session"]));
    let request = json!({"method": "start", "start_timeout": "60s", "sources": sources});
    let started = process.request(request).await;
    let session = started["result"]["session"].clone();
    assert!(session.is_string(), "{started}");
    (process, session)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_texts_are_read_one_at_a_time() {
    let names = ["aa", "bb", "cc", "dd"];
    let starts = names.map(|name| {
        let letter = name.chars().next().expect("a letter");
        let large = if name == "dd" { MAIN } else { "big.md" };
        start_server(name, skill_files(name, large, letter))
    });
    let servers = join_all(starts).await;
    let (mut process, session) = start_session(&servers).await;

    let listed = process
        .request(json!({"method": "list", "session": session}))
        .await;
    let mut requests = BTreeMap::new();
    for skill in listed["result"].as_array().expect("the skills") {
        let package = skill["package"].as_str().expect("a package");
        let large = if skill["name"] == "dd" {
            MAIN
        } else {
            "big.md"
        };
        let arguments = json!({"authority": skill["authority"], "package": package,
            "resource": format!("{package}/{large}")});
        let request = json!({"id": skill["name"], "method": "call", "session": session,
            "tool": "skills_read", "arguments": arguments});
        process.send(&request);
        requests.insert(skill["name"].to_string(), request);
    }
    assert_eq!(requests.len(), names.len());

    while !requests.is_empty() {
        let answer = process.next().await;
        if answer["result"]["error"]["code"] == "SOURCE_UNAVAILABLE" {
            // The machine is busy, and the turn came after the time limit of a read.
            process.send(&requests[&answer["id"].to_string()]);
            continue;
        }
        let contents = answer["result"]["contents"].as_str();
        let contents = contents.unwrap_or_else(|| panic!("{answer}"));
        let name = answer["id"].as_str().expect("an id");
        assert!(contents.contains(&name[..1].repeat(99)), "{answer}");
        assert!(!answer["result"]["next_cursor"].is_null(), "{answer}");
        requests.remove(&answer["id"].to_string());
    }
    let peak = most_anonymous(process.pid());
    println!("four texts of 16 MiB by four servers: {peak} KiB");
    assert!(peak <= MAX_PROCESS_KIB, "{peak} KiB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_skill_is_pulled_from_a_server_and_a_site() {
    let fixture = Fixture::new("");
    for (flag, large) in [("--mcp-servers", BINARY), ("--private-site", MAIN)] {
        let files = skill_files("big", large, 'x');
        let server = start_server("big", files.clone()).await;
        let site = format!("http://{}", server.address);
        let config = json!({"mcpServers": {"s": {"url": format!("{site}/mcp")}}});
        fixture.write("servers.json", config.to_string());
        let servers = fixture.path("servers.json").display().to_string();

        let into = fixture.path(&format!("out{flag}"));
        let mut command = caproot(["pull", "big", flag]);
        let value = if large == MAIN { &site } else { &servers };
        command.arg(value).arg("--into").arg(&into);
        run_command(command).await.succeeded();
        for (name, content) in &files {
            let pulled = fs::read(into.join(name)).expect(name);
            assert!(pulled == *content, "{flag}: {name} differs");
        }
    }
}
