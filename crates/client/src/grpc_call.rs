//! Calls of the service over HTTP/2. Each response, of a call or of a stream, is received and decoded
//! here, within the [response budget](crate::connect::response_budget): its memory is computed before it is
//! decoded.

use super::message_cost::{CostError, measure};
use crate::connect::executor_channel::ExecutorChannel;
use crate::connect::response_budget::{
    BudgetPermit, MAX_MESSAGE_BYTES, MAX_MESSAGE_MEMORY, MeteredMessage, RECEIVE_TIMEOUT,
    SMALL_MESSAGE_BYTES, acquire_decoded, acquire_received,
};
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use caproot_core::proto::NamedMessage;
use caproot_core::proto::caproot::v1::{
    GetExecutorRequest, GetExecutorResponse, ListResourcesRequest, ListResourcesResponse,
    ListRootsRequest, ListRootsResponse, ListSkillsRequest, ListSkillsResponse,
    ReadResourceRequest, ReadResourceResponse, ResolveRootsRequest, ResolveRootsResponse,
    WatchSkillsRequest, WatchSkillsResponse,
};
use http::header::{CONTENT_TYPE, TE};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, Version};
use http_body_util::{BodyExt as _, Full};
use prost::Message;
use std::error::Error as _;
use std::marker::PhantomData;
use std::sync::Arc;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};
use tonic::body::Body;
use tonic::{Code, Request, Status};
use tower::Service as _;

/// Bytes before each message: a flag for compression, and the length.
const PREFIX_BYTES: usize = 5;

/// Request of a method of the service.
pub trait ServiceRequest: Message + Clone + 'static {
    type Response: NamedMessage;
    /// Path of the method.
    const PATH: &'static str;
}

macro_rules! methods {
    ($($method:ident($request:ty) -> $response:ty;)+) => {
        $(impl ServiceRequest for $request {
            type Response = $response;
            const PATH: &'static str =
                concat!("/caproot.v1.CapabilityService/", stringify!($method));
        })+
    };
}

methods! {
    GetExecutor(GetExecutorRequest) -> GetExecutorResponse;
    ListResources(ListResourcesRequest) -> ListResourcesResponse;
    ListRoots(ListRootsRequest) -> ListRootsResponse;
    ListSkills(ListSkillsRequest) -> ListSkillsResponse;
    ReadResource(ReadResourceRequest) -> ReadResourceResponse;
    ResolveRoots(ResolveRootsRequest) -> ResolveRootsResponse;
    WatchSkills(WatchSkillsRequest) -> WatchSkillsResponse;
}

/// A response is larger than the limits of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the response is larger than the limits of the client")]
pub struct ResponseTooLarge;

impl ResponseTooLarge {
    /// Whether this error ended the call.
    #[must_use]
    pub fn is_cause_of(status: &Status) -> bool {
        status
            .source()
            .is_some_and(<dyn std::error::Error>::is::<Self>)
    }

    /// Returns the status of a call that ended with this error.
    pub fn into_status(self, message: String) -> Status {
        let mut status = Status::out_of_range(message);
        status.set_source(Arc::new(self));
        status
    }
}

/// Makes a call with one response.
pub async fn call_once<Q: ServiceRequest>(
    channel: ExecutorChannel,
    request: Request<Q>,
) -> Result<MeteredMessage<Q::Response>, Status> {
    let mut stream = open_stream(channel, request).await?;
    let message = stream
        .receive_message()
        .await?
        .ok_or_else(|| Status::internal("the response has no message"))?;

    // The status follows the message. The message of a failed call is not decoded.
    stream.receive_end().await?;
    decode_message(&message).await
}

/// Makes a call with a stream of responses. Returns once the stream is open.
pub async fn open_stream<Q: ServiceRequest>(
    mut channel: ExecutorChannel,
    request: Request<Q>,
) -> Result<ResponseStream<Q::Response>, Status> {
    let response = channel.call(http_request(request)).await;
    let (head, body) = response.map_err(Status::from_error)?.into_parts();

    // A call that fails at once has its status in the headers: the Trailers-Only response of gRPC.
    let status = Status::from_header_map(&head.headers);
    if let Some(status) = status.filter(|status| status.code() != Code::Ok) {
        return Err(status);
    }
    Ok(ResponseStream {
        body: Mutex::new(body),
        buffer: BytesMut::new(),
        http_status: head.status,
        trailers: None,
        is_complete: false,
        permit: None,
        deadline: None,
        received: None,
        message: PhantomData,
    })
}

