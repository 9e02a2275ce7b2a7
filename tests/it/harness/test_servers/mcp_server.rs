//! Mock server of Skills over MCP with scripted responses: one JSON result for each request, or
//! none.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use serde_json::{Value, json};

use super::{HttpServer, free_port, start_http};
use crate::harness::content_digest;

/// Declarations of a mock server, and its check of the header `authorization`.
pub(crate) struct MockOptions {
    pub(crate) capabilities: Value,
    pub(crate) is_authorized: Box<dyn Fn(&str) -> bool + Send + Sync>,
    /// Header `www-authenticate` of a response with 401.
    pub(crate) challenge: Option<&'static str>,
}

impl Default for MockOptions {
    fn default() -> Self {
        let extensions = json!({"io.modelcontextprotocol/skills": {}});
        Self {
            capabilities: json!({"resources": {}, "extensions": extensions}),
            is_authorized: Box::new(|_| true),
            challenge: None,
        }
    }
}

impl MockOptions {
    /// Returns the options of a server that does not declare the skills extension.
    pub(crate) fn without_extension() -> Self {
        Self {
            capabilities: json!({"resources": {}}),
            ..Self::default()
        }
    }
}

/// Mock server that runs until it is dropped.
pub(crate) struct MockServer {
    pub(crate) url: String,
    /// Number of file requests.
    pub(crate) reads: Arc<AtomicUsize>,
    _server: HttpServer,
}

/// Returns the SKILL.md of a served skill.
pub(crate) fn skill_text(name: &str) -> String {
    format!("---\nname: {name}\ndescription: Does {name}.\n---\nServed {name}.\n")
}

/// Returns the entry of a file in `resources`.
pub(crate) fn file(uri: &str, text: &str) -> Value {
    json!({"uri": uri, "digest": content_digest(text.as_bytes()), "size": text.len()})
}

/// Returns an entry of `skills/list` with additional files.
pub(crate) fn entry(name: &str, files: &[(&str, &str)]) -> Value {
    let uri = format!("skill://{name}/SKILL.md");
    let others = files
        .iter()
        .map(|(path, text)| file(&format!("skill://{name}/{path}"), text));
    let resources: Vec<_> = std::iter::once(file(&uri, &skill_text(name)))
        .chain(others)
        .collect();
    let frontmatter = json!({"name": name, "description": format!("Does {name}.")});
    json!({"uri": uri, "frontmatter": frontmatter, "resources": resources})
}

/// Returns a result of `skills/list`.
pub(crate) fn page(skills: &[Value], next: Option<&str>) -> Value {
    let mut page =
        json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "skills": skills});
    if let Some(next) = next {
        page["nextCursor"] = json!(next);
    }
    page
}

/// Returns a result of `skills/get`.
pub(crate) fn one(skill: &Value) -> Value {
    json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "skill": skill})
}

/// Returns a result of `resources/list` or `resources/directory/read`.
pub(crate) fn resources(resources: &[Value]) -> Value {
    json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "resources": resources})
}

/// Returns a result of `resources/read`.
pub(crate) fn contents(uri: &str, text: &str) -> Value {
    let contents = json!([{"uri": uri, "mimeType": "text/markdown", "text": text}]);
    json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "contents": contents})
}

/// Returns the answer to a request for a resource that does not exist.
pub(crate) fn not_found() -> Value {
    json!({"jsonrpcError": {"code": -32602, "message": "Resource not found"}})
}

/// Starts a server that lists and serves these skills and files.
pub(crate) async fn start_with_skills(skills: &[(&str, &[(&str, &str)])]) -> MockServer {
    let entries: Vec<Value> = skills
        .iter()
        .map(|(name, files)| entry(name, files))
        .collect();
    let mut texts = HashMap::new();
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
        if method == "skills/get" {
            let listed = entries.iter().find(|entry| entry["uri"] == uri);
            return Some(listed.map_or_else(not_found, one));
        }
        Some(contents(uri, texts.get(uri)?))
    })
    .await
}

/// Starts a server with these answers to `skills/list` and `resources/read`.
pub(crate) async fn start(
    handler: impl FnMut(&str, &Value) -> Option<Value> + Send + 'static,
) -> MockServer {
    start_with(&free_port(), MockOptions::default(), handler).await
}

/// Starts a server at an address, with these options and answers.
pub(crate) async fn start_with(
    address: &str,
    options: MockOptions,
    handler: impl FnMut(&str, &Value) -> Option<Value> + Send + 'static,
) -> MockServer {
    let reads = Arc::new(AtomicUsize::new(0));
    let state = Arc::new((options, reads.clone(), Mutex::new(handler)));
    let answer = move |request| {
        let state = state.clone();
        async move { Ok(answer(request, &state.0, &state.1, &state.2).await) }
    };
    let server = start_http(address, answer).await;
    MockServer {
        url: format!("http://{}/mcp", server.address),
        reads,
        _server: server,
    }
}

async fn answer(
    request: Request<Incoming>,
    options: &MockOptions,
    reads: &AtomicUsize,
    handler: &Mutex<impl FnMut(&str, &Value) -> Option<Value> + Send>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    if request.method() != Method::POST {
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        return response;
    }
    let authorization = request.headers().get(header::AUTHORIZATION);
    let authorization = authorization.map_or("", |value| value.to_str().expect("text"));
    if !(options.is_authorized)(authorization) {
        *response.status_mut() = StatusCode::UNAUTHORIZED;
        if let Some(challenge) = options.challenge {
            let challenge = HeaderValue::from_static(challenge);
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, challenge);
        }
        return response;
    }
    let body = request
        .into_body()
        .collect()
        .await
        .expect("a body")
        .to_bytes();
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
            "capabilities": options.capabilities,
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "mock", "version": "1"}},
        })),
        method => {
            if method == "resources/read" {
                reads.fetch_add(1, Ordering::SeqCst);
            }
            handler.lock().expect("no panic")(method, &message["params"])
        }
    };
    let Some(result) = result else {
        return std::future::pending().await;
    };
    let reply = match result.get("jsonrpcError") {
        Some(error) => json!({"jsonrpc": "2.0", "id": id, "error": error}),
        None => json!({"jsonrpc": "2.0", "id": id, "result": result}),
    };
    *response.body_mut() = Full::new(Bytes::from(reply.to_string()));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
