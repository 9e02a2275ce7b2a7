//! Spans as a collector gets them, below the trace that the caller named.

use std::net::SocketAddr;

use caproot::proto::caproot::v1::GetExecutorRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::sync::mpsc;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

use super::{Served, published};
use crate::fixture::Fixture;
use crate::harness::in_time;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// A collector that hands on what it is sent.
struct Collector(mpsc::UnboundedSender<Span>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let resources = request.into_inner().resource_spans.into_iter();
        let scopes = resources.flat_map(|resource| resource.scope_spans);
        scopes.flat_map(|scope| scope.spans).for_each(|span| drop(self.0.send(span)));
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

async fn collector() -> (SocketAddr, mpsc::UnboundedReceiver<Span>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (spans, received) = mpsc::unbounded_channel();
    let server = tonic::transport::Server::builder()
        .add_service(TraceServiceServer::new(Collector(spans)))
        .serve_with_incoming(TcpListenerStream::new(listener));
    tokio::spawn(server);
    (address, received)
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes any text");
        text
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_callers_trace_goes_on() {
    let (address, mut spans) = collector().await;
    let fixture = Fixture::new("skill root/a");
    let config = format!(
        "roots: [{{id: r, path: root}}]\ntraces: {{otlp: 'http://{address}', ratio: 0}}\n\
         log: {{format: json}}"
    );
    let served = Served::start(&fixture, &config).await;
    // Nobody asked for a trace of this one.
    served.list(&[published("r")]).await;
    for flags in ["00", "01"] {
        let mut request = Request::new(GetExecutorRequest {});
        let parent = format!("00-{TRACE}-{PARENT}-{flags}").parse().expect("metadata");
        request.metadata_mut().insert("traceparent", parent);
        in_time(served.client().get_executor(request)).await.expect("an answer");
    }
    // What is left is sent when it ends.
    drop(served.log().await);
    let span = in_time(spans.recv()).await.expect("a span");
    assert_eq!(span.name, "caproot.v1.CapabilityService/GetExecutor");
    assert_eq!(hex(&span.trace_id), TRACE);
    assert_eq!(hex(&span.parent_span_id), PARENT);
    assert!(spans.try_recv().is_err(), "one call was sampled");
}

#[tokio::test]
async fn a_collector_that_is_not_there_costs_nothing() {
    let fixture = Fixture::new("skill root/a");
    let config = "roots: [{id: r, path: root}]\ntraces: {otlp: 'http://127.0.0.1:1'}\n";
    let served = Served::start(&fixture, config).await;
    assert_eq!(served.packages(&[published("r")]).await, ["skill://r/a"]);
    let log = served.log().await;
    assert!(!log.contains("panicked"), "{log}");
}
