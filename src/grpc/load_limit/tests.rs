use super::{
    Body, Bytes, Duration, LoadLimitLayer, PeerIdentity, Quota, Request, Response, Status,
};
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
    LoadLimitLayer {
        call_quota: Quota::new(("calls", calls), ("own calls", calls)),
        byte_quota: Quota::new(("bytes", bytes), ("own bytes", bytes)),
        request_timeout: Duration::from_millis(20),
    }
}

fn request(body: Vec<Option<Bytes>>) -> Request<ChunkedBody> {
    let mut request = Request::new(ChunkedBody(body));
    request.extensions_mut().insert(PeerIdentity::Local { pid: 1, uid: 1, gids: Arc::default() });
    request
}

/// Calls a method that reads the whole request and responds with `answer` bytes.
async fn call_method(
    door: &LoadLimitLayer,
    request: Request<ChunkedBody>,
    answer: usize,
) -> Response<Body> {
    let method = move |request: Request<Body>| async move {
        let mut body = request.into_body();
        while let Some(frame) = next_frame(&mut body).await {
            if let Err(status) = frame {
                return Ok::<_, Infallible>(status.into_http());
            }
        }
        Ok(Response::new(Body::new(ChunkedBody(vec![Some(vec![7; answer].into())]))))
    };
    door.layer(service_fn(method)).oneshot(request).await.expect("an answer")
}

async fn next_frame(body: &mut Body) -> Option<Result<Frame<Bytes>, Status>> {
    poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await
}

fn status_code(answer: &Response<Body>) -> Code {
    Status::from_header_map(answer.headers()).map_or(Code::Ok, |status| status.code())
}

#[tokio::test]
async fn a_request_that_does_not_arrive() {
    let half = request(vec![Some(Bytes::from_static(b"half")), None]);
    assert_eq!(
        status_code(&call_method(&test_layer(9, 99), half, 1).await),
        Code::DeadlineExceeded
    );
    // Reflection calls have no time limit for the request.
    let mut talk = request(vec![None]);
    *talk.uri_mut() = "/grpc.reflection.v1.ServerReflection/X".parse().expect("a path");
    let door = test_layer(9, 99);
    let talk = tokio::time::timeout(Duration::from_millis(200), call_method(&door, talk, 1));
    assert!(talk.await.is_err());
}

#[tokio::test]
async fn a_deadline_ends_the_method() {
    struct Dropped(Arc<AtomicBool>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let over = Arc::new(AtomicBool::new(false));
    let method = |_| {
        let dropped = Dropped(over.clone());
        async move {
            let _dropped = dropped;
            pending::<Result<Response<Body>, Infallible>>().await
        }
    };
    let mut request = request(Vec::new());
    request.headers_mut().insert("grpc-timeout", "5m".parse().expect("a header"));
    let answer =
        test_layer(1, 1).layer(service_fn(method)).oneshot(request).await.expect("an answer");
    assert_eq!(status_code(&answer), Code::DeadlineExceeded);
    assert!(over.load(Ordering::Relaxed));
}

#[tokio::test]
async fn a_call_lasts_until_its_answer_is_taken() {
    let door = test_layer(1, 99);
    let mut answer = call_method(&door, request(Vec::new()), 4).await;
    assert_eq!(
        status_code(&call_method(&door, request(Vec::new()), 4).await),
        Code::ResourceExhausted
    );
    let part = next_frame(answer.body_mut()).await.expect("a part").expect("a good one");
    assert!(next_frame(answer.body_mut()).await.is_none());
    drop(answer);
    assert_eq!(
        status_code(&call_method(&door, request(Vec::new()), 4).await),
        Code::ResourceExhausted
    );
    drop(part);
    assert_eq!(status_code(&call_method(&door, request(Vec::new()), 4).await), Code::Ok);
}

#[tokio::test]
async fn what_is_held_is_bounded() {
    let door = test_layer(9, 40_000);
    let large = request(vec![Some(vec![0; 40_001].into())]);
    assert_eq!(status_code(&call_method(&door, large, 1).await), Code::ResourceExhausted);
    let mut one = call_method(&door, request(Vec::new()), 40_000).await;
    let part = next_frame(one.body_mut()).await.expect("a part").expect("a good one");
    let part = part.into_data().expect("data");
    assert_eq!(part.len(), 40_000);
    assert!(next_frame(one.body_mut()).await.is_none());
    let mut other = call_method(&door, request(Vec::new()), 1).await;
    let refusal = next_frame(other.body_mut()).await.expect("trailers").expect("good ones");
    let refusal = refusal.into_trailers().expect("trailers");
    let refusal = Status::from_header_map(&refusal).expect("a status");
    assert_eq!(refusal.code(), Code::ResourceExhausted);
    assert!(refusal.message().contains("own bytes is 40000"), "{refusal:?}");
    assert!(next_frame(other.body_mut()).await.is_none());
    drop(part);
    let mut other = call_method(&door, request(Vec::new()), 1).await;
    assert!(next_frame(other.body_mut()).await.expect("a part").expect("a good one").is_data());
}
