//! Server reflection: the types of error details, which generic clients need for decoding, and the
//! comments of the protocol.

use tonic::transport::Channel;

use crate::harness::{Daemon, Setup, in_time};

const DETAILS: [&str; 3] = [
    "google.rpc.ErrorInfo",
    "google.rpc.BadRequest",
    "google.rpc.RetryInfo",
];

/// Descriptor files that one version of reflection serves for `$symbols`, one per symbol.
macro_rules! files_of_symbols {
    ($version:ident, $channel:expr, $symbols:expr) => {{
        use tonic_reflection::pb::$version::ServerReflectionRequest;
        use tonic_reflection::pb::$version::server_reflection_client::ServerReflectionClient;
        use tonic_reflection::pb::$version::server_reflection_request::MessageRequest;
        use tonic_reflection::pb::$version::server_reflection_response::MessageResponse;

        let requests = $symbols.map(|symbol| ServerReflectionRequest {
            host: String::new(),
            message_request: Some(MessageRequest::FileContainingSymbol(symbol.to_owned())),
        });
        let mut client = ServerReflectionClient::new($channel);
        let call = client.server_reflection_info(tokio_stream::iter(requests));
        let mut responses = in_time(call).await.expect("a stream").into_inner();
        let mut files = Vec::new();
        while let Some(response) = in_time(responses.message()).await.expect("no error") {
            match response.message_response {
                Some(MessageResponse::FileDescriptorResponse(file)) => {
                    files.push(file.file_descriptor_proto.concat());
                }
                other => panic!("{}: {other:?}", stringify!($version)),
            }
        }
        files
    }};
}

#[tokio::test]
async fn both_versions_serve_the_types_of_error_details() {
    let daemon = Daemon::start(Setup::default()).await;
    let endpoint = Channel::from_shared(format!("http://{}", daemon.address)).expect("a URI");
    let channel = in_time(endpoint.connect()).await.expect("a connection");
    let v1 = files_of_symbols!(v1, channel.clone(), DETAILS);
    let v1alpha = files_of_symbols!(v1alpha, channel.clone(), DETAILS);
    assert_eq!((v1.len(), &v1), (DETAILS.len(), &v1alpha));
    for (symbol, file) in DETAILS.iter().zip(&v1) {
        let name = symbol.rsplit('.').next().expect("a name").as_bytes();
        assert!(
            file.windows(name.len()).any(|part| part == name),
            "no {symbol}"
        );
    }
    drop(channel);
    daemon.stop().await;
}

#[tokio::test]
async fn reflection_shows_the_comments_of_the_service_and_the_errors() {
    let daemon = Daemon::start(Setup::default()).await;
    let endpoint = Channel::from_shared(format!("http://{}", daemon.address)).expect("a URI");
    let channel = in_time(endpoint.connect()).await.expect("a connection");
    let expected = [
        (
            "caproot.v1.CapabilityService",
            "Every request names its roots",
        ),
        ("caproot.v1.ErrorReason", "Status: NOT_FOUND."),
        (
            "caproot.v1.PluginComponent",
            "Every text comes from the plugin's author",
        ),
    ];
    let files = files_of_symbols!(v1, channel.clone(), expected.map(|(symbol, _)| symbol));
    for ((symbol, comment), file) in expected.iter().zip(&files) {
        let has_comment = file
            .windows(comment.len())
            .any(|part| part == comment.as_bytes());
        assert!(has_comment, "{symbol}");
    }
    drop(channel);
    daemon.stop().await;
}
