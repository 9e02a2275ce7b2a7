//! Raw client of the bench. Responses are not decoded, so that decoding counts for neither side.
//! Also has the calls that several measurements need.

use crate::context::Outcome;
use caproot_core::proto::caproot::v1 as pb;
use pb::capability_service_client::CapabilityServiceClient;
use pb::watch_skills_response::Event;
use prost::Message as _;
use std::time::{Duration, Instant};
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};

use bytes::{Buf as _, BufMut as _, Bytes};

pub(crate) const LIST: &str = "/caproot.v1.CapabilityService/ListSkills";
pub(crate) const READ: &str = "/caproot.v1.CapabilityService/ReadResource";
pub(crate) const WATCH: &str = "/caproot.v1.CapabilityService/WatchSkills";

/// Time limit of every wait. No measurement waits for a tenth of this time.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);

/// Codec for messages as raw bytes.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct RawCodec;

/// Client that receives responses as raw bytes. Clones share a connection.
#[derive(Clone)]
pub(crate) struct RawClient(Grpc<Channel>);

impl RawClient {
    pub(crate) fn new(channel: Channel) -> Self {
        Self(Grpc::new(channel).max_decoding_message_size(usize::MAX))
    }

    pub(crate) async fn call(&mut self, path: &str, request: Bytes) -> Outcome<Bytes> {
        let to = PathAndQuery::try_from(path)?;
        let answer = async {
            self.0.ready().await?;
            Ok(self
                .0
                .unary(Request::new(request), to, RawCodec)
                .await?
                .into_inner())
        };
        with_timeout(path, answer).await
    }

    pub(crate) async fn stream(&mut self, path: &str, request: Bytes) -> Outcome<Streaming<Bytes>> {
        let to = PathAndQuery::try_from(path)?;
        let answer = async {
            self.0.ready().await?;
            Ok(self
                .0
                .server_streaming(Request::new(request), to, RawCodec)
                .await?
                .into_inner())
        };
        with_timeout(path, answer).await
    }
}

/// Awaits a response and fails after [`TIMEOUT`] with the name of the response.
pub(crate) async fn with_timeout<T>(
    name: &str,
    response: impl Future<Output = Outcome<T>>,
) -> Outcome<T> {
    let timed_out = |_| format!("waited {TIMEOUT:?} for {name}");
    timeout(TIMEOUT, response).await.map_err(timed_out)?
}

/// Returns all published roots.
pub(crate) async fn published_roots(
    client: &mut CapabilityServiceClient<Channel>,
) -> Outcome<Vec<pb::SelectedCapabilityRoot>> {
    let roots = async {
        Ok(client
            .list_roots(pb::ListRootsRequest {})
            .await?
            .into_inner()
            .roots)
    };
    let roots = with_timeout("ListRoots", roots).await?;
    Ok(roots
        .into_iter()
        .filter_map(|root| root.selected_capability_root)
        .collect())
}

/// Page of a list: the raw request and the raw response.
pub(crate) struct Page {
    pub(crate) request: Bytes,
    pub(crate) answer: Bytes,
}

/// Part of a page that its reader needs. The other fields are not decoded.
#[derive(Clone, PartialEq, prost::Message)]
struct PageEnd {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    skills: Vec<Bytes>,
    #[prost(string, tag = "5")]
    next_page_token: String,
}

/// Reads all pages of the list of some roots. Returns the pages and the number of skills.
pub(crate) async fn read_list(
    caller: &mut RawClient,
    roots: &[pb::SelectedCapabilityRoot],
) -> Outcome<(Vec<Page>, usize)> {
    let mut request = pb::ListSkillsRequest {
        selected_capability_roots: roots.to_vec(),
        ..pb::ListSkillsRequest::default()
    };
    let (mut pages, mut skills) = (Vec::new(), 0);
    loop {
        let encoded = Bytes::from(request.encode_to_vec());
        let answer = caller.call(LIST, encoded.clone()).await?;
        let page = PageEnd::decode(answer.clone())?;
        pages.push(Page {
            request: encoded,
            answer,
        });
        skills += page.skills.len();
        if page.next_page_token.is_empty() {
            return Ok((pages, skills));
        }
        request.page_token = page.next_page_token;
    }
}

/// Stream of the changes of some roots.
pub(crate) struct ChangeStream(Streaming<Bytes>);

impl ChangeStream {
    pub(crate) async fn open(
        caller: &mut RawClient,
        roots: &[pb::SelectedCapabilityRoot],
    ) -> Outcome<Self> {
        let request = pb::WatchSkillsRequest {
            selected_capability_roots: roots.to_vec(),
            ..pb::WatchSkillsRequest::default()
        };
        Ok(Self(
            caller.stream(WATCH, request.encode_to_vec().into()).await?,
        ))
    }

    /// Reads up to the next `synced`.
    pub(crate) async fn synced(&mut self) -> Outcome<()> {
        let end = async {
            while !matches!(self.next().await?.1, Event::Synced(_)) {}
            Ok(())
        };
        with_timeout("the event `synced`", end).await
    }

    /// Waits for a change and reads up to the next `synced`. Returns the time and the bytes of the
    /// event.
    pub(crate) async fn delta(&mut self) -> Outcome<(Instant, Bytes)> {
        let delta = async {
            loop {
                let (bytes, event) = self.next().await?;
                if matches!(event, Event::Delta(_)) {
                    return Ok((Instant::now(), bytes));
                }
            }
        };
        let received = with_timeout("the event of a change", delta).await?;
        self.synced().await?;
        Ok(received)
    }

    async fn next(&mut self) -> Outcome<(Bytes, Event)> {
        let bytes = self.0.message().await?.ok_or("the stream has ended")?;
        let event = pb::WatchSkillsResponse::decode(bytes.clone())?.event;
        Ok((bytes, event.ok_or("an empty event")?))
    }
}

impl Codec for RawCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}
