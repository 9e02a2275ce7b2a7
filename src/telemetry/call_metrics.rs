//! Counts calls: how many began, how each ended, how long it took. Wraps the whole service, so that
//! what a layer inside refuses is counted too.

use super::traces;
use crate::proto::grpc_code_name;
use http::{HeaderMap, Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Bytes;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{BoxError, Layer, Service};
use tracing::Instrument as _;

/// What is served. A path that is none of these is a stranger's text and counts as `other`, so that
/// nobody can make labels.
pub const RPC_METHODS: [&str; 11] = [
    "caproot.v1.CapabilityService/GetExecutor",
    "caproot.v1.CapabilityService/ListRoots",
    "caproot.v1.CapabilityService/ResolveRoots",
    "caproot.v1.CapabilityService/ListSkills",
    "caproot.v1.CapabilityService/WatchSkills",
    "caproot.v1.CapabilityService/ListResources",
    "caproot.v1.CapabilityService/ReadResource",
    "grpc.health.v1.Health/Check",
    "grpc.health.v1.Health/Watch",
    "grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// Those that go on for as long as the caller likes: how long says nothing of the daemon.
const STREAMING_METHODS: [&str; 4] =
    [RPC_METHODS[4], RPC_METHODS[8], RPC_METHODS[9], RPC_METHODS[10]];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MethodLabels {
    method: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MethodCodeLabels {
    method: &'static str,
    code: &'static str,
}

/// The counts. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub(super) struct CallMetrics {
    finished: Family<MethodCodeLabels, Counter>,
    in_flight: Family<MethodLabels, Gauge>,
    duration_seconds: Family<MethodLabels, Histogram>,
}

impl CallMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        // From a list out of memory to a first search of a large root.
        let buckets = || Histogram::new([0.0005, 0.001, 0.0025, 0.01, 0.05, 0.25, 1.0, 5.0, 30.0]);
        let seconds = Family::new_with_constructor(buckets as fn() -> Histogram);
        let calls = Self {
            finished: Family::default(),
            in_flight: Family::default(),
            duration_seconds: seconds,
        };
        registry.register("calls", "Calls that ended, by method and code", calls.finished.clone());
        registry.register("calls_in_flight", "Calls that have not ended", calls.in_flight.clone());
        registry.register_with_unit(
            "call_duration",
            "How long calls took, streams excepted",
            Unit::Seconds,
            calls.duration_seconds.clone(),
        );
        calls
    }

    fn start_call(&self, method: &'static str) -> InFlightCall {
        self.in_flight.get_or_create(&MethodLabels { method }).inc();
        InFlightCall { metrics: self.clone(), method, started_at: Instant::now(), code: None }
    }
}

/// One call; dropped when it ends, however it does.
#[derive(Debug)]
struct InFlightCall {
    metrics: CallMetrics,
    method: &'static str,
    started_at: Instant,
    /// `None` where the caller went away before the daemon had said how it ended.
    code: Option<Code>,
}

impl InFlightCall {
    fn record_status(&mut self, headers: &HeaderMap) {
        if let Some(status) = Status::from_header_map(headers) {
            self.code = Some(status.code());
        }
    }
}

impl Drop for InFlightCall {
    fn drop(&mut self) {
        let Self { metrics: calls, method, started_at: begun, code } = self;
        let code = grpc_code_name(code.unwrap_or(Code::Cancelled));
        calls.in_flight.get_or_create(&MethodLabels { method }).dec();
        calls.finished.get_or_create(&MethodCodeLabels { method, code }).inc();
        if !STREAMING_METHODS.contains(method) {
            let seconds = begun.elapsed().as_secs_f64();
            calls.duration_seconds.get_or_create(&MethodLabels { method }).observe(seconds);
        }
    }
}

/// Wraps a service.
#[derive(Debug, Clone)]
pub struct CallMetricsLayer(pub(super) CallMetrics);

impl<S> Layer<S> for CallMetricsLayer {
    type Service = CallMetricsService<S>;

    fn layer(&self, inner: S) -> CallMetricsService<S> {
        CallMetricsService { inner, metrics: self.0.clone() }
    }
}

/// A service whose calls are counted and belong to the caller's trace.
#[derive(Debug, Clone)]
pub struct CallMetricsService<S> {
    inner: S,
    metrics: CallMetrics,
}

impl<S, A, B> Service<Request<A>> for CallMetricsService<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let path = request.uri().path().strip_prefix('/').unwrap_or_default();
        let method = RPC_METHODS.into_iter().find(|method| *method == path).unwrap_or("other");
        let mut call = self.metrics.start_call(method);
        let span = traces::call_span(method, request.headers());
        let answer = self.inner.call(request).instrument(span);
        Box::pin(async move {
            let (parts, body) = answer.await?.into_parts();
            // An answer that is an error alone says so in its head.
            call.record_status(&parts.headers);
            Ok(Response::from_parts(parts, Body::new(CallMetricsBody { body, call })))
        })
    }
}

/// The answer's body, which ends with the status.
struct CallMetricsBody<B> {
    body: B,
    call: InFlightCall,
}

impl<B: HttpBody<Data = Bytes> + Unpin> HttpBody for CallMetricsBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(trailers) = frame.trailers_ref()
        {
            this.call.record_status(trailers);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
