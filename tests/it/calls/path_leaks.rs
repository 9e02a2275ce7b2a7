//! Responses and log lines must not contain paths of the executor that the daemon resolved. The
//! test records and searches all bytes that the server sends. Errors travel in compressed headers,
//! so the test searches them as the client decoded them.

use caproot_core::proto::caproot::v1::{
    GetExecutorRequest, ListRootsRequest, ResolveRootsRequest, SelectedCapabilityRoot,
};

use tonic::Status;

use crate::harness::fixture::Fixture;
use crate::harness::process::{Process, serve};
use crate::harness::test_servers::RecordingProxy;
use crate::harness::{
    Client, Daemon, Setup, connect, list_request, located, read_request, selected,
};

/// Tree with every kind of problem, so that responses have many diagnostics and errors.
fn broken_tree() -> Fixture {
    Fixture::new(
        "skill root/a\n\
         file root/a/x.md\n| text\n\
         file root/broken/SKILL.md\n| ---\n| description: \"open\n| ---\n\
         file root/bare/SKILL.md\n| none\n\
         file root/p/.codex-plugin/plugin.json\n| {\n\
         skill root/p/one\n\
         skill root/q\n\
         file root/q/agents/openai.yaml\n| interface: [\n\
         link root/q/abs -> $TMP/root/a/x.md\n\
         link root/out -> $TMP/out\n\
         link root/gone -> $TMP/root/nothing\n\
         link root/alias -> $TMP/root/a\n\
         link root/l/SKILL.md -> $TMP/out/x\n\
         link root/m/SKILL.md -> $TMP/root/nothing\n\
         link root/a/out.md -> $TMP/out/x\n\
         fifo root/f/SKILL.md\n\
         dir root/node_modules/x\n\
         skill out/z\n\
         file file\n| text",
    )
}

/// Calls every RPC with every root, valid and invalid. Returns all errors.
async fn call_everything(client: &mut Client, roots: &[SelectedCapabilityRoot]) -> Vec<Status> {
    let mut errors = Vec::new();
    client
        .get_executor(GetExecutorRequest {})
        .await
        .expect("GetExecutor");
    client
        .list_roots(ListRootsRequest {})
        .await
        .expect("ListRoots");
    client
        .list_skills(list_request(roots))
        .await
        .expect("ListSkills");
    let selected_capability_roots = roots.to_vec();
    let request = ResolveRootsRequest {
        selected_capability_roots,
        consistency: 2,
        ..Default::default()
    };
    client.resolve_roots(request).await.expect("ResolveRoots");
    for root in roots {
        let id = &root.id;
        for (package, resource) in [
            ("a", ""),
            ("a", "a/x.md"),
            ("a", "a/out.md"),
            ("a", "a/none"),
            ("q", "q/abs"),
            ("broken", ""),
            ("a/../b", ""),
        ] {
            let handle = |path: &str| match path {
                "" => String::new(),
                _ => format!("skill://{id}/{path}"),
            };
            let request = read_request(root, &handle(package), &handle(resource));
            errors.extend(client.read_resource(request).await.err());
        }
    }
    let mut request = list_request(roots);
    request.page_size = -1;
    errors.extend(client.list_skills(request).await.err());
    errors
}

#[tokio::test]
async fn responses_contain_no_path() {
    let fixture = broken_tree();
    let setup = Setup::publishing("pub", fixture.path("root"));
    let daemon = Daemon::start(setup).await;
    let proxy = RecordingProxy::start(&daemon.address).await;
    let mut client = connect(&proxy.address).await;
    let roots = [
        selected("r", fixture.path("root")),
        located("p", "published:pub"),
        selected("gone", fixture.path("root/gone")),
        selected("file", fixture.path("root/a/x.md")),
        selected("out", fixture.path("out")),
        selected("other", fixture.path("file")),
        located("bad", "relative"),
    ];
    let errors = call_everything(&mut client, &roots).await;
    assert!(errors.len() > 20, "{} calls failed", errors.len());

    let mut answers = proxy.responses();
    for status in &errors {
        answers.extend(status.message().bytes());
        answers.extend(status.details());
        answers.extend(format!("{:?}", status.metadata()).bytes());
    }
    let holds = |text: &str| answers.windows(text.len()).any(|w| w == text.as_bytes());
    assert!(
        holds("skill://r/a") && holds("OUTSIDE_ROOT"),
        "the record has these responses"
    );
    let name = fixture
        .top()
        .file_name()
        .and_then(|n| n.to_str())
        .expect("UTF-8");
    assert!(
        !holds(name),
        "{} went over the wire",
        fixture.top().display()
    );
    daemon.stop().await;
}

#[tokio::test]
async fn the_log_contains_no_path() {
    let fixture = broken_tree();
    let binary = Process::start(serve(["--root"]).arg(fixture.path("root")));
    let mut client = binary.connect().await.client;
    let roots = [
        selected("r", fixture.path("root")),
        selected("out", fixture.path("out")),
        located("root", "published:root"),
    ];
    call_everything(&mut client, &roots).await;
    let log = binary.stop().await;
    assert!(!log.is_empty(), "the daemon logs something at level info");
    let name = fixture
        .top()
        .file_name()
        .and_then(|n| n.to_str())
        .expect("UTF-8");
    // The operator needs the target of a link that leads outside.
    let mut others = log.lines().filter(|line| !line.contains("a link leads "));
    assert!(!others.any(|line| line.contains(name)), "{log}");
}
