//! Daemon whose responses are raw bytes, without types.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};
use tokio_stream::StreamExt as _;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::service::Routes;
use tower::Service;

use super::{free_port, start_grpc};

/// Returns the messages of a method.
type Respond = dyn Fn(&str) -> Vec<Bytes> + Send + Sync;

/// Daemon that answers each method with raw messages.
#[derive(Clone)]
pub(crate) struct RawDaemon {
    /// Returns the messages of a method, such as `ListSkills`.
    respond: Arc<Respond>,
    /// Headers at the end of each response.
    trailers: HeaderMap,
    /// Number of calls so far.
    calls: Arc<AtomicUsize>,
}

impl RawDaemon {
    pub(crate) fn new(respond: impl Fn(&str) -> Vec<Bytes> + Send + Sync + 'static) -> Self {
        let status = (
            "grpc-status".parse().expect("a name"),
            HeaderValue::from_static("0"),
        );
        Self {
            respond: Arc::new(respond),
            trailers: HeaderMap::from_iter([status]),
            calls: Arc::default(),
        }
    }

    /// Ends each response with these headers in place of the status `OK`.
    pub(crate) fn with_trailers(self, trailers: HeaderMap) -> Self {
        Self { trailers, ..self }
    }

    /// Serves the daemon until the end of the test. Returns its address, and the number of calls.
    pub(crate) async fn start(self) -> (String, Arc<AtomicUsize>) {
        let calls = self.calls.clone();
        let address = start_grpc(&free_port(), Routes::new(self)).await;
        (address, calls)
    }
}

impl NamedService for RawDaemon {
    const NAME: &'static str = "caproot.v1.CapabilityService";
}

impl Service<Request<Body>> for RawDaemon {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let path = request.uri().path();
        let method = path.rsplit('/').next().unwrap_or_default();
        let mut frames = Vec::new();
        for message in (self.respond)(method) {
            let len = u32::try_from(message.len()).expect("a length");
            let prefix = [&[0][..], &len.to_be_bytes()].concat();
            frames.extend([Bytes::from(prefix), message]);
        }
        let frames = frames.into_iter().map(Frame::data);
        let body = if method == "WatchSkills" {
            let frames = tokio_stream::iter(frames.map(Ok::<_, Infallible>));
            Body::new(StreamBody::new(frames.chain(tokio_stream::pending())))
        } else {
            let frames = frames.chain([Frame::trailers(self.trailers.clone())]);
            Body::new(StreamBody::new(tokio_stream::iter(
                frames.map(Ok::<_, Infallible>),
            )))
        };
        let mut response = Response::new(body);
        let kind = HeaderValue::from_static("application/grpc");
        response.headers_mut().insert("content-type", kind);
        ready(Ok(response))
    }
}
