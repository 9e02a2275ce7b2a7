//! In place of `traces` in a build without OpenTelemetry: sends no spans, and says so to who asks for
//! some.

use crate::config::TraceConfig;
use http::HeaderMap;
use tracing::Span;
use tracing_subscriber::layer::Identity;

/// What sends spans: there is none.
#[derive(Debug)]
pub(super) enum SpanProvider {}

/// Refuses.
pub(super) fn build_span_provider(traces: &TraceConfig) -> Result<SpanProvider, String> {
    Err(format!(
        "spans cannot be sent to {}: this caproot was built without the feature `otlp`",
        traces.otlp
    ))
}

pub(super) fn span_layer(provider: &SpanProvider) -> Identity {
    match *provider {}
}

pub(super) fn flush_spans(provider: &SpanProvider) {
    match *provider {}
}

/// The span of one call, which nobody sends.
pub(super) fn call_span(method: &'static str, _: &HeaderMap) -> Span {
    tracing::info_span!(target: "caproot::call", "call", method)
}
