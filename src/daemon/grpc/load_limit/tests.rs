use super::{
    Body, Bytes, Duration, LoadLimitLayer, LoadQuotas, PeerIdentity, Quota, Request, Response,
    Status,
};
use crate::daemon::grpc::encoded_body::encode_with_field;
use crate::daemon::grpc::{AuditLog, AuthLayer, AuthRules};
use caproot_core::proto::caproot::v1 as pb;
use http_body::{Body as _, Frame};
use std::convert::Infallible;
use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tonic::Code;
use tower::{Layer as _, ServiceExt as _, service_fn};

/// Body of several chunks. If the last chunk is `None`, the body never ends.
struct ChunkedBody(Vec<Option<Bytes>>);

impl http_body::Body for ChunkedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match self.0.first() {
            None => Poll::Ready(None),
            Some(None) => Poll::Pending,
            Some(Some(_)) => Poll::Ready(self.0.remove(0).map(|part| Ok(Frame::data(part)))),
        }
    }
}

fn test_layer(calls: usize, bytes: usize) -> LoadLimitLayer {
    let quotas = LoadQuotas {
        calls: Quota::new(("calls", calls), ("own calls", calls)),
        bytes: Quota::new(("bytes", bytes), ("own bytes", bytes)),
    };
    let rules = AuthRules {
        callers: None,
        public_health: true,
        public_reflection: true,
    };
    LoadLimitLayer {
        new_connection_quotas: quotas.clone(),
        quotas,
        auth: AuthLayer::new(rules, AuditLog::new(false)),
        request_timeout: Duration::from_millis(20),
    }
}

fn request(body: Vec<Option<Bytes>>) -> Request<ChunkedBody> {
    let mut request = Request::new(ChunkedBody(body));
    request.extensions_mut().insert(PeerIdentity::Local {
        pid: 1,
        uid: 1,
        gids: Arc::default(),
    });
    request
}

/// Calls a method that reads the whole request and responds with `response_len` bytes.
async fn call_method(
    layer: &LoadLimitLayer,
    request: Request<ChunkedBody>,
    response_len: usize,
) -> Response<Body> {
    let method = move |request: Request<Body>| async move {
        let mut body = request.into_body();
        while let Some(frame) = next_frame(&mut body).await {
            if let Err(status) = frame {
                return Ok::<_, Infallible>(status.into_http());
            }
        }
        Ok(Response::new(Body::new(ChunkedBody(vec![Some(
            vec![7; response_len].into(),
        )]))))
    };
    layer
        .layer(service_fn(method))
        .oneshot(request)
        .await
        .expect("infallible service")
}

async fn next_frame(body: &mut Body) -> Option<Result<Frame<Bytes>, Status>> {
    poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await
}

fn status_code(response: &Response<Body>) -> Code {
    Status::from_header_map(response.headers()).map_or(Code::Ok, |status| status.code())
}

#[tokio::test]
async fn slow_request_times_out() {
    let half = request(vec![Some(Bytes::from_static(b"half")), None]);
    assert_eq!(
        status_code(&call_method(&test_layer(9, 99), half, 1).await),
        Code::DeadlineExceeded
    );
    // Reflection calls have no time limit for the request.
    let mut reflection = request(vec![None]);
    *reflection.uri_mut() = "/grpc.reflection.v1.ServerReflection/X"
        .parse()
        .expect("valid path");
    let layer = test_layer(9, 99);
    let reflection = tokio::time::timeout(
        Duration::from_millis(200),
        call_method(&layer, reflection, 1),
    );
    assert!(reflection.await.is_err());
}

