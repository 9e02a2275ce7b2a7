//! Messages that are made into bytes here, and not by tonic, which keeps for each stream a buffer as
//! large as its largest event was, for as long as the stream lives, and copies a long page again and
//! again while that grows. What is made here takes the room it needs, and goes when it is sent. Leaves
//! counting to `door`.

use super::service::{EventStream, WatchResponseStream};
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

/// Bytes before each message: whether it is compressed, and how long it is. Source: gRPC over HTTP/2,
/// "Length-Prefixed-Message".
const PREFIX_BYTES: usize = 5;
/// The most that the number and the length of a field take.
const MAX_FIELD_HEADER_BYTES: usize = 15;
/// What is copied rather than sent apart.
const MAX_COPIED_BYTES: usize = 16 << 10;

/// In the extensions of an answer: what is sent in the place of its message. Taken once.
#[derive(Clone)]
pub(super) struct BodyOverride {
    messages: Arc<Mutex<Option<MessageStream>>>,
    /// The bytes of the one message, where it is one.
    message_len: Option<usize>,
}

/// A message that is made, in one piece or two.
pub(super) struct EncodedMessage {
    head: Bytes,
    /// What is too long to be copied behind it.
    tail: Option<Bytes>,
}

/// A message that is put together of fields and of messages of its kind, as protobuf allows: a long
/// one is never there as a value.
pub(super) struct MessageBuf(Vec<u8>);

type MessageStream = Pin<Box<dyn Stream<Item = Result<Bytes, Status>> + Send>>;

/// Messages, and how they ended.
struct EncodedBody {
    messages: MessageStream,
    is_ended: bool,
}

/// A stream of events that are bytes already; `refused` is told the roots that the caller may not use,
/// when that is sent.
pub(super) fn encoded_event_response(
    answer: Response<EventStream>,
    refused: impl Fn(&str) + Send + 'static,
) -> Response<WatchResponseStream> {
    let (metadata, events, extensions) = answer.into_parts();
    let messages = events.map(move |event| {
        event.map(|event| {
            event.denied_root.iter().for_each(|root| refused(root));
            event.into_bytes()
        })
    });
    let none: WatchResponseStream = Box::pin(stream::empty());
    let mut answer = Response::from_parts(metadata, none, extensions);
    answer.extensions_mut().insert(BodyOverride::new(messages, None));
    answer
}

/// An answer that is sent as these bytes; its message is for whoever looks at it on the way.
pub(super) fn encoded_response<T>(looked_at: T, made: EncodedMessage) -> Response<T> {
    let bytes = made.message_len();
    let mut answer = Response::new(looked_at);
    let parts = stream::iter(made.into_chunks().map(Ok));
    answer.extensions_mut().insert(BodyOverride::new(parts, Some(bytes)));
    answer
}

/// A message with its prefix, and a field behind the others that is not in it: text or bytes, of this
/// number. That is sent from where it is, unless it is short.
pub(super) fn encode_with_field(
    message: &impl Message,
    number: u32,
    content: impl AsRef<[u8]> + Send + 'static,
) -> Result<EncodedMessage, Status> {
    let len = content.as_ref().len();
    let is_short = len <= MAX_COPIED_BYTES;
    let copied = if is_short { len } else { 0 };
    let mut draft =
        MessageBuf::with_capacity(message.encoded_len() + MAX_FIELD_HEADER_BYTES + copied);
    draft.append_message(message);
    encode_key(number, WireType::LengthDelimited, &mut draft.0);
    encode_varint(len as u64, &mut draft.0);
    if is_short {
        draft.0.extend_from_slice(content.as_ref());
        return Ok(draft.finish()?.into());
    }
    Ok(EncodedMessage {
        head: draft.finish_with_tail(len)?,
        tail: Some(Bytes::from_owner(content)),
    })
}

/// A message with its prefix.
pub(super) fn encode_message(message: &impl Message) -> Result<Bytes, Status> {
    let mut draft = MessageBuf::with_capacity(message.encoded_len());
    draft.append_message(message);
    draft.finish()
}

/// What a message with its prefix says.
pub(super) fn decode_message<M: Message + Default>(message: &Bytes) -> Result<M, Status> {
    let value = M::decode(message.slice(PREFIX_BYTES..));
    value.map_err(|error| Status::internal(format!("an answer cannot be read: {error}")))
}

impl MessageBuf {
    /// Room for a message of so many bytes; it grows.
    pub(super) fn with_capacity(bytes: usize) -> Self {
        let mut buffer = Vec::with_capacity(PREFIX_BYTES + bytes);
        buffer.resize(PREFIX_BYTES, 0);
        Self(buffer)
    }

