//! Spans that the daemon sends to a collector, with the caller's trace as parent.

use caproot_core::proto::caproot::v1::GetExecutorRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::sync::mpsc;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use crate::harness::fixture::Fixture;
use crate::harness::process::ConfiguredDaemon;
use crate::harness::test_servers::{free_port, start_grpc};
use crate::harness::{in_time, published};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// OTLP collector that forwards the spans it receives.
struct SpanCollector(mpsc::UnboundedSender<Span>);

#[tonic::async_trait]
impl TraceService for SpanCollector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let resources = request.into_inner().resource_spans.into_iter();
        let scopes = resources.flat_map(|resource| resource.scope_spans);
        scopes
            .flat_map(|scope| scope.spans)
            .for_each(|span| drop(self.0.send(span)));
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes any text");
        text
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sampled_call_continues_its_callers_trace() {
    let (sender, mut spans) = mpsc::unbounded_channel();
    let collector = Routes::new(TraceServiceServer::new(SpanCollector(sender)));
    let address = start_grpc(&free_port(), collector).await;
    let fixture = Fixture::new("skill root/a");
    let config = format!(
        "roots: [{{id: r, path: root}}]\ntraces: {{otlp: 'http://{address}', ratio: 0}}\n\
         log: {{format: json}}"
    );
    let served = ConfiguredDaemon::start(&fixture, &config).await;
    // This call has no trace context.
    served.list(&[published("r")]).await;
    for flags in ["00", "01"] {
        let mut request = Request::new(GetExecutorRequest {});
        let parent = format!("00-{TRACE}-{PARENT}-{flags}")
            .parse()
            .expect("metadata");
        request.metadata_mut().insert("traceparent", parent);
        in_time(served.client.clone().get_executor(request))
            .await
            .expect("an answer");
    }
    // The daemon sends the remaining spans at shutdown.
    drop(served.stop().await);
    let span = in_time(spans.recv()).await.expect("a span");
    assert_eq!(span.name, "caproot.v1.CapabilityService/GetExecutor");
    assert_eq!(hex(&span.trace_id), TRACE);
    assert_eq!(hex(&span.parent_span_id), PARENT);
    assert!(spans.try_recv().is_err(), "one call was sampled");
}

#[tokio::test]
async fn a_missing_collector_does_no_harm() {
    let fixture = Fixture::new("skill root/a");
    let config = "roots: [{id: r, path: root}]\ntraces: {otlp: 'http://127.0.0.1:1'}\n";
    let served = ConfiguredDaemon::start(&fixture, config).await;
    assert_eq!(served.packages(&[published("r")]).await, ["skill://r/a"]);
    let log = served.stop().await;
    assert!(!log.contains("panicked"), "{log}");
}
