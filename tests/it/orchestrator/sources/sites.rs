//! Sites with an index of skills, also hostile ones: responses are bounded and verified, and only
//! allowed addresses are connected to.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use caproot_client::session::SkillSource;
use caproot_client::session::sources::site::{SiteConfig, SiteSource, limits};
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use serde_json::{Value, json};
use tokio::sync::Notify;

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

/// Returns an entry with the paths of its files only.
fn with_paths(name: &str, paths: &[&str]) -> Value {
    json!({"name": name, "description": format!("Does {name}."), "files": paths})
}

/// Returns an entry with the URL and the digest of its SKILL.md.
fn with_url(name: &str, url: &str) -> Value {
    json!({
        "name": name, "type": "skill-md", "description": format!("Does {name}."), "url": url,
        "digest": content_digest(skill_text(name).as_bytes()),
    })
}

#[tokio::test]
async fn each_form_of_an_index_is_read() {
    let declared =
        |path: &str, text: &str| json!({"path": path, "digest": content_digest(text.as_bytes())});
    let with_digests = json!({
        "name": "b", "description": "Does b.",
        "files": [declared("SKILL.md", &skill_text("b")), declared("ref/x y.md", "More."),
            declared("ref/other.md", "Listed.")],
    });
    let index = json!({"$schema": "https://schemas.agentskills.io/discovery/0.2.0/schema.json", "skills": [
        with_paths("a", &["SKILL.md", "x.md"]),
        with_digests,
        with_url("c", "/elsewhere/c/SKILL.md"),
    ]});
    let base = "/.well-known/agent-skills";
    let site = TestSite::start(
        &index,
        &[
            (&format!("{base}/a/SKILL.md"), &skill_text("a")),
            (&format!("{base}/a/x.md"), "=> /moved.md"),
            ("/moved.md", "Moved."),
            (&format!("{base}/b/SKILL.md"), &skill_text("b")),
            (&format!("{base}/b/ref/x%20y.md"), "More."),
            (&format!("{base}/b/ref/other.md"), "Stolen."),
            ("/elsewhere/c/SKILL.md", &skill_text("c")),
            ("/elsewhere/c/y.md", "Not declared."),
        ],
    )
    .await;
    let session = start_session(vec![site.source().await]).await;
    let (packages, warnings) = list_all(&session).await;
    assert_eq!(packages, ["a", "b", "c"].map(|name| site.package(name)));
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].contains("no digests for files of 1 "),
        "{warnings:?}"
    );
    assert_eq!(
        site.requests.load(Ordering::SeqCst),
        1,
        "no file is read ahead"
    );

    for name in ["a", "b", "c"] {
        let text = read_all(&session, site.read(name, "")).await;
        assert_eq!(text, skill_text(name));
    }
    assert_eq!(read_all(&session, site.read("a", "x.md")).await, "Moved.");
    let spaced = site.read("b", "ref/x%20y.md");
    assert_eq!(read_all(&session, spaced).await, "More.");
    let listed = call(&session, "skills.read", site.read("b", "./")).await;
    assert_eq!(listed["files"].as_array().expect("files").len(), 3);

    // A file with a digest is cached.
    let requests = site.requests.load(Ordering::SeqCst);
    read_all(&session, site.read("c", "")).await;
    assert_eq!(site.requests.load(Ordering::SeqCst), requests);
    for (name, resource, code) in [
        ("b", "ref/other.md", "NOT_VERIFIED"),
        ("b", "none.md", "RESOURCE_NOT_FOUND"),
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
        let skills: Vec<_> = names
            .iter()
            .map(|name| with_paths(name, &["SKILL.md"]))
            .collect();
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
    let mut archive = with_url("archive", "/archive.tar.gz");
    archive["type"] = json!("archive");
    let mut bad_digest = with_url("digest", "/digest/SKILL.md");
    bad_digest["digest"] = json!("md5:1");
    let entries = [
        with_paths("fine", &["SKILL.md"]),
        with_paths("fine", &["SKILL.md"]),
        with_paths("Fine", &["SKILL.md"]),
        with_paths("a\u{202e}b", &["SKILL.md"]),
        with_paths("", &["SKILL.md"]),
        with_paths("outside", &["SKILL.md", "../fine/SKILL.md"]),
        with_paths("absolute", &["SKILL.md", "//elsewhere/x"]),
        with_paths("twice", &["SKILL.md", "x", "x"]),
        with_paths("main", &["x"]),
        with_url("elsewhere", "https://elsewhere.example/elsewhere/SKILL.md"),
        with_url("file", "file:///etc/passwd/SKILL.md"),
        with_url("loopback", "http://127.0.0.1:1/loopback/SKILL.md"),
        with_url("query", "/query/SKILL.md?x"),
        with_url("other", "/other/README.md"),
        archive,
        bad_digest,
        json!({"name": "neither"}),
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
    let many: Vec<_> = (0..100_000)
        .map(|n| json!({"name": format!("a{n}"), "files": ["SKILL.md"]}))
        .collect();
    let site = TestSite::start(&json!({ "skills": many }), &[]).await;
    let source = site.source().await;
    let snapshot = source.snapshot();
    // The index is over the limit of bytes, or the list over the limit of skills.
    assert!(snapshot.listing.skills.len() <= limits::MAX_SKILLS);
    assert!(snapshot.unavailable_reason.is_some() || snapshot.listing.truncated);

    let large = "x".repeat(bytes(limits::MAX_FILE_BYTES) + 1);
    let lying = "---\nname: lying\ndescription: Steals.\n---\n";
    let index = json!({"skills": [
        with_paths("large", &["SKILL.md", "x"]),
        with_url("lying", "/lying/SKILL.md"),
        with_paths("renamed", &["SKILL.md"]),
        with_paths("moved", &["SKILL.md"]),
        with_paths("loop", &["SKILL.md"]),
    ]});
    let base = "/.well-known/agent-skills";
    let site = TestSite::start(
        &index,
        &[
            (&format!("{base}/large/x"), &large),
            ("/lying/SKILL.md", lying),
            (&format!("{base}/renamed/SKILL.md"), lying),
            (
                &format!("{base}/moved/SKILL.md"),
                "=> https://elsewhere.example/SKILL.md",
            ),
            (
                &format!("{base}/loop/SKILL.md"),
                &format!("=> {base}/loop/SKILL.md"),
            ),
        ],
    )
    .await;
    let session = start_session(vec![site.source().await]).await;
    for (name, resource, code) in [
        ("large", "x", "TOO_LARGE"),
        ("large", "", "RESOURCE_NOT_FOUND"),
        ("lying", "", "NOT_VERIFIED"),
        ("renamed", "", "NOT_VERIFIED"),
        ("moved", "", "SOURCE_UNAVAILABLE"),
        ("loop", "", "SOURCE_UNAVAILABLE"),
    ] {
        let (found, error) = read_error(&session, site.read(name, resource)).await;
        assert_eq!(found, code, "{name}: {error}");
        assert!(!error.contains("Steals"), "{error}");
    }
}

/// A site that does not answer in time is a state with a reason, and the other sources go on.
#[tokio::test]
async fn a_silent_site_delays_no_other_source() {
    let index = json!({"skills": [with_paths("a", &["SKILL.md", "x"])]});
    let base = "/.well-known/agent-skills";
    let main = format!("{base}/a/SKILL.md");
    let slow = TestSite::start(&index, &[(&main, "gate: never"), (INDEX, "gate: never")]).await;
    let fine = TestSite::start(
        &index,
        &[(&main, "gate: never"), (&format!("{base}/a/x"), "X.")],
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
    assert_eq!(packages, ["mcp+skill://s/b".to_owned(), fine.package("a")]);
    let named = warnings.iter().any(|warning| warning.contains(slow.id()));
    assert!(named, "{warnings:?}");
    for site in [&slow, &fine] {
        let error = read_error(&session, site.read("a", "")).await;
        assert_eq!(error.0, "SOURCE_UNAVAILABLE", "{}", error.1);
    }
    assert_eq!(read_all(&session, fine.read("a", "x")).await, "X.");
}

fn bytes(limit: u64) -> usize {
    usize::try_from(limit).expect("a limit of memory")
}

#[tokio::test]
async fn a_site_that_changes_while_it_is_read_is_reported() {
    let entry = |description: &str| json!({"skills": [{"name": "a", "description": description, "files": ["SKILL.md", "x"]}]});
    let base = "/.well-known/agent-skills";
    let main = format!("{base}/a/SKILL.md");
    let other = format!("{base}/a/x");
    let long = "x".repeat(bytes(limits::SMALL_FILE_BYTES));
    let site = TestSite::start(
        &entry("Does a."),
        &[(&main, &skill_text("a")), (&other, &long)],
    )
    .await;
    let source = site.source().await;
    let session = start_session(vec![source.clone() as Arc<dyn SkillSource>]).await;

    // The second page is of another version.
    let mut arguments = site.read("a", "x");
    let first = call(&session, "skills.read", arguments.clone()).await;
    arguments["cursor"] = first["next_cursor"].clone();
    site.write(&other, &"y".repeat(bytes(limits::SMALL_FILE_BYTES)));
    let error = read_error(&session, arguments).await;
    assert_eq!(error.0, "RESOURCE_CHANGED", "{}", error.1);

    // The index changes between two files of a copy.
    site.write(&other, "gate: opened later");
    let count = site.requests.load(Ordering::SeqCst);
    let mut watch = source.watch().expect("changes");
    let package = site.package("a");
    let fetch = tokio::spawn({
        let (source, package) = (source.clone(), package.clone());
        async move { source.fetch_package(&package).await }
    });
    site.wait_for_requests(count + 2).await;
    site.write(INDEX, &entry("Does\u{202e} more.").to_string());
    source.refresh();
    in_time(watch.changed()).await;
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
    let index = json!({"skills": [with_url("c", "/c/SKILL.md")]});
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
    let declared =
        |path: &str, text: &str| json!({"path": path, "digest": content_digest(text.as_bytes())});
    let index = json!({"skills": [
        {"name": "b", "description": "Does b.", "files": [
            declared("SKILL.md", &skill_text("b")), declared("ref/x y.md", "More.")]},
        {"name": "bad", "description": "Does bad.", "files": [
            declared("SKILL.md", &skill_text("bad")), declared("x", "Listed.")]},
    ]});
    let base = "/.well-known/agent-skills";
    let site = TestSite::start(
        &index,
        &[
            (&format!("{base}/b/SKILL.md"), &skill_text("b")),
            (&format!("{base}/b/ref/x%20y.md"), "More."),
            (&format!("{base}/bad/SKILL.md"), &skill_text("bad")),
            (&format!("{base}/bad/x"), "Stolen."),
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
        pulled.text().contains("pulled: 2 files"),
        "{}",
        pulled.text()
    );
    let read = |path: &str| std::fs::read_to_string(fixture.path(path)).expect("a file");
    assert_eq!(read("out/b/SKILL.md"), skill_text("b"));
    assert_eq!(read("out/b/ref/x y.md"), "More.");
    let verified = caproot_client::pull::verify_dir(&fixture.path("out/b")).expect("a directory");
    assert!(verified.differences.is_empty() && verified.package == site.package("b"));
    let again = pull(&site.package("b"), "out/b").await.succeeded();
    assert!(
        again.text().contains("unchanged: 2 files"),
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
    fixture.write("dir/b/ref/x y.md", "More.");
    run_command(approve).await.succeeded();
    for wanted in ["b", &site.package("b")] {
        pull_locked(wanted, "out/locked").await.succeeded();
    }
    let refused = pull_locked("mcp+skill://s/a", "out/other").await;
    refused.exited_with(1, "the lock has no skill of this name");
    assert!(!fixture.path("out/other").exists());

    pull("bad", "out/bad").await.exited_with(4, "NOT_VERIFIED");
    assert!(!fixture.path("out/bad").exists());
    pull("none", "out/none")
        .await
        .exited_with(4, "no skill of the sources");
}
