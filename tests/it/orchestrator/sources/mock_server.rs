//! Mock server of Skills over MCP with scripted responses: one JSON result for each request, or
//! none.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Mock server that runs until it is dropped.
pub(super) struct MockServer {
    pub(super) url: String,
    /// Number of file requests.
    pub(super) reads: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for MockServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns `sha256:` and the hash.
pub(super) fn digest(text: &str) -> String {
    let hash = Sha256::digest(text.as_bytes());
    hash.iter().fold("sha256:".to_owned(), |digest, byte| format!("{digest}{byte:02x}"))
}

/// Returns the SKILL.md of a served skill.
pub(super) fn skill_text(name: &str) -> String {
    format!("---\nname: {name}\ndescription: Does {name}.\n---\nServed {name}.\n")
}

/// Returns the entry of a file in `resources`.
pub(super) fn file(uri: &str, text: &str) -> Value {
    json!({"uri": uri, "digest": digest(text), "size": text.len()})
}

/// Returns an entry of `skills/list` with additional files.
pub(super) fn entry(name: &str, files: &[(&str, &str)]) -> Value {
    let uri = format!("skill://{name}/SKILL.md");
    let others = files.iter().map(|(path, text)| file(&format!("skill://{name}/{path}"), text));
    let resources: Vec<_> = std::iter::once(file(&uri, &skill_text(name))).chain(others).collect();
    let frontmatter = json!({"name": name, "description": format!("Does {name}.")});
    json!({"uri": uri, "frontmatter": frontmatter, "resources": resources})
}

/// Returns a result of `skills/list`.
pub(super) fn page(skills: &[Value], next: Option<&str>) -> Value {
    let mut page =
        json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "skills": skills});
    if let Some(next) = next {
        page["nextCursor"] = json!(next);
    }
    page
}

/// Returns a result of `resources/read`.
pub(super) fn contents(uri: &str, text: &str) -> Value {
    let contents = json!([{"uri": uri, "mimeType": "text/markdown", "text": text}]);
    json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "contents": contents})
}

/// Starts a server that lists and serves these skills and files.
pub(super) async fn start_with_skills(skills: &[(&str, &[(&str, &str)])]) -> MockServer {
    let entries: Vec<Value> = skills.iter().map(|(name, files)| entry(name, files)).collect();
    let mut texts = std::collections::HashMap::new();
    for (name, files) in skills {
        texts.insert(format!("skill://{name}/SKILL.md"), skill_text(name));
        for (path, text) in *files {
            texts.insert(format!("skill://{name}/{path}"), (*text).to_owned());
        }
    }
    start(move |method, params| {
        if method == "skills/list" {
            return Some(page(&entries, None));
        }
        let uri = params["uri"].as_str()?;
        Some(contents(uri, texts.get(uri)?))
    })
    .await
}

/// Starts a server with these answers to `skills/list` and `resources/read`.
pub(super) async fn start(
    handler: impl FnMut(&str, &Value) -> Option<Value> + Send + 'static,
) -> MockServer {
    start_at("127.0.0.1:0", handler).await
}

/// Starts a server at an address, with these answers.
pub(super) async fn start_at(
    address: &str,
    handler: impl FnMut(&str, &Value) -> Option<Value> + Send + 'static,
) -> MockServer {
    let listener = TcpListener::bind(address).await.expect("a free port");
    let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
    let reads = Arc::new(AtomicUsize::new(0));
    let (read_counter, handler) = (reads.clone(), Arc::new(Mutex::new(handler)));
    let task = tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            let (read_counter, handler) = (read_counter.clone(), handler.clone());
            let service = service_fn(move |request: Request<Incoming>| {
                let (read_counter, handler) = (read_counter.clone(), handler.clone());
                async move { Ok::<_, Infallible>(answer(request, &read_counter, &*handler).await) }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    MockServer { url, reads, task }
}

async fn answer(
    request: Request<Incoming>,
    reads: &AtomicUsize,
    handler: &Mutex<impl FnMut(&str, &Value) -> Option<Value> + Send>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    if request.method() != Method::POST {
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        return response;
    }
    let body = request.into_body().collect().await.expect("a body").to_bytes();
    let message: Value = serde_json::from_slice(&body).expect("JSON");
    let Some(id) = message.get("id") else {
        *response.status_mut() = StatusCode::ACCEPTED;
        return response;
    };
    let method = message["method"].as_str().expect("a method").to_owned();
    let result = match method.as_str() {
        "server/discover" => Some(json!({
            "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"resources": {}, "extensions": {"io.modelcontextprotocol/skills": {}}},
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "mock", "version": "1"}},
        })),
        method => {
            if method == "resources/read" {
                reads.fetch_add(1, Ordering::SeqCst);
            }
            handler.lock().expect("no panic")(method, &message["params"])
        }
    };
    let Some(result) = result else { return std::future::pending().await };
    let reply = json!({"jsonrpc": "2.0", "id": id, "result": result});
    *response.body_mut() = Full::new(Bytes::from(reply.to_string()));
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    response
}
