//! Counters and durations of calls. The layer wraps the whole service, so calls that an inner layer
//! rejects are counted too.

use super::traces;
use caproot_core::proto::grpc_code_name;
use http::{HeaderMap, Request, Response};
use http_body::Body as HttpBody;
use http_body_util::BodyExt as _;
use hyper::body::Bytes;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use std::task::{Context, Poll};
use std::time::Instant;
use tonic::body::Body;
use tonic::codegen::BoxFuture;
use tonic::{Code, Status};
use tower::{BoxError, Service};
use tracing::Instrument as _;

/// Methods that the daemon serves, as values of the label `method`. Any other path counts as
/// `other`, so callers cannot create labels.
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

/// Methods whose duration depends on the caller. Their durations are not recorded.
const STREAMING_METHODS: [&str; 4] = [
    RPC_METHODS[4],
    RPC_METHODS[8],
    RPC_METHODS[9],
    RPC_METHODS[10],
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MethodLabels {
    method: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MethodCodeLabels {
    method: &'static str,
    code: &'static str,
}

/// Metrics of calls. Cheap to clone; all clones share the counters.
#[derive(Debug, Clone)]
pub struct CallMetrics {
    finished: Family<MethodCodeLabels, Counter>,
    in_flight: Family<MethodLabels, Gauge>,
    duration_seconds: Family<MethodLabels, Histogram>,
}

impl CallMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        // From a list of a cached catalog to the first scan of a large root.
        let buckets = || Histogram::new([0.0005, 0.001, 0.0025, 0.01, 0.05, 0.25, 1.0, 5.0, 30.0]);
        let duration_seconds = Family::new_with_constructor(buckets as fn() -> Histogram);
        let metrics = Self {
            finished: Family::default(),
            in_flight: Family::default(),
            duration_seconds,
        };
        let help = "Completed calls, by method and gRPC code; CANCELLED includes calls whose caller disconnected";
        registry.register("calls", help, metrics.finished.clone());
        registry.register(
            "calls_in_flight",
            "Calls in flight; for WatchSkills, open streams",
            metrics.in_flight.clone(),
        );
        registry.register_with_unit(
            "call_duration",
            "Duration of calls other than streams",
            Unit::Seconds,
            metrics.duration_seconds.clone(),
        );
        metrics
    }

    /// Records the calls of a service.
    pub fn count_calls<S>(self, inner: S) -> CallMetricsService<S> {
        let metrics = self;
        CallMetricsService { inner, metrics }
    }

    fn start_call(&self, method: &'static str) -> InFlightCall {
        self.in_flight.get_or_create(&MethodLabels { method }).inc();
        InFlightCall {
            metrics: self.clone(),
            method,
            started_at: Instant::now(),
            code: None,
        }
    }
}

/// Call in flight. Dropping it records the end of the call.
#[derive(Debug)]
struct InFlightCall {
    metrics: CallMetrics,
    method: &'static str,
    started_at: Instant,
    /// `None` if the caller disconnected before the daemon sent a status.
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
        let Self {
            metrics,
            method,
            started_at,
            code,
        } = self;
        let code = grpc_code_name(code.unwrap_or(Code::Cancelled));
        metrics
            .in_flight
            .get_or_create(&MethodLabels { method })
            .dec();
        metrics
            .finished
            .get_or_create(&MethodCodeLabels { method, code })
            .inc();
        if !STREAMING_METHODS.contains(method) {
            let seconds = started_at.elapsed().as_secs_f64();
            metrics
                .duration_seconds
                .get_or_create(&MethodLabels { method })
                .observe(seconds);
        }
    }
}

/// Service that records each call, and runs each call in a span of the caller's trace.
#[derive(Debug, Clone)]
pub struct CallMetricsService<S> {
    inner: S,
    metrics: CallMetrics,
}

impl<S, A, B> Service<Request<A>> for CallMetricsService<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = BoxFuture<Response<Body>, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let path = request.uri().path().strip_prefix('/').unwrap_or_default();
        let method = RPC_METHODS
            .into_iter()
            .find(|method| *method == path)
            .unwrap_or("other");
        let mut call = self.metrics.start_call(method);
        let span = traces::call_span(method, request.headers());
        let response = self.inner.call(request).instrument(span);
        Box::pin(async move {
            let (parts, body) = response.await?.into_parts();
            // The headers of a trailers-only response have the status.
            call.record_status(&parts.headers);
            let body = body.map_frame(move |frame| {
                if let Some(trailers) = frame.trailers_ref() {
                    call.record_status(trailers);
                }
                frame
            });
            Ok(Response::from_parts(parts, Body::new(body)))
        })
    }
}
