//! Responses and log lines must not contain paths of the executor that the daemon resolved. The
//! test records and searches all bytes that the server sends. Errors travel in compressed headers,
//! so the test searches them as the client decoded them.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use caproot::proto::caproot::v1::{
    GetExecutorRequest, ListRootsRequest, ResolveRootsRequest, SelectedCapabilityRoot,
};

use tonic::Status;

use crate::fixture::Fixture;
use crate::harness::{
    Client, Daemon, Setup, connect, list_request, located, read_request, selected,
};

/// Proxy that forwards connections to the daemon and records the responses.
struct Recorder {
    address: String,
    answers: Arc<Mutex<Vec<u8>>>,
}

impl Recorder {
    fn start(to: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let answers = Arc::new(Mutex::new(Vec::new()));
        let (to, recorded) = (to.to_owned(), answers.clone());
        // The thread ends with the process. It only waits for connections.
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.expect("a connection");
                let server = TcpStream::connect(&to).expect("the daemon");
                let clone = |s: &TcpStream| s.try_clone().expect("another handle");
                let (up_from, up_to) = (clone(&client), clone(&server));
                thread::spawn(move || copy(up_from, up_to, |_| {}));
                let recorded = recorded.clone();
                thread::spawn(move || {
                    copy(server, client, |bytes| {
                        recorded.lock().expect("the record").extend(bytes);
                    });
                });
            }
        });
        Self { address, answers }
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, record: impl Fn(&[u8])) {
    let mut buffer = [0; 16_384];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        record(&buffer[..length]);
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    drop(to.shutdown(Shutdown::Write));
}

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
    client.get_executor(GetExecutorRequest {}).await.expect("GetExecutor");
    client.list_roots(ListRootsRequest {}).await.expect("ListRoots");
    client.list_skills(list_request(roots)).await.expect("ListSkills");
    let selected_capability_roots = roots.to_vec();
    let request =
        ResolveRootsRequest { selected_capability_roots, consistency: 2, ..Default::default() };
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
    let recorder = Recorder::start(&daemon.address);
    let mut client = connect(&recorder.address).await;
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

    let mut answers = recorder.answers.lock().expect("the record").clone();
    for status in &errors {
        answers.extend(status.message().bytes());
        answers.extend(status.details());
        answers.extend(format!("{:?}", status.metadata()).bytes());
    }
    let holds = |text: &str| answers.windows(text.len()).any(|w| w == text.as_bytes());
    assert!(holds("skill://r/a") && holds("OUTSIDE_ROOT"), "the record has these responses");
    let name = fixture.top().file_name().and_then(|n| n.to_str()).expect("UTF-8");
    assert!(!holds(name), "{} went over the wire", fixture.top().display());
    daemon.stop().await;
}

#[tokio::test]
async fn the_log_contains_no_path() {
    let fixture = broken_tree();
    let binary = crate::binary::DaemonProcess::start(&[
        "--root".as_ref(),
        fixture.path("root").as_os_str(),
        "--listen".as_ref(),
        "tcp:127.0.0.1:0".as_ref(),
    ]);
    let mut client = connect(binary.endpoint().strip_prefix("tcp:").expect("TCP")).await;
    let roots = [
        selected("r", fixture.path("root")),
        selected("out", fixture.path("out")),
        located("root", "published:root"),
    ];
    call_everything(&mut client, &roots).await;
    let (status, log) = binary.terminate_async().await;
    assert_eq!(status, Some(0), "{log}");
    assert!(!log.is_empty(), "the daemon logs something at level info");
    let name = fixture.top().file_name().and_then(|n| n.to_str()).expect("UTF-8");
    assert!(!log.contains(name), "{log}");
}
