//! Sites with an index of skills, also hostile ones: responses are bounded and verified, and only
//! allowed addresses are connected to.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use caproot_session::SkillSource;
use caproot_session::sources::site::{SiteConfig, SiteSource, limits};
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_stream::StreamExt as _;

use super::super::session::{call, list_all, read_all};
use super::{arguments, mcp_source, read_error, start_session};
use crate::harness::fixture::Fixture;
use crate::harness::process::{Process, caproot, run_command};
use crate::harness::test_servers::mcp_server::{skill_text, start_with_skills};
use crate::harness::test_servers::{HttpServer, free_port, start_http};
use crate::harness::{HANG_TIMEOUT, content_digest, in_time};

const INDEX: &str = "/.well-known/agent-skills/index.json";

/// Files of a site by path. A file that begins with `=> ` is a redirect. A file that begins with `gate: `
/// is sent once the gate opens.
type SiteFiles = Arc<Mutex<BTreeMap<String, String>>>;

/// Site that runs until it is dropped.
pub(super) struct TestSite {
    server: HttpServer,
    files: SiteFiles,
    gate: Arc<Notify>,
    /// Number of requests, and of responses with 304.
    requests: Arc<AtomicUsize>,
    unchanged: Arc<AtomicUsize>,
}

impl TestSite {
    pub(super) async fn start(index: &Value, files: &[(&str, &str)]) -> Self {
        let mut by_path = BTreeMap::from([(INDEX.to_owned(), index.to_string())]);
        for (path, text) in files {
            by_path.insert((*path).to_owned(), (*text).to_owned());
        }

        let files = Arc::new(Mutex::new(by_path));
        let requests = Arc::new(AtomicUsize::new(0));
        let unchanged = Arc::new(AtomicUsize::new(0));
        let gate = Arc::new(Notify::new());
        let shared = (
            files.clone(),
            gate.clone(),
            requests.clone(),
            unchanged.clone(),
        );
        let answer = move |request: Request<Incoming>| {
            let (files, gate, requests, unchanged) = shared.clone();
            async move {
                requests.fetch_add(1, Ordering::SeqCst);
                if is_gated(&request, &files) {
                    gate.notified().await;
                }
                Ok(respond(&request, &files, &unchanged))
            }
        };
        Self {
            server: start_http(&free_port(), answer).await,
            files,
            gate,
            requests,
            unchanged,
        }
    }

    fn write(&self, path: &str, text: &str) {
        let mut files = self.files.lock().expect("no panic");
        files.insert(path.to_owned(), text.to_owned());
    }

    pub(super) fn id(&self) -> &str {
        &self.server.address
    }

    /// Returns the package of a skill.
    pub(super) fn package(&self, name: &str) -> String {
        format!("site://{}/{name}", self.id())
    }

    /// Returns the arguments of a read.
    fn read(&self, name: &str, resource: &str) -> Value {
        arguments("site", self.id(), &self.package(name), resource)
    }

    fn config(&self) -> SiteConfig {
        SiteConfig {
            allows_private_addresses: true,
            start_timeout: HANG_TIMEOUT,
            ..SiteConfig::new(&format!("http://{}", self.id()))
        }
    }

    pub(super) async fn source(&self) -> Arc<SiteSource> {
        Arc::new(SiteSource::start(self.config()).await.expect("a site"))
    }

