//! Handles that are none: whatever is sent in place of one, nothing but the canonical spelling of a
//! handle of the root is taken.

use caproot::domain::{ResourceHandle, handle};
use caproot::proto::caproot::v1::{
    ListResourcesRequest, ReadResourceResponse, SelectedCapabilityRoot,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tonic::transport::Endpoint;
use tonic::{Code, Response, Status};

use crate::fixture::Fixture;
use crate::harness::{Daemon, Setup, assert_rpc_error, in_time, read_request, rpc_error, selected};

async fn serving() -> (Fixture, Daemon, SelectedCapabilityRoot) {
    let fixture = Fixture::new("skill root/a\nfile root/a/x.md\n| text\nfile out.md\n| outside");
    let daemon = Daemon::start(Setup::allowing([fixture.path("root")])).await;
    let root = selected("r", fixture.path("root"));
    (fixture, daemon, root)
}

#[tokio::test]
async fn texts_that_are_no_handles() {
    let (fixture, daemon, root) = serving().await;
    let long = "x".repeat(5_000);
    let outside = fixture.path("out.md").display().to_string();
    let mut bad: Vec<String> = [
        "../../etc/passwd",
        "/etc/passwd",
        "a\0b",
        "\0",
        ".",
        "..",
        "skill://r/../../etc/passwd",
        "skill://r//etc/passwd",
        "skill://r/a/../../out.md",
        "skill://r/a/%2E%2E/%2E%2E/out.md",
        "skill://r/a/..%2F..%2Fout.md",
        "skill://r/a/x.md\0",
        "skill://r/a/x.md%00",
        "skill://r/a\\..\\x.md",
        "skill://r/%FF%fe",
        "skill://r/\u{fffd}",
        "file:///etc/passwd",
        "file://r/etc/passwd",
        "skill://",
        " ",
    ]
    .map(str::to_owned)
    .to_vec();
    bad.extend([long.clone(), format!("skill://r/{long}"), format!("/{}", "../".repeat(1_666))]);
    bad.extend([outside.clone(), format!("skill://r{outside}"), format!("skill://{long}/a")]);
    for text in &bad {
        let answer = daemon.read(read_request(&root, text, "")).await;
        let accepted = ResourceHandle::parse(text).is_ok_and(|handle| handle.root.as_str() == "r");
        if accepted {
            // A path of the executor, spelled like a place below the root: that is where it is looked
            // for, and it is not there.
            assert_rpc_error(answer, Code::NotFound, "PACKAGE_NOT_FOUND", None);
            continue;
        }
        assert_rpc_error(answer, Code::InvalidArgument, "INVALID_ARGUMENT", Some("package"));
        let answer = daemon.read(read_request(&root, "skill://r/a", text)).await;
        assert_rpc_error(answer, Code::InvalidArgument, "INVALID_ARGUMENT", Some("resource"));
        let request = ListResourcesRequest {
            root: Some(root.clone()),
            package: text.clone(),
            ..Default::default()
        };
        let answer = in_time(daemon.client.clone().list_resources(request)).await;
        assert_rpc_error(answer, Code::InvalidArgument, "INVALID_ARGUMENT", Some("package"));
    }
    let answer = daemon.read(read_request(&root, "", "")).await;
    assert_rpc_error(answer, Code::InvalidArgument, "INVALID_ARGUMENT", Some("package"));
    daemon.stop().await;
}

/// `ReadResourceRequest` with bytes in place of its texts.
#[derive(Clone, PartialEq, prost::Message)]
struct RawRead {
    #[prost(message, optional, tag = "1")]
    root: Option<SelectedCapabilityRoot>,
    #[prost(bytes = "vec", tag = "3")]
    package: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    resource: Vec<u8>,
}

async fn read_raw(daemon: &Daemon, raw: RawRead) -> Result<ReadResourceResponse, Status> {
    let endpoint = Endpoint::from_shared(format!("http://{}", daemon.address)).expect("an address");
    let mut grpc = tonic::client::Grpc::new(in_time(endpoint.connect()).await.expect("connect"));
    grpc.ready().await.expect("ready");
    let path = "/caproot.v1.CapabilityService/ReadResource".parse().expect("a path");
    let codec = tonic_prost::ProstCodec::<RawRead, ReadResourceResponse>::default();
    in_time(grpc.unary(tonic::Request::new(raw), path, codec)).await.map(Response::into_inner)
}

#[tokio::test]
async fn bytes_that_are_no_text() {
    let (_fixture, daemon, root) = serving().await;
    let raw = |package: &[u8], resource: &[u8]| RawRead {
        root: Some(root.clone()),
        package: package.to_vec(),
        resource: resource.to_vec(),
    };
    let good = read_raw(&daemon, raw(b"skill://r/a", b"skill://r/a/x.md")).await;
    assert_eq!(good.expect("as text it is good").total_bytes, 5);
    for bad in [
        raw(b"skill://r/a", b"skill://r/a/\xff"),
        raw(b"\xff\xfe", b""),
        raw(b"skill://r/\xc3", b""),
    ] {
        // Such a message is none: it does not come as far as its fields.
        let status = read_raw(&daemon, bad).await.expect_err("no message of protobuf");
        assert_eq!(status.code(), Code::Internal, "{status:?}");
    }
    daemon.read(read_request(&root, "skill://r/a", "")).await.expect("the daemon goes on");
    daemon.stop().await;
}

/// Texts near the ones that are taken, and texts of any kind.
fn texts() -> impl Strategy<Value = String> {
    let near = "skill://r/(a|x\\.md|%2E|%2e|\\.|\\.\\.|/|%|%41|%61|%C3%BC|~|\\?|#|:|@|é| ){0,6}";
    let escaped = "skill://r(/(%[0-9A-Fa-f]{2}|[a-z.]){1,4}){1,3}";
    prop_oneof![
        near,
        escaped,
        any::<String>(),
        "[a-z]{1,6}://[a-z./%]{0,20}",
        "(\\.\\./){1,9}[a-z]+"
    ]
}

#[test]
fn only_the_canonical_spelling_is_taken() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (_fixture, daemon, root) = runtime.block_on(serving());
    let config = Config { cases: 512, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let law = |text: String| {
        let answer = runtime.block_on(daemon.read(read_request(&root, &text, "")));
        match answer.map_err(|status| rpc_error(&status)) {
            Err(refused) if refused.code == Code::InvalidArgument => {}
            taken => {
                let handle = ResourceHandle::parse(&text);
                prop_assert!(handle.is_ok(), "{text:?} is none, and taken: {taken:?}");
                let handle = handle.expect("looked at above");
                prop_assert_eq!(handle.root.as_str(), "r");
                prop_assert_eq!(handle::format_handle(&handle.root, &handle.path), text);
            }
        }
        Ok(())
    };
    runner.run(&texts(), law).expect("nothing else is taken");
    runtime.block_on(daemon.stop());
}
