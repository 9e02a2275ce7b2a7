//! Baseline for comparison: a tonic server without any logic. It answers `/bench.Bare/0`,
//! `/bench.Bare/1` and so on with the files of these names, from memory. `/bench.Bare/file/0` and so
//! on are answered from disk, with the calls by which caproot reads a page of a file that was read
//! before, and `/bench.Bare/digest/0` and so on also take the SHA-256 of the file. It streams the file `large` on `/bench.Bare/large`, and a call of `/bench.Bare/push` sends the bytes of `0` to all
//! streams of `/bench.Bare/watch`. Like caproot, the server runs as a separate process.

use crate::client::RawCodec;
use crate::context::Outcome;
use crate::paging::PAGE_BYTES;
use bytes::Bytes;
use futures_util::Stream;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags, openat2, statx};
use rustix::io::{ReadWriteFlags, preadv2};
use sha2::{Digest as _, Sha256};
use std::convert::Infallible;
use std::fs;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::io::{self, IoSliceMut, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::{broadcast, mpsc};
use tokio::task::spawn_blocking;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::{BroadcastStream, ReceiverStream};
use tonic::body::Body;
use tonic::codegen::http;
use tonic::server::{Grpc, NamedService, ServerStreamingService, UnaryService};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use tower::Service;

/// Path of the response with a number.
pub(crate) fn response_path(number: usize) -> String {
    format!("/bench.Bare/{number}")
}

/// Path of the response with a number that is read from its file.
pub(crate) fn file_path(number: usize) -> String {
    format!("{FILES}{number}")
}

/// Path of the response with a number that is read from its file, whose SHA-256 the server takes.
pub(crate) fn digest_path(number: usize) -> String {
    format!("{DIGESTS}{number}")
}

const FILES: &str = "/bench.Bare/file/";
const DIGESTS: &str = "/bench.Bare/digest/";
pub(crate) const LARGE: &str = "/bench.Bare/large";
pub(crate) const SUBSCRIBE: &str = "/bench.Bare/watch";
pub(crate) const PUSH: &str = "/bench.Bare/push";

/// Serves until the process is killed.
pub(crate) async fn serve(answers: &Path) -> Outcome<()> {
    let incoming = TcpIncoming::bind(([127, 0, 0, 1], 0).into())?.with_nodelay(Some(true));
    let mut all = Vec::new();
    while let Ok(answer) = fs::read(answers.join(all.len().to_string())) {
        all.push(Bytes::from(answer));
    }
    let bare = BareServer {
        answers: all.into(),
        dir: answers.to_owned(),
        pushed: broadcast::Sender::new(64),
    };
    let address = incoming.local_addr()?;
    writeln!(io::stdout(), "listening tcp:{address}")?;
    Ok(Server::builder()
        .add_service(bare)
        .serve_with_incoming(incoming)
        .await?)
}

/// Reads a file as `caproot::daemon::fs::read_page_cached` does: looks the file up without opening it, opens
/// it, reads it, and checks that it is the same file.
fn read_file(path: &Path) -> io::Result<Bytes> {
    let attributes = |file: &OwnedFd| {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        statx(file, c"", flags, StatxFlags::BASIC_STATS)
    };
    let open = |flags| {
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::CACHED;
        openat2(CWD, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
    };
    let before = attributes(&open(OFlags::PATH | OFlags::NOFOLLOW)?)?;
    let file = open(OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
    let mut bytes = vec![0; usize::try_from(before.stx_size).map_err(io::Error::other)?];
    preadv2(
        &file,
        &mut [IoSliceMut::new(&mut bytes)],
        0,
        ReadWriteFlags::NOWAIT,
    )?;
    let is_same = attributes(&file)?.stx_ino == before.stx_ino;
    if is_same {
        Ok(bytes.into())
    } else {
        Err(io::Error::other("the file was replaced"))
    }
}

#[derive(Clone)]
struct BareServer {
    answers: Arc<[Bytes]>,
    dir: PathBuf,
    pushed: broadcast::Sender<Bytes>,
}

/// Stream of messages.
struct MessageStream(Pin<Box<dyn Stream<Item = Result<Bytes, Status>> + Send>>);

impl Stream for MessageStream {
    type Item = Result<Bytes, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(context)
    }
}

impl BareServer {
    /// Streams the file and reads two pages ahead.
    fn large(&self) -> MessageStream {
        let (send, pages) = mpsc::channel(2);
        let file = fs::File::open(self.dir.join("large"));
        spawn_blocking(move || {
            let Ok(file) = file else { return };
            loop {
                let mut page = Vec::with_capacity(PAGE_BYTES);
                let read = (&file).take(PAGE_BYTES as u64).read_to_end(&mut page);
                let is_end = !read.is_ok_and(|bytes| bytes > 0);
                if is_end || send.blocking_send(Ok(page.into())).is_err() {
                    return;
                }
            }
        });
        MessageStream(Box::pin(ReceiverStream::new(pages)))
    }

    fn subscribe(&self) -> MessageStream {
        let pushed = BroadcastStream::new(self.pushed.subscribe());
        MessageStream(Box::pin(
            pushed.map(|bytes| bytes.map_err(|_| Status::data_loss("too slow"))),
        ))
    }
}

/// Method with a response that is already known.
struct ReadyResponse<T>(Option<Result<Response<T>, Status>>);

impl<T> ReadyResponse<T> {
    fn take(&mut self) -> Ready<Result<Response<T>, Status>> {
        ready(
            self.0
                .take()
                .unwrap_or_else(|| Err(Status::internal("asked twice"))),
        )
    }
}

impl UnaryService<Bytes> for ReadyResponse<Bytes> {
    type Response = Bytes;
    type Future = Ready<Result<Response<Bytes>, Status>>;

    fn call(&mut self, _: Request<Bytes>) -> Self::Future {
        self.take()
    }
}

impl ServerStreamingService<Bytes> for ReadyResponse<MessageStream> {
    type Response = Bytes;
    type ResponseStream = MessageStream;
    type Future = Ready<Result<Response<MessageStream>, Status>>;

    fn call(&mut self, _: Request<Bytes>) -> Self::Future {
        self.take()
    }
}

impl NamedService for BareServer {
    const NAME: &'static str = "bench.Bare";
}

impl Service<http::Request<Body>> for BareServer {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let bare = self.clone();
        Box::pin(async move {
            let mut grpc = Grpc::new(RawCodec);
            let items = match request.uri().path() {
                LARGE => Some(bare.large()),
                SUBSCRIBE => Some(bare.subscribe()),
                _ => None,
            };
            if let Some(items) = items {
                let given = ReadyResponse(Some(Ok(Response::new(items))));
                return Ok(grpc.server_streaming(given, request).await);
            }
            let path = request.uri().path();
            let digested = path.strip_prefix(DIGESTS);
            if let Some(name) = digested.or_else(|| path.strip_prefix(FILES)) {
                let path = bare.dir.join(name);
                // The kernel may need to wait for a component of the path.
                let answer = read_file(&path).or_else(|_| fs::read(&path).map(Bytes::from));
                if let (Some(_), Ok(bytes)) = (digested, &answer) {
                    black_box(Sha256::digest(bytes));
                }
                let answer = answer.map(Response::new);
                let given = ReadyResponse(Some(answer.map_err(Status::from)));
                return Ok(grpc.unary(given, request).await);
            }
            let number = if request.uri().path() == PUSH {
                // The result is an error if no stream is open.
                bare.answers
                    .first()
                    .map(|answer| bare.pushed.send(answer.clone()));
                Some(0)
            } else {
                request
                    .uri()
                    .path()
                    .rsplit('/')
                    .next()
                    .and_then(|number| number.parse().ok())
            };
            let answer = number.and_then(|number: usize| bare.answers.get(number));
            let answer = answer
                .cloned()
                .ok_or_else(|| Status::unimplemented("no such answer"));
            Ok(grpc
                .unary(ReadyResponse(Some(answer.map(Response::new))), request)
                .await)
        })
    }
}