    async fn wait_for_requests(&self, count: usize) {
        in_time(async {
            while self.requests.load(Ordering::SeqCst) < count {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

fn is_gated(request: &Request<Incoming>, files: &SiteFiles) -> bool {
    let files = files.lock().expect("no panic");
    let text = files.get(request.uri().path());
    text.is_some_and(|text| text.starts_with("gate: "))
}

/// Returns the file of a request, or 304 if the request has the tag.
fn respond(
    request: &Request<Incoming>,
    files: &SiteFiles,
    unchanged: &AtomicUsize,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    let files = files.lock().expect("no panic");
    let Some(text) = files.get(request.uri().path()) else {
        *response.status_mut() = StatusCode::NOT_FOUND;
        return response;
    };
    if let Some(target) = text.strip_prefix("=> ") {
        *response.status_mut() = StatusCode::FOUND;
        let target = HeaderValue::from_str(target).expect("a header");
        response.headers_mut().insert(header::LOCATION, target);
        return response;
    }

    let tag = format!("\"{}\"", content_digest(text.as_bytes()));
    let tag = HeaderValue::from_str(&tag).expect("a header");
    if request.headers().get(header::IF_NONE_MATCH) == Some(&tag) {
        unchanged.fetch_add(1, Ordering::SeqCst);
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return response;
    }
    response.headers_mut().insert(header::ETAG, tag);
    *response.body_mut() = Full::new(Bytes::from(text.clone()));
    response
}

/// Returns an entry with the URL of a SKILL.md, whose text is that of the harness.
fn entry_at(name: &str, url: &str) -> Value {
    entry_of(name, url, &skill_text(name))
}

/// Returns an entry with the URL and the digest of a SKILL.md.
fn entry_of(name: &str, url: &str, text: &str) -> Value {
    json!({
        "name": name, "type": "skill-md", "description": format!("Does {name}."), "url": url,
        "digest": content_digest(text.as_bytes()),
    })
}

/// Returns an entry whose SKILL.md is next to the index.
fn listed(name: &str) -> Value {
    entry_at(name, &format!("{name}/SKILL.md"))
}

/// Returns the path of a SKILL.md next to the index.
fn main_path(name: &str) -> String {
    format!("/.well-known/agent-skills/{name}/SKILL.md")
}

#[tokio::test]
async fn the_index_of_a_site_is_read() {
    let index = json!({"$schema": "https://schemas.agentskills.io/discovery/0.2.0/schema.json", "skills": [
        listed("a"),
        listed("b"),
        entry_at("c", "/elsewhere/c/SKILL.md"),
    ]});
    let site = TestSite::start(
        &index,
        &[
            (&main_path("a"), "=> /moved/SKILL.md"),
            ("/moved/SKILL.md", &skill_text("a")),
            (&main_path("b"), &skill_text("a")),
            ("/elsewhere/c/SKILL.md", &skill_text("c")),
            ("/elsewhere/c/y.md", "Not declared."),
        ],
    )
    .await;
    let session = start_session(vec![site.source().await]).await;
    let (packages, warnings) = list_all(&session).await;
    assert_eq!(packages, ["a", "b", "c"].map(|name| site.package(name)));
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(
        site.requests.load(Ordering::SeqCst),
        1,
        "no file is read ahead"
    );

    for name in ["a", "c"] {
        let text = read_all(&session, site.read(name, "")).await;
        assert_eq!(text, skill_text(name));
    }
    let files = call(&session, "skills.read", site.read("c", "./")).await;
    assert_eq!(files["files"][0]["path"], "SKILL.md");
    assert_eq!(files["files"].as_array().expect("files").len(), 1);

    // A verified file is cached.
    let requests = site.requests.load(Ordering::SeqCst);
    read_all(&session, site.read("c", "")).await;
    assert_eq!(site.requests.load(Ordering::SeqCst), requests);
    for (name, resource, code) in [
        ("b", "", "NOT_VERIFIED"),
        ("c", "y.md", "RESOURCE_NOT_FOUND"),
        ("d", "", "PACKAGE_NOT_FOUND"),
    ] {
        let error = read_error(&session, site.read(name, resource)).await;
        assert_eq!(error.0, code, "{name} {resource}: {}", error.1);
    }
}

#[tokio::test]
async fn a_changed_index_is_followed_by_conditional_requests() {
    let index = |names: &[&str]| {
        let skills: Vec<_> = names.iter().map(|name| listed(name)).collect();
        json!({ "skills": skills })
    };
    let site = TestSite::start(&index(&["a"]), &[]).await;
    let source = site.source().await;
    let session = start_session(vec![source.clone() as Arc<dyn SkillSource>]).await;
    let mut changes = session.watch();
    source.refresh();
    in_time(async {
        while site.unchanged.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(list_all(&session).await.0, [site.package("a")]);

    site.write(INDEX, &index(&["a", "b"]).to_string());
    source.refresh();
    in_time(changes.next()).await;
    let packages = list_all(&session).await.0;
    assert_eq!(packages, [site.package("a"), site.package("b")]);

    // The skills of an unavailable site are not listed, and keep their names.
    site.write(INDEX, "no JSON");
    source.refresh();
    in_time(changes.next()).await;
    let (packages, warnings) = list_all(&session).await;
    assert!(packages.is_empty(), "{packages:?}");
    assert!(
        warnings[0].contains("is not an index of skills"),
        "{warnings:?}"
    );
    assert_eq!(source.snapshot().listing.skills.len(), 2);
    assert_eq!(
        read_error(&session, site.read("a", "")).await.0,
        "SOURCE_UNAVAILABLE"
    );
}

#[tokio::test]
async fn invalid_entries_of_a_site_are_omitted() {
    let mut archive = entry_at("archive", "/archive.tar.gz");
    archive["type"] = json!("archive");
    let mut bad_digest = entry_at("digest", "/digest/SKILL.md");
    bad_digest["digest"] = json!("md5:1");
    let entries = [
        listed("fine"),
        listed("fine"),
        listed("Fine"),
        listed("a\u{202e}b"),
        listed(""),
        entry_at("elsewhere", "https://elsewhere.example/elsewhere/SKILL.md"),
        entry_at("file", "file:///etc/passwd/SKILL.md"),
        entry_at("loopback", "http://127.0.0.1:1/loopback/SKILL.md"),
        entry_at("query", "/query/SKILL.md?x"),
        entry_at("other", "/other/README.md"),
        archive,
        bad_digest,
        json!({"name": "unverifiable", "url": "/unverifiable/SKILL.md"}),
        json!({"name": "paths", "files": ["SKILL.md"]}),
        json!(7),
    ];
    let count = entries.len() - 1;
    let site = TestSite::start(&json!({ "skills": entries }), &[]).await;
    let session = start_session(vec![site.source().await]).await;
    let (packages, warnings) = list_all(&session).await;
    assert_eq!(packages, [site.package("fine")]);
    let start = format!("{count} skills of the site ");
    assert!(warnings[0].starts_with(&start), "{warnings:?}");
    assert!(!warnings[0].contains('\u{202e}'), "{warnings:?}");
}

#[tokio::test]
async fn hostile_sites_are_bounded() {
    let many: Vec<_> = (0..100_000).map(|n| listed(&format!("a{n}"))).collect();
    let site = TestSite::start(&json!({ "skills": many }), &[]).await;
    let source = site.source().await;
    let snapshot = source.snapshot();
    // The index is over the limit of bytes, or the list over the limit of skills.
    assert!(snapshot.listing.skills.len() <= limits::MAX_SKILLS);
    assert!(snapshot.unavailable_reason.is_some() || snapshot.listing.truncated);

    let large = "x".repeat(bytes(limits::MAX_FILE_BYTES) + 1);
    let lying = "---\nname: lying\ndescription: Steals.\n---\n";
    let index = json!({"skills": [
        listed("large"),
        listed("lost"),
        entry_at("lying", "/lying/SKILL.md"),
        entry_of("renamed", "renamed/SKILL.md", lying),
        listed("moved"),
        listed("loop"),
    ]});
    let site = TestSite::start(
        &index,
        &[
            (&main_path("large"), &large),
            ("/lying/SKILL.md", lying),
            (&main_path("renamed"), lying),
            (&main_path("moved"), "=> https://elsewhere.example/SKILL.md"),
            (&main_path("loop"), &format!("=> {}", main_path("loop"))),
        ],
    )
    .await;
    let session = start_session(vec![site.source().await]).await;
    for (name, code) in [
        ("large", "TOO_LARGE"),
        ("lost", "RESOURCE_NOT_FOUND"),
        ("lying", "NOT_VERIFIED"),
        ("renamed", "NOT_VERIFIED"),
        ("moved", "SOURCE_UNAVAILABLE"),
        ("loop", "SOURCE_UNAVAILABLE"),
    ] {
        let (found, error) = read_error(&session, site.read(name, "")).await;
        assert_eq!(found, code, "{name}: {error}");
        assert!(!error.contains("Steals"), "{error}");
    }
}

/// A site that does not answer in time is a state with a reason, and the other sources go on.
#[tokio::test]
async fn a_silent_site_delays_no_other_source() {
    let index = json!({"skills": [listed("a"), listed("c")]});
    let main = main_path("a");
    let slow = TestSite::start(&index, &[(&main, "gate: never"), (INDEX, "gate: never")]).await;
    let fine = TestSite::start(
        &index,
        &[(&main, "gate: never"), (&main_path("c"), &skill_text("c"))],
    )
    .await;
    let mock = start_with_skills(&[("b", &[])]).await;

    let unlisted = SiteConfig {
        start_timeout: Duration::from_millis(50),
        ..slow.config()
    };
    let unlisted = SiteSource::start(unlisted).await.expect("a site");
    let impatient = SiteConfig {
        read_timeout: Duration::from_millis(200),
        ..fine.config()
    };
    let impatient = SiteSource::start(impatient).await.expect("a site");
    let session = start_session(vec![
        Arc::new(unlisted),
        Arc::new(impatient),
        mcp_source("s", &mock.url).await,
    ])
    .await;

    let (packages, warnings) = list_all(&session).await;
    let expected = [
        "mcp+skill://s/b".to_owned(),
        fine.package("a"),
        fine.package("c"),
    ];
    assert_eq!(packages, expected);
    let named = warnings.iter().any(|warning| warning.contains(slow.id()));
    assert!(named, "{warnings:?}");
    for site in [&slow, &fine] {
        let error = read_error(&session, site.read("a", "")).await;
        assert_eq!(error.0, "SOURCE_UNAVAILABLE", "{}", error.1);
    }
    assert_eq!(
        read_all(&session, fine.read("c", "")).await,
        skill_text("c")
    );
}

fn bytes(limit: u64) -> usize {
    usize::try_from(limit).expect("a limit of memory")
}

#[tokio::test]
async fn a_site_that_changes_while_it_is_read_is_reported() {
    let text = |letter: &str| skill_text("a") + &letter.repeat(bytes(limits::SMALL_FILE_BYTES) / 2);
    let index = |text: &str| json!({"skills": [entry_of("a", "a/SKILL.md", text)]});
    let main = main_path("a");
    let site = TestSite::start(&index(&text("x")), &[(&main, &text("x"))]).await;
    let source = site.source().await;
    let session = start_session(vec![source.clone() as Arc<dyn SkillSource>]).await;
    let mut watch = source.changes();

    // The second page is of another version.
    let mut arguments = site.read("a", "");
    let first = call(&session, "skills.read", arguments.clone()).await;
    arguments["cursor"] = first["next_cursor"].clone();
    site.write(&main, &text("y"));
    site.write(INDEX, &index(&text("y")).to_string());
    source.refresh();
    in_time(watch.next()).await.expect("a change");
    let error = read_error(&session, arguments).await;
    assert_eq!(error.0, "RESOURCE_CHANGED", "{}", error.1);

    // The index changes while a copy is made.
    site.write(&main, "gate: opened later");
    let count = site.requests.load(Ordering::SeqCst);
    let package = site.package("a");
    let fetch = tokio::spawn({
        let (source, package) = (source.clone(), package.clone());
        async move { source.fetch_package(&package).await }
    });
    site.wait_for_requests(count + 1).await;
    site.write(&main, &text("y"));
    let mut changed = index(&text("y"));
    changed["skills"][0]["description"] = json!("Does\u{202e} more.");
    site.write(INDEX, &changed.to_string());
    source.refresh();
    in_time(watch.next()).await.expect("a change");
    site.gate.notify_one();
    let fetched = in_time(fetch).await.expect("no panic");
    let error = fetched.expect_err("another index");
    assert_eq!(error.code().name(), "RESOURCE_CHANGED");

    // Hidden text of a description is shown.
    let listed = call(&session, "skills.list", json!({})).await;
    let description = listed["skills"][0]["description"].as_str();
    assert_eq!(description, Some("Does\\u{202e} more."));
}

#[tokio::test]
async fn only_allowed_addresses_are_connected_to() {
    let site = TestSite::start(&json!({"skills": []}), &[]).await;
    let url = format!("http://{}", site.id());
    for host in [
        url.as_str(),
        "127.0.0.1",
        "https://10.0.0.1",
        "docs.example/x",
    ] {
        let error = SiteSource::start(SiteConfig::new(host)).await;
        let error = error.expect_err(host).to_string();
        assert!(error.starts_with("invalid site "), "{error}");
    }

    // The name of this machine resolves to a loopback address.
    let config = SiteConfig {
        start_timeout: HANG_TIMEOUT,
        ..SiteConfig::new("localhost:1")
    };
    let source = SiteSource::start(config).await.expect("a host");
    let reason = source.snapshot().unavailable_reason.expect("a reason");
    assert!(
        reason.contains("not a globally routable address"),
        "{reason}"
    );
    assert_eq!(site.requests.load(Ordering::SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_of_the_command_has_the_skills_of_a_site() {
    let index = json!({"skills": [entry_at("c", "/c/SKILL.md")]});
    let site = TestSite::start(&index, &[("/c/SKILL.md", &skill_text("c"))]).await;
    let mut command = caproot(["call"]);
    command
        .args(["--private-site", &format!("http://{}", site.id())])
        // A proxy of the environment is not used.
        .env("http_proxy", "http://127.0.0.1:1");
    let mut process = Process::spawn(command);
    let package = site.package("c");
    let read = json!({"id": 1, "method": "call", "tool": "skills.read", "arguments": {"package": package}});
    process.send_line(read.to_string().as_bytes());
    let line = in_time(process.line()).await;
    assert!(line.contains("Served c."), "{line}");
    process.exit().await.succeeded();

    let mut refused = caproot(["call"]);
    refused.args(["--site", "127.0.0.1"]);
    run_command(refused)
        .await
        .exited_with(78, "is not a globally routable address");
}

/// A pull writes the files of a skill with their digests, and refuses a file that differs from the index.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn skills_of_sites_and_mcp_servers_are_pulled() {
    let index = json!({"skills": [listed("b"), listed("bad")]});
    let site = TestSite::start(
        &index,
        &[
            (&main_path("b"), &skill_text("b")),
            (&main_path("bad"), "Stolen."),
        ],
    )
    .await;
    let mock = start_with_skills(&[("a", &[("x.md", "More.")])]).await;
    let fixture = Fixture::new("dir out");
    let list = json!({"mcpServers": {"s": {"url": mock.url}}}).to_string();
    fixture.write("mcp.json", &list);
    let pull_command = |wanted: &str, into: &str| {
        let mut command = caproot(["pull", wanted, "--private-site"]);
        command
            .arg(format!("http://{}", site.id()))
            .arg("--mcp-servers")
            .arg(fixture.path("mcp.json"))
            .arg("--into")
            .arg(fixture.path(into));
        command
    };
    let pull = |wanted: &str, into: &str| run_command(pull_command(wanted, into));
    let pull_locked = |wanted: &str, into: &str| {
        let mut command = pull_command(wanted, into);
        command.arg("--lock").arg(fixture.path("caproot.lock"));
        run_command(command)
    };

    let pulled = pull("b", "out/b").await.succeeded();
    assert!(
        pulled.text().contains("pulled: 1 file"),
        "{}",
        pulled.text()
    );
    let read = |path: &str| std::fs::read_to_string(fixture.path(path)).expect("a file");
    assert_eq!(read("out/b/SKILL.md"), skill_text("b"));
    let verified = caproot_client::pull::verify_dir(&fixture.path("out/b")).expect("a directory");
    assert!(verified.differences.is_empty() && verified.package == site.package("b"));
    let again = pull(&site.package("b"), "out/b").await.succeeded();
    assert!(
        again.text().contains("unchanged: 1 file"),
        "{}",
        again.text()
    );

    pull("mcp+skill://s/a", "out/a").await.succeeded();
    assert_eq!(read("out/a/x.md"), "More.");

    // A lock holds for the skills of a site, by name and by handle.
    let lock = fixture.path("caproot.lock");
    let mut approve = caproot(["lock"]);
    approve.arg(fixture.path("dir")).arg("--out").arg(&lock);
    fixture.write("dir/b/SKILL.md", skill_text("b"));
    run_command(approve).await.succeeded();
    for wanted in ["b", &site.package("b")] {
        pull_locked(wanted, "out/locked").await.succeeded();
    }
    let refused = pull_locked("mcp+skill://s/a", "out/other").await;
    refused.exited_with(1, "the lock has no entry of its name");
    assert!(!fixture.path("out/other").exists());

    pull("bad", "out/bad").await.exited_with(4, "NOT_VERIFIED");
    assert!(!fixture.path("out/bad").exists());
    pull("none", "out/none")
        .await
        .exited_with(4, "no skill of the sources");
}
