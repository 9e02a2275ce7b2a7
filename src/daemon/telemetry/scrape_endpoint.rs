//! HTTP endpoint of metrics in the `OpenMetrics` format.

use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

/// Timeout of the request header, and of the whole scrape.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of the request header.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// Metrics for Prometheus. Cheap to clone; all clones share the metrics.
#[derive(Debug, Clone)]
pub struct ScrapeEndpoint(Arc<Registry>);

impl ScrapeEndpoint {
    /// Creates the endpoint of a registry.
    #[must_use]
    pub fn new(registry: Registry) -> Self {
        Self(Arc::new(registry))
    }

    /// Serves one HTTP/1.1 request of Prometheus and closes the connection.
    pub async fn serve_scrape(&self, io: impl AsyncRead + AsyncWrite + Unpin) {
        let service = service_fn(async |request: Request<Incoming>| {
            Ok::<_, Infallible>(self.respond(request.method(), request.uri().path()))
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(SCRAPE_TIMEOUT)
            .keep_alive(false)
            .max_buf_size(MAX_HEAD_BYTES)
            .serve_connection(TokioIo::new(io), service);
        match tokio::time::timeout(SCRAPE_TIMEOUT, connection).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "scrape failed"),
            Err(_) => tracing::debug!("scrape timed out"),
        }
    }

    fn respond(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        let response = |status, content_type, text: String| {
            let mut response = Response::new(Full::new(Bytes::from(text)));
            *response.status_mut() = status;
            let content_type = header::HeaderValue::from_static(content_type);
            response
                .headers_mut()
                .insert(header::CONTENT_TYPE, content_type);
            response
        };

        let plain = "text/plain; charset=utf-8";
        let is_get = method == Method::GET || method == Method::HEAD;
        if path == "/" && is_get {
            let text = "caproot serves metrics for Prometheus here: scrape /metrics\n";
            return response(StatusCode::OK, plain, text.into());
        }

        if path != "/metrics" {
            let text = "not found: the metrics are at /metrics\n";
            return response(StatusCode::NOT_FOUND, plain, text.into());
        }
        if !is_get {
            let text = "method not allowed: use GET or HEAD\n";
            return response(StatusCode::METHOD_NOT_ALLOWED, plain, text.into());
        }

        let open_metrics = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        let mut text = String::new();
        match encode(&mut text, &self.0) {
            Ok(()) => response(StatusCode::OK, open_metrics, text),
            Err(error) => response(
                StatusCode::INTERNAL_SERVER_ERROR,
                plain,
                format!("{error}\n"),
            ),
        }
    }
}