    /// Merges a message into it.
    pub(super) fn append_message(&mut self, part: &impl Message) {
        part.encode_raw(&mut self.0);
    }

    /// Has fields written behind what is there, unless they take more bytes than there is room for;
    /// says how many they took.
    pub(super) fn try_append_fields(
        &mut self,
        room: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Option<usize> {
        let before = self.0.len();
        write(&mut self.0);
        let len = self.0.len() - before;
        if len > room {
            self.0.truncate(before);
            return None;
        }
        Some(len)
    }

    /// With its prefix.
    pub(super) fn finish(self) -> Result<Bytes, Status> {
        self.finish_with_tail(0)
    }

    /// The same where so many bytes of it are sent behind this.
    fn finish_with_tail(self, rest: usize) -> Result<Bytes, Status> {
        let Self(mut buffer) = self;
        let len = u32::try_from(buffer.len() - PREFIX_BYTES + rest);
        let len = len.map_err(|_| Status::internal("an answer is too long to be sent"))?;
        buffer[1..PREFIX_BYTES].copy_from_slice(&len.to_be_bytes());
        Ok(buffer.into())
    }
}

impl EncodedMessage {
    /// Its length without the prefix.
    pub(super) fn message_len(&self) -> usize {
        self.head.len() + self.tail.as_ref().map_or(0, Bytes::len) - PREFIX_BYTES
    }

    pub(super) fn into_chunks(self) -> impl Iterator<Item = Bytes> {
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
        bytes: Option<usize>,
    ) -> Self {
        Self { messages: Arc::new(Mutex::new(Some(Box::pin(messages)))), message_len: bytes }
    }

    /// The bytes of the one message, where it is one and they are known.
    pub(super) fn message_len(&self) -> Option<usize> {
        self.message_len
    }

    /// What is sent; `None` where that was taken.
    pub(super) fn take_body(&self) -> Option<Body> {
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
            Some(Ok(part)) => return Poll::Ready(Some(Ok(Frame::data(part)))),
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
        f.debug_tuple("Parts").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{BodyOverride, encode_message, encoded_event_response, encoded_response};
    use crate::grpc::event_cache::EncodedEvent;
    use crate::grpc::service::EventStream;
    use crate::proto::caproot::v1 as pb;
    use http_body_util::BodyExt as _;
    use prost::Message as _;
    use std::sync::Arc;
    use tonic::{Response, Status};

    /// What is sent of an answer, and the code it ends with.
    async fn collect_body<T>(mut answer: Response<T>) -> (Vec<u8>, String) {
        let parts = answer.extensions_mut().remove::<BodyOverride>().expect("parts");
        let sent = parts.take_body().expect("a body").collect().await.expect("no error");
        assert!(parts.take_body().is_none(), "taken once");
        let code = sent.trailers().and_then(|trailers| trailers.get("grpc-status"));
        let code = code.expect("a status").to_str().expect("ASCII").to_owned();
        (sent.to_bytes().to_vec(), code)
    }

    fn event(revision: u64) -> Arc<EncodedEvent> {
        let event = pb::WatchSkillsResponse { revision, ..pb::WatchSkillsResponse::default() };
        Arc::new(EncodedEvent::new(&event).expect("short enough"))
    }

    #[tokio::test]
    async fn an_answer_is_one_message() {
        let epoch = "e".repeat(300);
        let page = pb::ListRootsResponse { epoch, ..pb::ListRootsResponse::default() };
        let answer = encoded_response((), encode_message(&page).expect("short enough").into());
        let bytes = answer.extensions().get::<BodyOverride>().and_then(BodyOverride::message_len);
        assert_eq!(bytes, Some(page.encoded_len()));
        let (sent, code) = collect_body(answer).await;
        let (prefix, rest) = sent.split_at(5);
        assert_eq!(prefix, [0, 0, 0, 1, 47], "not compressed, and its length");
        assert_eq!(pb::ListRootsResponse::decode(rest).expect("a message"), page);
        assert_eq!(code, "0");
    }

    #[tokio::test]
    async fn a_stream_ends_as_its_events_end() {
        for (end, expected) in [(None, "0"), (Some(Status::unavailable("it stops")), "14")] {
            let events: Vec<_> = (1..=2).map(|n| Ok(event(n))).chain(end.map(Err)).collect();
            let events: EventStream = Box::pin(futures_util::stream::iter(events));
            let (sent, code) =
                collect_body(encoded_event_response(Response::new(events), |_| ())).await;
            assert_eq!(sent, [0, 0, 0, 0, 2, 16, 1, 0, 0, 0, 0, 2, 16, 2]);
            assert_eq!(code, expected);
        }
    }
}
