//! The trace that a call belongs to, by the W3C's `traceparent`, and where spans are sent.

use crate::config::TraceConfig;
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

/// For one batch of spans, and for the last one when the daemon stops.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(3);

/// What sends spans.
pub(super) type SpanProvider = SdkTracerProvider;

/// Sends spans to an OTLP collector, in batches, from a thread of its own. What cannot be sent is
/// dropped: the library's queue is bounded.
pub(super) fn build_span_provider(traces: &TraceConfig) -> Result<SpanProvider, String> {
    let exporter = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(&traces.otlp)
        .with_timeout(EXPORT_TIMEOUT)
        .build()
        .map_err(|error| format!("spans cannot be sent to {}: {error}", traces.otlp))?;
    let version = opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let resource = Resource::builder().with_service_name("caproot").with_attribute(version);
    // Who called decides whether a call is traced; of those who do not say, a part is.
    let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(traces.ratio)));
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_sampler(sampler)
        .with_resource(resource.build())
        .build())
}

/// What makes spans of what is logged.
pub(super) fn span_layer<S: Subscriber + for<'a> LookupSpan<'a>>(
    provider: &SpanProvider,
) -> OpenTelemetryLayer<S, SdkTracer> {
    tracing_opentelemetry::layer().with_tracer(provider.tracer("caproot"))
}

/// Sends what is left, waiting a little at most.
pub(super) fn flush_spans(provider: &SpanProvider) {
    if let Err(error) = provider.shutdown_with_timeout(EXPORT_TIMEOUT) {
        tracing::warn!(%error, "the last spans could not be sent");
    }
}

/// The span of one call, below the caller's if the caller named one.
pub(super) fn call_span(method: &'static str, headers: &HeaderMap) -> Span {
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
        // In each line that is logged on the way, too.
        span.record("trace_id", field::display(trace.trace_id()));
        // Refused where no spans are sent, which is no news.
        drop(span.set_parent(parent));
    }
    span
}

/// The two headers of the W3C's trace context, and no others.
struct TraceHeaders<'a>(&'a HeaderMap);

impl Extractor for TraceHeaders<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        vec!["traceparent", "tracestate"]
    }
}
