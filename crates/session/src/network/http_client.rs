//! HTTP client of the session: MCP servers, sites and managers.

use bytes::Bytes;
use caproot_core::net::endpoint::is_loopback_host;
use caproot_core::text::SentenceResult as _;
use futures_util::{Stream, StreamExt as _, stream};
use rustls::RootCertStore;
use sse_stream::{Sse, SseStream};
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Start of the error of a client that cannot be built.
const NO_CLIENT: &str = "there is no HTTP client";

/// Returns the builder of an HTTP client for a URL. The client follows no redirects, so that no
/// other server gets the headers.
pub async fn http_client_builder(url: &str) -> Result<reqwest::ClientBuilder, String> {
    let roots = if url.starts_with("https:") {
        // The certificate authorities that this machine trusts are read from files.
        tokio::task::spawn_blocking(|| {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            roots
        })
        .await
        .context(NO_CLIENT)?
    } else {
        RootCertStore::empty()
    };

    let provider = rustls::crypto::ring::default_provider();
    let tls = rustls::ClientConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .context(NO_CLIENT)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(reqwest::redirect::Policy::none());

    // A proxy of the environment would see the headers, and has another loopback interface.
    Ok(if is_loopback_url(url) {
        builder.no_proxy()
    } else {
        builder
    })
}

/// Returns the client of a builder.
pub fn build_client(builder: reqwest::ClientBuilder) -> Result<reqwest::Client, String> {
    builder.build().context(NO_CLIENT)
}

/// Sends a request. The error is the root cause.
pub async fn send_request(request: reqwest::RequestBuilder) -> Result<reqwest::Response, String> {
    request.send().await.map_err(|error| root_cause(&error))
}

/// Returns the next bytes of a body. The error is the root cause.
pub async fn next_chunk(response: &mut reqwest::Response) -> Result<Option<Bytes>, String> {
    response.chunk().await.map_err(|error| root_cause(&error))
}

/// Reads a body of at most `limit` bytes.
pub async fn read_body(mut response: reqwest::Response, limit: usize) -> Result<Vec<u8>, String> {
    // A vector that grows would take up to twice the memory.
    let declared = response.content_length().unwrap_or_default();
    let mut body = Vec::with_capacity(usize::try_from(declared).unwrap_or(limit).min(limit));
    while let Some(chunk) = next_chunk(&mut response).await? {
        if body.len() + chunk.len() > limit {
            return Err(format!("the response is over {limit} bytes"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Returns the events of a body. Fails if an event is over `max_bytes`.
pub fn event_stream(
    response: reqwest::Response,
    max_bytes: usize,
) -> impl Stream<Item = Result<Sse, sse_stream::Error>> + Send + 'static {
    // Bytes since the last event.
    let unread = Arc::new(AtomicUsize::new(0));
    let source = (response, unread.clone());
    let chunks = stream::try_unfold(source, move |(mut response, unread)| async move {
        let received = next_chunk(&mut response).await;
        let Some(chunk) = received.map_err(io::Error::other)? else {
            return Ok(None);
        };

        let before = unread.fetch_add(chunk.len(), Ordering::Relaxed);
        if before + chunk.len() > max_bytes {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("an event is over {} MiB", max_bytes >> 20),
            ));
        }
        Ok(Some((chunk, (response, unread))))
    });
    SseStream::from_bytes_stream(Box::pin(chunks))
        .inspect(move |_| unread.store(0, Ordering::Relaxed))
}

/// Returns the innermost error, which says more than "error sending request".
pub fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Returns whether the host of a URL is this machine.
pub fn is_loopback_url(url: &str) -> bool {
    url.parse::<reqwest::Url>()
        .is_ok_and(|url| url.host_str().is_some_and(is_loopback_host))
}
