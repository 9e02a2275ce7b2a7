//! Export of spans, and the trace of each call. Source: W3C Trace Context.

use crate::log_config::TraceConfig;
use caproot_core::sync::try_thread;
use caproot_core::text::SentenceResult as _;
use http::HeaderMap;
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::{TraceContextExt as _, TracerProvider as _};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};
use std::time::Duration;
use tracing::{Span, Subscriber, field};
use tracing_opentelemetry::{OpenTelemetryLayer, OpenTelemetrySpanExt as _};
use tracing_subscriber::registry::LookupSpan;

/// Timeout of sending one batch of spans, also at shutdown.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(3);

/// Provider that exports spans.
pub type SpanProvider = SdkTracerProvider;

/// Builds a provider that sends batches of spans to an OTLP collector from a separate thread. The
/// queue of the library is bounded: if the collector is too slow, spans are dropped.
pub fn build_span_provider(traces: &TraceConfig) -> Result<SpanProvider, String> {
    let exporter = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(&traces.otlp)
        .with_timeout(EXPORT_TIMEOUT)
        .build()
        .context(format_args!("cannot send spans to {}", traces.otlp))?;
    // The library panics if the system refuses the thread.
    try_thread().context("cannot start the thread that sends spans")?;
    let version = opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let resource = Resource::builder()
        .with_service_name("caproot")
        .with_attribute(version);
    // The caller's `traceparent` decides whether a call is traced. Calls without it are sampled.
    let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(traces.ratio)));
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_sampler(sampler)
        .with_resource(resource.build())
        .build())
}

/// Returns the layer that turns tracing spans into OpenTelemetry spans.
pub fn span_layer<S: Subscriber + for<'a> LookupSpan<'a>>(
    provider: &SpanProvider,
) -> OpenTelemetryLayer<S, SdkTracer> {
    tracing_opentelemetry::layer().with_tracer(provider.tracer("caproot"))
}

/// Sends the remaining spans, for at most [`EXPORT_TIMEOUT`].
pub fn flush_spans(provider: &SpanProvider) {
    if let Err(error) = provider.shutdown_with_timeout(EXPORT_TIMEOUT) {
        tracing::warn!(%error, "cannot send the remaining spans");
    }
}

/// Returns the span of a call, as a child of the caller's span if the request has a `traceparent`.
pub fn call_span(method: &'static str, headers: &HeaderMap) -> Span {
    let span = tracing::info_span!(
        target: "caproot::call",
        "call",
        otel.name = method,
        otel.kind = "server",
        rpc.system = "grpc",
        method,
        trace_id = field::Empty,
    );
    let parent = TraceContextPropagator::new().extract(&TraceHeaders(headers));
    let trace = parent.span().span_context().clone();
    if trace.is_valid() {
        // Log lines within the span show the trace id.
        span.record("trace_id", field::display(trace.trace_id()));
        // Fails if the daemon exports no spans.
        drop(span.set_parent(parent));
    }
    span
}

/// Headers of the W3C Trace Context.
struct TraceHeaders<'a>(&'a HeaderMap);

impl Extractor for TraceHeaders<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        vec!["traceparent", "tracestate"]
    }
}
