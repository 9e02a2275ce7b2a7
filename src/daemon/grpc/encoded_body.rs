//! Responses that the daemon encodes itself. tonic keeps an encoding buffer for each stream, as
//! large as its largest event, until the stream ends, and copies a long page repeatedly while the
//! buffer grows. A buffer of this module has the size of its message and is freed after the message
//! is sent.

use super::list_pages::format_epoch;
use bytes::Bytes;
use caproot_core::proto::caproot::v1 as pb;
use caproot_core::proto::caproot::v1::watch_skills_response::Event;
use caproot_core::wire::limits::MAX_RESPONSE_BYTES;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream::{self, BoxStream};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response};
use http_body::{Frame, SizeHint};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use std::io::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tonic::Status;
use tonic::body::Body;
use tonic::metadata::GRPC_CONTENT_TYPE;

/// Header with the encoding of a message.
pub const ENCODING_HEADER: &str = "grpc-encoding";
/// Length of the prefix of a message: compression flag and length. Source: gRPC over HTTP/2,
/// "Length-Prefixed-Message".
const PREFIX_BYTES: usize = 5;
/// Maximum length of the tag and length of a field.
const MAX_FIELD_HEADER_BYTES: usize = 15;
/// Maximum length of contents that are copied into the message instead of sent as a chunk of their
/// own. HTTP/2 sends a chunk as a frame, and clients with `h2` end a connection after 100 empty
/// frames, and for many short frames.
const MAX_COPIED_BYTES: usize = 16 << 10;

/// Chunks of encoded messages.
pub type ChunkStream = BoxStream<'static, Result<Bytes, Status>>;

/// Body of encoded messages, followed by the status as trailers.
pub struct EncodedBody {
    /// `None` after the trailers.
    chunks: Option<ChunkStream>,
    /// Bytes of the body that are in memory from the start; 0 for a stream.
    buffered_bytes: usize,
}

/// Encoded message, in one or two chunks.
pub struct EncodedMessage {
    head: Bytes,
    /// Contents that are too long to copy.
    tail: Option<Bytes>,
}

/// Encoded event. Streams that send the same event share its bytes.
#[derive(Debug)]
pub struct EncodedEvent {
    /// Message with its prefix.
    bytes: Bytes,
    /// Root in the event that the caller may not use.
    pub denied_root: Option<String>,
    /// Whether the event ends a state.
    pub is_synced: bool,
}

/// Owner of the bytes. An event is cached as long as a part of its bytes is not sent.
struct SharedBytes(Arc<EncodedEvent>);

