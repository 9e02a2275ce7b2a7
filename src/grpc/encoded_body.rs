//! Responses that the daemon encodes itself. tonic keeps an encoding buffer for each stream, as
//! large as its largest event, until the stream ends, and copies a long page repeatedly while the
//! buffer grows. A buffer of this module has the size of its message and is freed after the message
//! is sent.

use super::watch_stream::EventStream;
use crate::proto::caproot::v1 as pb;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use http::HeaderMap;
use http_body::Frame;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use tonic::body::Body;
use tonic::{Response, Status};

/// Length of the prefix of a message: compression flag and length. Source: gRPC over HTTP/2,
/// "Length-Prefixed-Message".
const PREFIX_BYTES: usize = 5;
/// Maximum length of the tag and length of a field.
const MAX_FIELD_HEADER_BYTES: usize = 15;
/// Maximum length of contents that are copied into the message instead of sent as a chunk of their
/// own.
const MAX_COPIED_BYTES: usize = 16 << 10;

/// Stream type of the generated trait. Always empty: a [`BodyOverride`] has the events.
pub type WatchResponseStream =
    Pin<Box<dyn Stream<Item = Result<pb::WatchSkillsResponse, Status>> + Send>>;

/// Response extension with the body to send instead of the message.
#[derive(Clone)]
pub struct BodyOverride {
    messages: Arc<Mutex<Option<MessageStream>>>,
    /// Length of the message, if the body is a single message.
    message_len: Option<usize>,
}

/// Encoded message, in one or two chunks.
pub struct EncodedMessage {
    head: Bytes,
    /// Contents that are too long to copy.
    tail: Option<Bytes>,
}

/// Buffer for an encoded message. Protobuf merges concatenated encodings, so a message can be
/// encoded field by field.
pub struct MessageBuf(Vec<u8>);

type MessageStream = Pin<Box<dyn Stream<Item = Result<Bytes, Status>> + Send>>;

/// Body of encoded messages, followed by the status as trailers.
struct EncodedBody {
    messages: MessageStream,
    is_ended: bool,
}

/// Creates a response with a stream of encoded events. Calls `record_denied` with each denied root
/// when its event is sent.
pub fn encoded_event_response(
    response: Response<EventStream>,
    record_denied: impl Fn(&str) + Send + 'static,
) -> Response<WatchResponseStream> {
    let (metadata, events, extensions) = response.into_parts();
    let messages = events.map(move |event| {
        event.map(|event| {
            event.denied_root.iter().for_each(|root| record_denied(root));
            event.into_bytes()
        })
    });
    let none: WatchResponseStream = Box::pin(stream::empty());
    let mut response = Response::from_parts(metadata, none, extensions);
    response.extensions_mut().insert(BodyOverride::new(messages, None));
    response
}

/// Creates a response with an encoded message. `message` is not sent; only wrappers of the service
/// read it.
pub fn encoded_response<T>(message: T, encoded: EncodedMessage) -> Response<T> {
    let message_len = encoded.message_len();
    let mut response = Response::new(message);
    let chunks = stream::iter(encoded.into_chunks().map(Ok));
    response.extensions_mut().insert(BodyOverride::new(chunks, Some(message_len)));
    response
}

/// Encodes a message with its prefix, and appends text or bytes as field `number`. Long contents
/// become a chunk of their own.
pub fn encode_with_field(
    message: &impl Message,
    number: u32,
    contents: impl AsRef<[u8]> + Send + 'static,
) -> Result<EncodedMessage, Status> {
    let len = contents.as_ref().len();
    let is_short = len <= MAX_COPIED_BYTES;
    let copied_len = if is_short { len } else { 0 };
    let mut buffer =
        MessageBuf::with_capacity(message.encoded_len() + MAX_FIELD_HEADER_BYTES + copied_len);
    buffer.append_message(message);
    encode_key(number, WireType::LengthDelimited, &mut buffer.0);
    encode_varint(len as u64, &mut buffer.0);
    if is_short {
        buffer.0.extend_from_slice(contents.as_ref());
        return Ok(buffer.finish()?.into());
    }
    Ok(EncodedMessage {
        head: buffer.finish_with_tail(len)?,
        tail: Some(Bytes::from_owner(contents)),
    })
}

/// Encodes a message with its prefix.
pub fn encode_message(message: &impl Message) -> Result<Bytes, Status> {
    let mut buffer = MessageBuf::with_capacity(message.encoded_len());
    buffer.append_message(message);
    buffer.finish()
}

/// Decodes a message with its prefix.
pub fn decode_message<M: Message + Default>(message: &Bytes) -> Result<M, Status> {
    let value = M::decode(message.slice(PREFIX_BYTES..));
    value.map_err(|error| {
        Status::internal(format!("internal error: cannot decode a response: {error}"))
    })
}

impl MessageBuf {
    /// Creates a buffer with room for `bytes` bytes; it can grow.
    pub fn with_capacity(bytes: usize) -> Self {
        let mut buffer = Vec::with_capacity(PREFIX_BYTES + bytes);
        buffer.resize(PREFIX_BYTES, 0);
        Self(buffer)
    }

    /// Appends the fields of a message.
    pub fn append_message(&mut self, message: &impl Message) {
        message.encode_raw(&mut self.0);
    }

