//! What the bench asks: with answers as they are on the wire, so that what a client makes of them
//! counts for neither side; and the questions that several measurements ask.

use crate::context::Outcome;
use caproot::proto::caproot::v1 as pb;
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

/// After so long, what was owed was lost: nothing that is waited for takes a tenth of it.
pub(crate) const LOST: Duration = Duration::from_mins(1);

/// Messages as they are on the wire.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Plain;

/// One who takes answers as bytes. Clones share a connection.
#[derive(Clone)]
pub(crate) struct Caller(Grpc<Channel>);

impl Caller {
    pub(crate) fn new(channel: Channel) -> Self {
        Self(Grpc::new(channel).max_decoding_message_size(usize::MAX))
    }

    pub(crate) async fn ask(&mut self, path: &str, request: Bytes) -> Outcome<Bytes> {
        let to = PathAndQuery::try_from(path)?;
        let answer = async {
            self.0.ready().await?;
            Ok(self.0.unary(Request::new(request), to, Plain).await?.into_inner())
        };
        owed(path, answer).await
    }

    pub(crate) async fn stream(&mut self, path: &str, request: Bytes) -> Outcome<Streaming<Bytes>> {
        let to = PathAndQuery::try_from(path)?;
        let answer = async {
            self.0.ready().await?;
            Ok(self.0.server_streaming(Request::new(request), to, Plain).await?.into_inner())
        };
        owed(path, answer).await
    }
}

/// Waits for what is owed, but no longer than for anything: a pass ends, and says what it waited for.
pub(crate) async fn owed<T>(what: &str, owed: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    let lost = |_| format!("waited {LOST:?} for what did not come: {what}");
    timeout(LOST, owed).await.map_err(lost)?
}

/// All published roots.
pub(crate) async fn published(
    client: &mut CapabilityServiceClient<Channel>,
) -> Outcome<Vec<pb::SelectedCapabilityRoot>> {
    let roots = async { Ok(client.list_roots(pb::ListRootsRequest {}).await?.into_inner().roots) };
    let roots = owed("ListRoots", roots).await?;
    Ok(roots.into_iter().filter_map(|root| root.selected_capability_root).collect())
}

/// One page of a list: the request and the answer, both as they are on the wire.
pub(crate) struct Page {
    pub(crate) request: Bytes,
    pub(crate) answer: Bytes,
}

/// The whole list of some roots, page by page, and how many skills it has.
pub(crate) async fn list(
    caller: &mut Caller,
    roots: &[pb::SelectedCapabilityRoot],
) -> Outcome<(Vec<Page>, usize)> {
    let mut request = pb::ListSkillsRequest {
        selected_capability_roots: roots.to_vec(),
        ..pb::ListSkillsRequest::default()
    };
    let (mut pages, mut skills) = (Vec::new(), 0);
    loop {
        let asked = Bytes::from(request.encode_to_vec());
        let answer = caller.ask(LIST, asked.clone()).await?;
        let page = pb::ListSkillsResponse::decode(answer.clone())?;
        pages.push(Page { request: asked, answer });
        skills += page.skills.len();
        if page.next_page_token.is_empty() {
            return Ok((pages, skills));
        }
        request.page_token = page.next_page_token;
    }
}

/// A stream of changes of some roots.
pub(crate) struct Events(Streaming<Bytes>);

impl Events {
    pub(crate) async fn open(
        caller: &mut Caller,
        roots: &[pb::SelectedCapabilityRoot],
    ) -> Outcome<Self> {
        let request = pb::WatchSkillsRequest {
            selected_capability_roots: roots.to_vec(),
            ..pb::WatchSkillsRequest::default()
        };
        Ok(Self(caller.stream(WATCH, request.encode_to_vec().into()).await?))
    }

    /// Reads on to the end of a state.
    pub(crate) async fn synced(&mut self) -> Outcome<()> {
        let end = async {
            while !matches!(self.next().await?.1, Event::Synced(_)) {}
            Ok(())
        };
        owed("the end of a state", end).await
    }

    /// When a change came, and the bytes of its event; reads on to the end of its state.
    pub(crate) async fn delta(&mut self) -> Outcome<(Instant, Bytes)> {
        let delta = async {
            loop {
                let (bytes, event) = self.next().await?;
                if matches!(event, Event::Delta(_)) {
                    return Ok((Instant::now(), bytes));
                }
            }
        };
        let heard = owed("the event of a change", delta).await?;
        self.synced().await?;
        Ok(heard)
    }

    async fn next(&mut self) -> Outcome<(Bytes, Event)> {
        let bytes = self.0.message().await?.ok_or("the stream goes on")?;
        let event = pb::WatchSkillsResponse::decode(bytes.clone())?.event;
        Ok((bytes, event.ok_or("an event says what it is")?))
    }
}

impl Codec for Plain {
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

impl Encoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}