#[tokio::test]
async fn deadline_cancels_method() {
    struct Dropped(Arc<AtomicBool>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let is_dropped = Arc::new(AtomicBool::new(false));
    let dropped_flag = is_dropped.clone();
    let method = move |_| {
        let dropped = Dropped(dropped_flag.clone());
        async move {
            let _dropped = dropped;
            pending::<Result<Response<Body>, Infallible>>().await
        }
    };
    let mut request = request(Vec::new());
    request
        .headers_mut()
        .insert("grpc-timeout", "5m".parse().expect("valid header"));
    let response = test_layer(1, 1)
        .layer(service_fn(method))
        .oneshot(request)
        .await
        .expect("infallible service");
    assert_eq!(status_code(&response), Code::DeadlineExceeded);
    assert!(is_dropped.load(Ordering::Relaxed));
}

#[tokio::test]
async fn malformed_metadata_is_rejected() {
    for timeout in ["", "5", "S", "+5S", "5s", "1.5S", "123456789S", "5 S"] {
        let mut request = request(Vec::new());
        let value = timeout.parse().expect("valid header");
        request.headers_mut().insert("grpc-timeout", value);
        let response = call_method(&test_layer(1, 99), request, 1).await;
        let status = Status::from_header_map(response.headers()).expect("gRPC status");
        assert_eq!(status.code(), Code::InvalidArgument, "{timeout:?}");
        assert!(status.message().contains("such as `5S`"), "{status:?}");
    }
    for (len, code) in [(16_000, Code::Ok), (16_400, Code::ResourceExhausted)] {
        let mut request = request(Vec::new());
        let value = "x".repeat(len).parse().expect("valid header");
        request.headers_mut().insert("x-long", value);
        let response = call_method(&test_layer(1, 99), request, 1).await;
        assert_eq!(status_code(&response), code, "{len}");
    }
}

#[tokio::test]
async fn call_permit_is_held_until_response_is_sent() {
    let layer = test_layer(1, 99);
    let mut response = call_method(&layer, request(Vec::new()), 4).await;
    assert_eq!(
        status_code(&call_method(&layer, request(Vec::new()), 4).await),
        Code::ResourceExhausted
    );
    let chunk = next_frame(response.body_mut())
        .await
        .expect("chunk")
        .expect("no error");
    assert!(next_frame(response.body_mut()).await.is_none());
    drop(response);
    assert_eq!(
        status_code(&call_method(&layer, request(Vec::new()), 4).await),
        Code::ResourceExhausted
    );
    drop(chunk);
    assert_eq!(
        status_code(&call_method(&layer, request(Vec::new()), 4).await),
        Code::Ok
    );
}

#[tokio::test]
async fn buffered_bytes_are_limited() {
    let layer = test_layer(9, 40_000);
    let large = request(vec![Some(vec![0; 40_001].into())]);
    assert_eq!(
        status_code(&call_method(&layer, large, 1).await),
        Code::ResourceExhausted
    );
    let mut one = call_method(&layer, request(Vec::new()), 40_000).await;
    let chunk = next_frame(one.body_mut())
        .await
        .expect("chunk")
        .expect("no error");
    let chunk = chunk.into_data().expect("data");
    assert_eq!(chunk.len(), 40_000);
    assert!(next_frame(one.body_mut()).await.is_none());
    let mut other = call_method(&layer, request(Vec::new()), 1).await;
    let status = next_frame(other.body_mut())
        .await
        .expect("trailers")
        .expect("no error");
    let status = status.into_trailers().expect("trailers");
    let status = Status::from_header_map(&status).expect("gRPC status");
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(
        status.message().contains("own bytes is 40000"),
        "{status:?}"
    );
    assert!(next_frame(other.body_mut()).await.is_none());
    drop(chunk);
    let mut other = call_method(&layer, request(Vec::new()), 1).await;
    assert!(
        next_frame(other.body_mut())
            .await
            .expect("chunk")
            .expect("no error")
            .is_data()
    );
}

#[tokio::test]
async fn whole_message_is_counted_with_first_chunk() {
    let method = |_| async {
        let roots = pb::ListRootsResponse::default();
        let message = encode_with_field(&roots, 99, vec![7; 40_000]).expect("short message");
        Ok::<_, Infallible>(message.into_response())
    };
    for (limit, is_sent) in [(40_000, false), (41_000, true)] {
        let service = test_layer(9, limit).layer(service_fn(method));
        let mut response = service
            .oneshot(request(Vec::new()))
            .await
            .expect("infallible service");
        let head = next_frame(response.body_mut())
            .await
            .expect("frame")
            .expect("no error");
        assert_eq!(head.is_data(), is_sent, "{limit}");
        if is_sent {
            let tail = next_frame(response.body_mut())
                .await
                .expect("frame")
                .expect("no error");
            assert_eq!(tail.into_data().expect("data").len(), 40_000);
        }
    }
}
