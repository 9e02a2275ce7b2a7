//! Answers one Prometheus scrape over HTTP/1.1. Leaves listening to `app`.

use super::Metrics;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

/// For the request's head, and for the whole scrape.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a request that are kept while it comes in.
const MAX_HEAD_BYTES: usize = 16 << 10;

impl Metrics {
    /// Answers whoever connected, and hangs up.
    pub async fn serve_scrape(&self, io: impl AsyncRead + AsyncWrite + Unpin) {
        let answer = service_fn(async |request: Request<Incoming>| {
            Ok::<_, Infallible>(self.respond(request.method(), request.uri().path()))
        });
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(SCRAPE_TIMEOUT)
            .keep_alive(false)
            .max_buf_size(MAX_HEAD_BYTES)
            .serve_connection(TokioIo::new(io), answer);
        match tokio::time::timeout(SCRAPE_TIMEOUT, serving).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "a scrape failed"),
            Err(_) => tracing::debug!("a scrape took too long"),
        }
    }

    fn respond(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        let says = |status, kind, text: String| {
            let mut response = Response::new(Full::new(Bytes::from(text)));
            *response.status_mut() = status;
            let kind = header::HeaderValue::from_static(kind);
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
            response
        };
        let plain = "text/plain; charset=utf-8";
        if path != "/metrics" {
            return says(StatusCode::NOT_FOUND, plain, "the metrics are at /metrics\n".into());
        }
        if method != Method::GET && method != Method::HEAD {
            return says(StatusCode::METHOD_NOT_ALLOWED, plain, "ask by GET\n".into());
        }
        let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        match self.render() {
            Ok(text) => says(StatusCode::OK, kind, text),
            Err(error) => says(StatusCode::INTERNAL_SERVER_ERROR, plain, format!("{error}\n")),
        }
    }
}
