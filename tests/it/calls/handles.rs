//! Invalid handles: the daemon accepts only the canonical spelling of a handle of the root.

use caproot_core::proto::caproot::v1::{ReadResourceResponse, SelectedCapabilityRoot};
use caproot_core::wire::{ResourceHandle, handle};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tonic::transport::Endpoint;
use tonic::{Code, Response, Status};

use crate::harness::{
    Daemon, Setup, assert_rpc_error, files_request, in_time, read_request, rpc_error,
};

const TREE: &str = "skill root/a\nfile root/a/x.md\n| text\nfile out.md\n| outside";

#[tokio::test]
async fn texts_that_are_no_handles_are_rejected() {
    let (fixture, daemon, root) = Setup::default().serve(TREE).await;
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
    bad.extend([
        long.clone(),
        format!("skill://r/{long}"),
        format!("/{}", "../".repeat(1_666)),
    ]);
    bad.extend([
        outside.clone(),
        format!("skill://r{outside}"),
        format!("skill://{long}/a"),
    ]);
    for text in &bad {
        let answer = daemon.read(read_request(&root, text, "")).await;
        let accepted = ResourceHandle::parse(text).is_ok_and(|handle| handle.root.as_str() == "r");
        if accepted {
            // A path of the executor may be spelled like a valid handle. The daemon looks for it
            // below the root and does not find it.
            assert_rpc_error(answer, Code::NotFound, "PACKAGE_NOT_FOUND", None);
            continue;
        }
        assert_rpc_error(
            answer,
            Code::InvalidArgument,
            "INVALID_ARGUMENT",
            Some("package"),
        );
        let answer = daemon.read(read_request(&root, "skill://r/a", text)).await;
        assert_rpc_error(
            answer,
            Code::InvalidArgument,
            "INVALID_ARGUMENT",
            Some("resource"),
        );
        let request = files_request(&root, text);
        let answer = daemon.list_resources(request).await;
        assert_rpc_error(
            answer,
            Code::InvalidArgument,
            "INVALID_ARGUMENT",
            Some("package"),
        );
    }
    let relative = read_request(&root, "skill://r/a", "references/x.md");
    let error = daemon.read(relative).await.expect_err("a relative path");
    assert!(
        error.message().contains("`PACKAGE/references/x.md`"),
        "{error}"
    );
    let answer = daemon.read(read_request(&root, "", "")).await;
    assert_rpc_error(
        answer,
        Code::InvalidArgument,
        "INVALID_ARGUMENT",
        Some("package"),
    );
    daemon.stop().await;
}

/// `ReadResourceRequest` with bytes instead of strings.
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
    let path = "/caproot.v1.CapabilityService/ReadResource"
        .parse()
        .expect("a path");
    let codec = tonic_prost::ProstCodec::<RawRead, ReadResourceResponse>::default();
    in_time(grpc.unary(tonic::Request::new(raw), path, codec))
        .await
        .map(Response::into_inner)
}

#[tokio::test]
async fn handles_that_are_not_utf_8_are_rejected() {
    let (_fixture, daemon, root) = Setup::default().serve(TREE).await;
    let raw = |package: &[u8], resource: &[u8]| RawRead {
        root: Some(root.clone()),
        package: package.to_vec(),
        resource: resource.to_vec(),
    };
    let good = read_raw(&daemon, raw(b"skill://r/a", b"skill://r/a/x.md")).await;
    assert_eq!(good.expect("a valid request").total_bytes, 5);
    for bad in [
        raw(b"skill://r/a", b"skill://r/a/\xff"),
        raw(b"\xff\xfe", b""),
        raw(b"skill://r/\xc3", b""),
    ] {
        // tonic rejects a message with invalid UTF-8 before any field is checked.
        let status = read_raw(&daemon, bad)
            .await
            .expect_err("no valid protobuf message");
        assert_eq!(status.code(), Code::Internal, "{status:?}");
    }
    daemon
        .read(read_request(&root, "skill://r/a", ""))
        .await
        .expect("the daemon still answers");
    daemon.stop().await;
}

/// Texts similar to valid handles, and arbitrary texts.
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
fn only_the_canonical_spelling_is_accepted() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (_fixture, daemon, root) = runtime.block_on(Setup::default().serve(TREE));
    let config = Config {
        cases: 512,
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = TestRunner::new(config);
    let property = |text: String| {
        let answer = runtime.block_on(daemon.read(read_request(&root, &text, "")));
        match answer.map_err(|status| rpc_error(&status)) {
            Err(refused) if refused.code == Code::InvalidArgument => {}
            accepted => {
                let handle = ResourceHandle::parse(&text);
                prop_assert!(
                    handle.is_ok(),
                    "{text:?} is invalid but was accepted: {accepted:?}"
                );
                let handle = handle.expect("checked above");
                prop_assert_eq!(handle.root.as_str(), "r");
                prop_assert_eq!(handle::format_handle(&handle.root, &handle.path), text);
            }
        }
        Ok(())
    };
    runner
        .run(&texts(), property)
        .expect("only canonical handles are accepted");
    runtime.block_on(daemon.stop());
}