/// Buffer for an encoded message. Protobuf merges concatenated encodings, so a message can be
/// encoded field by field.
pub struct MessageBuf(Vec<u8>);

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
        return Ok(buffer.finish(0)?.into());
    }
    Ok(EncodedMessage {
        head: buffer.finish(len)?,
        tail: Some(Bytes::from_owner(contents)),
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

    /// Returns the message with its prefix, which also covers a further chunk of `tail_len` bytes.
    pub fn finish(self, tail_len: usize) -> Result<Bytes, Status> {
        let Self(mut buffer) = self;
        let len = buffer.len() - PREFIX_BYTES + tail_len;
        write_prefix(&mut buffer, 0, len)?;
        Ok(buffer.into())
    }
}

/// Writes the prefix of a message of `len` bytes into the first bytes of its buffer.
fn write_prefix(buffer: &mut [u8], compression_flag: u8, len: usize) -> Result<(), Status> {
    let prefix_len = u32::try_from(len).ok();
    let Some(prefix_len) = prefix_len.filter(|_| len <= MAX_RESPONSE_BYTES) else {
        let message = format!("the response has {len} bytes; the limit is {MAX_RESPONSE_BYTES}");
        return Err(Status::out_of_range(message));
    };
    buffer[0] = compression_flag;
    buffer[1..PREFIX_BYTES].copy_from_slice(&prefix_len.to_be_bytes());
    Ok(())
}

impl EncodedMessage {
    /// Encodes a message.
    pub fn new(message: &impl Message) -> Result<Self, Status> {
        let mut buffer = MessageBuf::with_capacity(message.encoded_len());
        buffer.append_message(message);
        Ok(buffer.finish(0)?.into())
    }

    /// Returns the length without the prefix.
    pub fn message_len(&self) -> usize {
        self.head.len() + self.tail.as_ref().map_or(0, Bytes::len) - PREFIX_BYTES
    }

    /// Returns the chunks of the message with its prefix.
    pub fn into_chunks(self) -> impl Iterator<Item = Bytes> {
        std::iter::once(self.head).chain(self.tail)
    }

    /// Creates a response with this message.
    pub fn into_response(self) -> Response<Body> {
        let buffered_bytes = PREFIX_BYTES + self.message_len();
        let chunks = stream::iter(self.into_chunks().map(Ok));
        EncodedBody::respond(Box::pin(chunks), buffered_bytes)
    }

    /// Creates a response with this message, compressed with gzip at the level of tonic.
    pub fn into_compressed_response(self) -> Result<Response<Body>, Status> {
        let mut encoder = GzEncoder::new(vec![0; PREFIX_BYTES], Compression::new(6));
        encoder.write_all(&self.head[PREFIX_BYTES..])?;
        encoder.write_all(self.tail.as_deref().unwrap_or_default())?;
        let mut buffer = encoder.finish()?;
        let len = buffer.len() - PREFIX_BYTES;
        write_prefix(&mut buffer, 1, len)?;
        let mut response = Self::from(Bytes::from(buffer)).into_response();
        response
            .headers_mut()
            .insert(ENCODING_HEADER, HeaderValue::from_static("gzip"));
        Ok(response)
    }
}

impl EncodedEvent {
    pub fn new(epoch: u64, revision: u64, event: Event) -> Result<Self, Status> {
        let denied_root = match &event {
            Event::RootStatus(root) if root.reason() == pb::RootReason::NotAllowed => {
                Some(root.id.clone())
            }
            _ => None,
        };
        let is_synced = matches!(event, Event::Synced(_));
        let message = EncodedMessage::new(&pb::WatchSkillsResponse {
            epoch: format_epoch(epoch),
            revision,
            event: Some(event),
        })?;

        Ok(Self {
            bytes: message.head,
            denied_root,
            is_synced,
        })
    }

    /// Returns the message with its prefix.
    pub fn into_bytes(self: Arc<Self>) -> Bytes {
        Bytes::from_owner(SharedBytes(self))
    }
}

impl AsRef<[u8]> for EncodedEvent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl From<Bytes> for EncodedMessage {
    fn from(message: Bytes) -> Self {
        Self {
            head: message,
            tail: None,
        }
    }
}

impl EncodedBody {
    /// Creates a response with chunks. `buffered_bytes` are in memory from the start; 0 for a stream.
    pub fn respond(chunks: ChunkStream, buffered_bytes: usize) -> Response<Body> {
        let mut response = Response::new(Body::new(Self {
            chunks: Some(chunks),
            buffered_bytes,
        }));
        response
            .headers_mut()
            .insert(CONTENT_TYPE, GRPC_CONTENT_TYPE);
        response
    }
}

impl http_body::Body for EncodedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(chunks) = &mut self.chunks else {
            return Poll::Ready(None);
        };
        let status = match ready!(chunks.as_mut().poll_next(context)) {
            Some(Ok(message)) => return Poll::Ready(Some(Ok(Frame::data(message)))),
            Some(Err(status)) => status,
            None => Status::ok(""),
        };
        self.chunks = None;
        let mut trailers = HeaderMap::new();
        status.add_header(&mut trailers)?;
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.chunks.is_none()
    }

    /// Returns the buffered bytes as the lower bound. There is no upper bound, because for a body
    /// of exact size the HTTP router adds a `content-length` header.
    fn size_hint(&self) -> SizeHint {
        let mut hint = SizeHint::default();
        hint.set_lower(self.buffered_bytes as u64);
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::{
        EncodedBody, EncodedEvent, EncodedMessage, Event, MAX_RESPONSE_BYTES, encode_with_field,
    };
    use caproot_core::proto::caproot::v1 as pb;
    use flate2::read::GzDecoder;
    use http::Response;
    use http_body::Body as _;
    use http_body_util::BodyExt as _;
    use prost::Message as _;
    use std::io::Read as _;
    use tonic::body::Body;
    use tonic::{Code, Status};

    /// Returns the bytes of the body and its gRPC status.
    async fn collect_body(response: Response<Body>) -> (Vec<u8>, String) {
        assert_eq!(response.headers()["content-type"], "application/grpc");
        let sent = response
            .into_body()
            .collect()
            .await
            .expect("body without error");
        let code = sent
            .trailers()
            .and_then(|trailers| trailers.get("grpc-status"));
        let code = code
            .expect("gRPC status")
            .to_str()
            .expect("ASCII")
            .to_owned();
        (sent.to_bytes().to_vec(), code)
    }

    fn roots_page() -> pb::ListRootsResponse {
        pb::ListRootsResponse {
            epoch: "e".repeat(300),
            ..pb::ListRootsResponse::default()
        }
    }

    #[tokio::test]
    async fn message_response_is_one_message() {
        let page = roots_page();
        let message = EncodedMessage::new(&page).expect("message below the size limit");
        assert_eq!(message.message_len(), page.encoded_len());
        let response = message.into_response();
        let hint = response.body().size_hint();
        assert_eq!(
            (hint.lower(), hint.upper()),
            (5 + page.encoded_len() as u64, None)
        );
        assert!(!response.headers().contains_key("grpc-encoding"));
        let (sent, code) = collect_body(response).await;
        let (prefix, rest) = sent.split_at(5);
        assert_eq!(prefix, [0, 0, 0, 1, 47], "no compression, and the length");
        assert_eq!(
            pb::ListRootsResponse::decode(rest).expect("valid message"),
            page
        );
        assert_eq!(code, "0");
    }

    #[tokio::test]
    async fn compressed_message_equals_message() {
        for data in [Vec::new(), vec![7; 1 << 20]] {
            let message = || encode_with_field(&roots_page(), 99, data.clone());
            let plain = message().expect("message below the size limit");
            let (plain, _) = collect_body(plain.into_response()).await;
            let compressed = message().expect("message below the size limit");
            let response = compressed
                .into_compressed_response()
                .expect("compressed message");
            assert_eq!(response.headers()["grpc-encoding"], "gzip");
            let (sent, code) = collect_body(response).await;
            assert!(sent.len() < plain.len());
            let (prefix, rest) = sent.split_at(5);
            let len = u32::try_from(rest.len())
                .expect("length fits")
                .to_be_bytes();
            assert_eq!((prefix[0], &prefix[1..]), (1, &len[..]));
            let mut decompressed = Vec::new();
            GzDecoder::new(rest)
                .read_to_end(&mut decompressed)
                .expect("gzip");
            assert_eq!(decompressed, plain[5..]);
            assert_eq!(code, "0");
        }
    }

    #[test]
    fn response_over_size_limit_is_rejected() {
        for (len, is_sent) in [
            (MAX_RESPONSE_BYTES - 400, true),
            (MAX_RESPONSE_BYTES, false),
        ] {
            let message = encode_with_field(&roots_page(), 99, vec![7; len]);
            let code = message.err().map(|status| status.code());
            assert_eq!(code, (!is_sent).then_some(Code::OutOfRange));
        }
    }

    #[tokio::test]
    async fn stream_status_is_status_of_chunks() {
        let event = |revision| {
            let message = EncodedMessage::new(&pb::WatchSkillsResponse {
                revision,
                ..Default::default()
            });
            message.map(|message| message.head)
        };
        for (end, expected) in [(None, "0"), (Some(Status::unavailable("stopping")), "14")] {
            let events: Vec<_> = (1..=2).map(event).chain(end.map(Err)).collect();
            let events = futures_util::stream::iter(events);
            let (sent, code) = collect_body(EncodedBody::respond(Box::pin(events), 0)).await;
            assert_eq!(sent, [0, 0, 0, 0, 2, 16, 1, 0, 0, 0, 0, 2, 16, 2]);
            assert_eq!(code, expected);
        }
    }

    #[test]
    fn denied_root_is_recorded() {
        let status = |reason: pb::RootReason| {
            let status = pb::RootStatus {
                id: "r".into(),
                reason: reason.into(),
                ..Default::default()
            };
            let event = EncodedEvent::new(1, 1, Event::RootStatus(status));
            event.expect("message below the size limit").denied_root
        };
        assert_eq!(status(pb::RootReason::NotAllowed).as_deref(), Some("r"));
        assert_eq!(status(pb::RootReason::NotFound), None);
    }
}