fn http_request<Q: ServiceRequest>(request: Request<Q>) -> http::Request<Body> {
    let (metadata, extensions, message) = request.into_parts();
    let len = message.encoded_len();
    let mut body = BytesMut::with_capacity(PREFIX_BYTES + len);
    body.put_u8(0);
    // The daemon rejects a message that does not fit.
    body.put_u32(u32::try_from(len).unwrap_or(u32::MAX));
    message.encode(&mut body).expect("the buffer has no limit");

    let mut request = http::Request::new(Body::new(Full::new(body.freeze())));
    *request.method_mut() = Method::POST;
    *request.version_mut() = Version::HTTP_2;
    *request.uri_mut() = Uri::from_static(Q::PATH);
    *request.headers_mut() = metadata.into_headers();
    *request.extensions_mut() = extensions;
    let headers = request.headers_mut();
    // gRPC servers detect proxies without trailers by this header.
    headers.insert(TE, HeaderValue::from_static("trailers"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    request
}

/// Decodes a message as soon as the budget has room for it.
async fn decode_message<M: NamedMessage>(
    received: &ReceivedMessage,
) -> Result<MeteredMessage<M>, Status> {
    let len = received.bytes.len();
    let cost = measure::<M>(&received.bytes, MAX_MESSAGE_MEMORY).map_err(|error| match error {
        CostError::OverLimit => ResponseTooLarge.into_status(format!(
            "the response is too large: its {len} bytes would take over {} MiB of memory",
            MAX_MESSAGE_MEMORY >> 20
        )),
        CostError::Malformed => Status::internal("the response is malformed"),
    })?;

    let permit = acquire_decoded(cost.bytes).await;
    let message = M::decode(&*received.bytes)
        .map_err(|error| Status::internal(format!("the response is malformed: {error}")))?;
    Ok(MeteredMessage {
        message,
        memory: cost.bytes,
        permit,
    })
}

/// Message that was received whole.
#[derive(Debug)]
struct ReceivedMessage {
    bytes: Bytes,
    /// Part of the budget; `None` for a small message.
    _permit: Option<BudgetPermit>,
}

/// Responses of one call. Dropping it ends the call.
#[derive(Debug)]
pub struct ResponseStream<M> {
    /// A body is not `Sync`; the mutex is never locked.
    body: Mutex<Body>,
    /// Received bytes of the next message.
    buffer: BytesMut,
    http_status: StatusCode,
    trailers: Option<HeaderMap>,
    /// Whether the body has ended.
    is_complete: bool,
    /// Part of the budget for the next message.
    permit: Option<BudgetPermit>,
    /// Time at which receiving the next message ends, if the message is large.
    deadline: Option<Instant>,
    /// Message that was received and not decoded yet.
    received: Option<ReceivedMessage>,
    message: PhantomData<fn() -> M>,
}

impl<M: NamedMessage> ResponseStream<M> {
    /// Returns the next message; `None` at the end of a stream without an error. Cancel-safe.
    pub async fn message(&mut self) -> Result<Option<MeteredMessage<M>>, Status> {
        if self.received.is_none() {
            self.received = self.receive_message().await?;
        }
        let Some(received) = &self.received else {
            return Ok(None);
        };
        // The message stays in `received` while it is decoded, so that a dropped future loses nothing.
        let message = decode_message(received).await?;
        self.received = None;
        Ok(Some(message))
    }

    /// Receives the next message. Cancel-safe.
    async fn receive_message(&mut self) -> Result<Option<ReceivedMessage>, Status> {
        loop {
            let len = self.message_len()?;
            if let Some(len) = len
                && self.buffer.len() >= PREFIX_BYTES + len
            {
                return Ok(Some(self.take_message(len)));
            }
            if self.is_complete {
                return self.end_status().map(|()| None);
            }

            if let Some(len) = len.filter(|len| *len > SMALL_MESSAGE_BYTES)
                && self.permit.is_none()
            {
                self.permit = Some(acquire_received(len).await);
                self.deadline = Some(Instant::now() + RECEIVE_TIMEOUT);
                self.buffer.reserve(PREFIX_BYTES + len - self.buffer.len());
            }
            self.receive_frame().await?;
        }
    }

    /// Receives the status after the last message. A further message must not wait for the budget,
    /// because the first message has a part of the budget already.
    async fn receive_end(&mut self) -> Result<(), Status> {
        self.deadline = Some(Instant::now() + RECEIVE_TIMEOUT);
        while !self.is_complete && self.buffer.is_empty() {
            self.receive_frame().await?;
        }
        if self.buffer.is_empty() {
            self.end_status()
        } else {
            Err(Status::internal("the response has several messages"))
        }
    }

    /// Returns the length of the next message, once its prefix was received.
    fn message_len(&self) -> Result<Option<usize>, Status> {
        let Some((flag, len)) = self
            .buffer
            .split_first_chunk::<PREFIX_BYTES>()
            .map(|([flag, len @ ..], _)| (*flag, u32::from_be_bytes(*len) as usize))
        else {
            return Ok(None);
        };
        if flag != 0 {
            let why = "the response is compressed, but the client asked for no compression";
            return Err(Status::internal(why));
        }
        if len > MAX_MESSAGE_BYTES {
            return Err(ResponseTooLarge.into_status(format!(
                "the response is too large: {len} bytes; the limit is {MAX_MESSAGE_BYTES}"
            )));
        }
        Ok(Some(len))
    }

    fn take_message(&mut self, len: usize) -> ReceivedMessage {
        self.buffer.advance(PREFIX_BYTES);
        let bytes = self.buffer.split_to(len).freeze();
        // A copy, because the rest would keep the memory of the message.
        self.buffer = BytesMut::from(&*self.buffer);
        self.deadline = None;
        ReceivedMessage {
            bytes,
            _permit: self.permit.take(),
        }
    }

    async fn receive_frame(&mut self) -> Result<(), Status> {
        let frame = self.body.get_mut().frame();
        let frame = match self.deadline {
            None => frame.await,
            Some(deadline) => timeout_at(deadline, frame).await.map_err(|_| {
                let seconds = RECEIVE_TIMEOUT.as_secs();
                Status::deadline_exceeded(format!("a response took over {seconds} s to arrive"))
            })?,
        };

        let Some(frame) = frame.transpose()? else {
            self.is_complete = true;
            return Ok(());
        };
        match frame.into_data() {
            Ok(data) => self.buffer.extend_from_slice(&data),
            Err(frame) => {
                self.trailers = frame.into_trailers().ok();
                self.is_complete = true;
            }
        }
        Ok(())
    }

    /// Returns the status at the end of the body.
    fn end_status(&self) -> Result<(), Status> {
        let status = self.trailers.as_ref().and_then(Status::from_header_map);
        match (status, self.http_status) {
            (Some(status), _) if status.code() != Code::Ok => Err(status),
            _ if !self.buffer.is_empty() => {
                Err(Status::internal("the response ends within a message"))
            }
            (Some(_), _) | (None, StatusCode::OK) => Ok(()),
            (None, http_status) => Err(status_without_trailers(http_status)),
        }
    }
}

/// Returns the status of a response without a gRPC status. Source: gRPC, "HTTP to gRPC Status Code
/// Mapping".
fn status_without_trailers(http_status: StatusCode) -> Status {
    let code = match http_status {
        StatusCode::BAD_REQUEST => Code::Internal,
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::FORBIDDEN => Code::PermissionDenied,
        StatusCode::NOT_FOUND => Code::Unimplemented,
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Code::Unavailable,
        _ => Code::Unknown,
    };
    let why = format!("the server answered with the HTTP status {http_status}, without gRPC");
    Status::new(code, why)
}
