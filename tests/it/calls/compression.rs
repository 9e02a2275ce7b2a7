//! Lists are compressed for clients that accept gzip, and other responses never are. Requests may
//! be compressed, within the size limit of any request.

use caproot_core::proto::caproot::v1::{
    GetExecutorRequest, ListRootsRequest, ListSkillsRequest, WatchSkillsRequest,
};
use tonic::codec::CompressionEncoding::Gzip;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::transport::Endpoint;
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::calls::resources;
use crate::harness::fixture::Fixture;
use crate::harness::{
    Daemon, Setup, in_time, list_request, read_request, resolve_request, selected,
};

/// Encoding that a response declares.
fn encoding(metadata: &MetadataMap) -> Option<&str> {
    metadata
        .get("grpc-encoding")
        .map(|value| value.to_str().expect("text"))
}

#[tokio::test]
async fn lists_are_compressed_for_clients_that_accept_gzip() {
    let fixture = Fixture::new("repeat 50 skill root/{}\nskill root/a");
    let root = selected("r", fixture.path("root"));
    let roots = vec![root.clone()];
    let daemon = Daemon::start(Setup::publishing("p", fixture.path("root"))).await;
    let plain = daemon.list(&roots).await;
    assert_eq!(plain.skills.len(), 51);
    for wanted in [None, Some("gzip")] {
        let mut client = daemon.client.clone();
        if wanted.is_some() {
            client = client.accept_compressed(Gzip);
        }
        let list = in_time(client.list_skills(list_request(&roots)))
            .await
            .expect("a list");
        assert_eq!(encoding(list.metadata()), wanted);
        assert_eq!(list.into_inner().skills, plain.skills);
        let request = resolve_request(&roots);
        let list = in_time(client.resolve_roots(request)).await.expect("roots");
        assert_eq!(encoding(list.metadata()), wanted);
        let list = in_time(client.list_roots(ListRootsRequest {}))
            .await
            .expect("roots");
        assert_eq!(encoding(list.metadata()), wanted);
        let list = in_time(client.list_resources(resources::request(&root))).await;
        assert_eq!(encoding(list.expect("files").metadata()), wanted);

        let other = in_time(client.get_executor(GetExecutorRequest {})).await;
        assert_eq!(encoding(other.expect("an answer").metadata()), None);
        let request = read_request(&root, "skill://r/a", "");
        let other = in_time(client.read_resource(request))
            .await
            .expect("a page");
        assert_eq!(encoding(other.metadata()), None);
        let request = WatchSkillsRequest {
            selected_capability_roots: roots.clone(),
            ..Default::default()
        };
        let other = in_time(client.watch_skills(request))
            .await
            .expect("a stream");
        assert_eq!(encoding(other.metadata()), None);
    }
    daemon.stop().await;
}

#[tokio::test]
async fn compressed_requests_keep_the_size_limit() {
    let fixture = Fixture::new("skill root/a");
    let roots = [selected("r", fixture.path("root"))];
    let daemon = Daemon::start(Setup::allowing([fixture.path("root")])).await;
    let request_of_size = |bytes| ListSkillsRequest {
        product: "x".repeat(bytes),
        ..list_request(&roots)
    };
    let endpoint = Endpoint::from_shared(format!("http://{}", daemon.address)).expect("a URI");
    let channel = in_time(endpoint.connect()).await.expect("connect");
    let mut health = HealthClient::new(channel.clone()).send_compressed(Gzip);
    let request = HealthCheckRequest {
        service: "caproot.v1.CapabilityService".into(),
    };
    in_time(health.check(request))
        .await
        .expect("the health of the service");
    let mut client = daemon.client.clone().send_compressed(Gzip);
    let list = in_time(client.list_skills(request_of_size(100_000)))
        .await
        .expect("a list");
    assert_eq!(list.into_inner().skills.len(), 1);
    // Compressed, this request has only a few KiB.
    let rejected = in_time(client.list_skills(request_of_size(16 << 20)))
        .await
        .expect_err("too much");
    assert_eq!(rejected.code(), Code::ResourceExhausted, "{rejected:?}");
    assert!(rejected.message().contains("size limit"), "{rejected:?}");
    assert_eq!(
        daemon.list(&roots).await.skills.len(),
        1,
        "the daemon still answers"
    );
    daemon.stop().await;
}

#[tokio::test]
async fn an_unknown_encoding_is_rejected_with_the_known_ones() {
    let fixture = Fixture::new("skill root/a");
    let daemon = Daemon::start(Setup::allowing([fixture.path("root")])).await;
    let mut client = daemon.client.clone();
    let mut call = async |encoding: &'static str| {
        let mut request = Request::new(GetExecutorRequest {});
        let value = MetadataValue::from_static(encoding);
        request.metadata_mut().insert("grpc-encoding", value);
        in_time(client.get_executor(request)).await
    };
    for known in ["identity", "gzip"] {
        call(known).await.expect("a message without compression");
    }
    let rejected = call("deflate").await.expect_err("an unknown encoding");
    assert_eq!(rejected.code(), Code::Unimplemented, "{rejected:?}");
    assert!(
        rejected.message().contains("`deflate`; send it with gzip"),
        "{rejected:?}"
    );
    let accepted = rejected.metadata().get("grpc-accept-encoding");
    assert_eq!(
        accepted.expect("the encodings").as_bytes(),
        b"gzip,identity"
    );
    daemon.stop().await;
}