    /// Appends fields if they fit into `room` bytes, and returns their length.
    pub fn try_append_fields(
        &mut self,
        room: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Option<usize> {
        let start = self.0.len();
        write(&mut self.0);
        let len = self.0.len() - start;
        if len > room {
            self.0.truncate(start);
            return None;
        }
        Some(len)
    }

    /// Returns the message with its prefix.
    pub fn finish(self) -> Result<Bytes, Status> {
        self.finish_with_tail(0)
    }

    /// Returns the message with its prefix, which also covers a further chunk of `tail_len` bytes.
    fn finish_with_tail(self, tail_len: usize) -> Result<Bytes, Status> {
        let Self(mut buffer) = self;
        let len = u32::try_from(buffer.len() - PREFIX_BYTES + tail_len);
        let len = len.map_err(|_| {
            Status::internal("internal error: the response is too long for a gRPC message")
        })?;
        buffer[1..PREFIX_BYTES].copy_from_slice(&len.to_be_bytes());
        Ok(buffer.into())
    }
}

impl EncodedMessage {
    /// Returns the length without the prefix.
    pub fn message_len(&self) -> usize {
        self.head.len() + self.tail.as_ref().map_or(0, Bytes::len) - PREFIX_BYTES
    }

    pub fn into_chunks(self) -> impl Iterator<Item = Bytes> {
        std::iter::once(self.head).chain(self.tail)
    }
}

impl From<Bytes> for EncodedMessage {
    fn from(message: Bytes) -> Self {
        Self { head: message, tail: None }
    }
}

impl BodyOverride {
    fn new(
        messages: impl Stream<Item = Result<Bytes, Status>> + Send + 'static,
        message_len: Option<usize>,
    ) -> Self {
        Self { messages: Arc::new(Mutex::new(Some(Box::pin(messages)))), message_len }
    }

    /// Returns the length of the message, if the body is a single message and the length is known.
    pub fn message_len(&self) -> Option<usize> {
        self.message_len
    }

    /// Returns the body, or `None` if it was taken before.
    pub fn take_body(&self) -> Option<Body> {
        let messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner).take();
        messages.map(|messages| Body::new(EncodedBody { messages, is_ended: false }))
    }
}

impl http_body::Body for EncodedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.is_ended {
            return Poll::Ready(None);
        }
        let status = match ready!(self.messages.as_mut().poll_next(context)) {
            Some(Ok(message)) => return Poll::Ready(Some(Ok(Frame::data(message)))),
            Some(Err(status)) => status,
            None => Status::ok(""),
        };
        self.is_ended = true;
        let mut trailers = HeaderMap::new();
        status.add_header(&mut trailers)?;
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_ended
    }
}

impl fmt::Debug for BodyOverride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyOverride").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{BodyOverride, encode_message, encoded_event_response, encoded_response};
    use crate::grpc::event_cache::EncodedEvent;
    use crate::grpc::watch_stream::EventStream;
    use crate::proto::caproot::v1 as pb;
    use http_body_util::BodyExt as _;
    use prost::Message as _;
    use std::sync::Arc;
    use tonic::{Response, Status};

    /// Returns the bytes of the body and its gRPC status.
    async fn collect_body<T>(mut response: Response<T>) -> (Vec<u8>, String) {
        let body_override =
            response.extensions_mut().remove::<BodyOverride>().expect("body override");
        let sent =
            body_override.take_body().expect("body").collect().await.expect("body without error");
        assert!(body_override.take_body().is_none(), "the body can be taken once");
        let code = sent.trailers().and_then(|trailers| trailers.get("grpc-status"));
        let code = code.expect("gRPC status").to_str().expect("ASCII").to_owned();
        (sent.to_bytes().to_vec(), code)
    }

    fn event(revision: u64) -> Arc<EncodedEvent> {
        let event = pb::WatchSkillsResponse { revision, ..pb::WatchSkillsResponse::default() };
        Arc::new(EncodedEvent::new(&event).expect("message below the size limit"))
    }

    #[tokio::test]
    async fn encoded_response_is_one_message() {
        let epoch = "e".repeat(300);
        let page = pb::ListRootsResponse { epoch, ..pb::ListRootsResponse::default() };
        let response = encoded_response(
            (),
            encode_message(&page).expect("message below the size limit").into(),
        );
        let bytes = response.extensions().get::<BodyOverride>().and_then(BodyOverride::message_len);
        assert_eq!(bytes, Some(page.encoded_len()));
        let (sent, code) = collect_body(response).await;
        let (prefix, rest) = sent.split_at(5);
        assert_eq!(prefix, [0, 0, 0, 1, 47], "no compression, and the length");
        assert_eq!(pb::ListRootsResponse::decode(rest).expect("valid message"), page);
        assert_eq!(code, "0");
    }

    #[tokio::test]
    async fn stream_status_is_status_of_events() {
        for (end, expected) in [(None, "0"), (Some(Status::unavailable("stopping")), "14")] {
            let events: Vec<_> = (1..=2).map(|n| Ok(event(n))).chain(end.map(Err)).collect();
            let events: EventStream = Box::pin(futures_util::stream::iter(events));
            let (sent, code) =
                collect_body(encoded_event_response(Response::new(events), |_| ())).await;
            assert_eq!(sent, [0, 0, 0, 0, 2, 16, 1, 0, 0, 0, 0, 2, 16, 2]);
            assert_eq!(code, expected);
        }
    }
}
