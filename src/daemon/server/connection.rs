//! Accepted connections with the identity of the peer.

use super::authority_compat::{AuthorityFilter, FRAME_HEADER_LEN, PREFACE};
use super::handshake::{accept_tls, lingering_close};
use super::tls::ReloadableTls;
use crate::daemon::model::{PeerIdentity, QuotaKey};
use caproot_core::delegate_async_write;
use caproot_core::net::byte_stream::ByteStream;
use rustix::net::sockopt::set_tcp_user_timeout;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;

/// Response to clients of other protocols, such as HTTP/1.1 or TLS.
const WRONG_PROTOCOL_RESPONSE: &[u8] =
    b"HTTP/1.1 505 HTTP Version Not Supported\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// Accepted connection before any byte was read.
pub enum AcceptedConnection {
    Unix(UnixStream),
    Tcp(TcpStream, SocketAddr, Option<Arc<ReloadableTls>>),
}

/// Connection whose peer is known.
pub struct PeerConnection {
    io: Box<dyn ByteStream>,
    peer: PeerIdentity,
    /// Bytes that `read_preface` read, of which `preface_replayed` were read again by HTTP/2.
    preface_bytes: [u8; PREFACE.len() + FRAME_HEADER_LEN],
    preface_replayed: usize,
}

impl AcceptedConnection {
    /// Returns the quota key of the caller, without reading from the connection.
    pub fn quota_key(&self) -> io::Result<QuotaKey> {
        Ok(match self {
            Self::Unix(stream) => QuotaKey::User(stream.peer_cred()?.uid()),
            Self::Tcp(_, address, _) => PeerIdentity::Remote {
                address: *address,
                names: Arc::default(),
            }
            .quota_key(),
        })
    }

    /// Sets how long a TCP peer may leave data unacknowledged. HTTP/2 pings detect a peer that is
    /// gone only once the connection is set up.
    pub fn set_user_timeout(&self, timeout: Duration) -> io::Result<()> {
        let Self::Tcp(stream, ..) = self else {
            return Ok(());
        };
        let millis = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        Ok(set_tcp_user_timeout(stream, millis)?)
    }

    /// Does the TLS handshake and reads the HTTP/2 preface. Runs in the task of the connection.
    pub async fn establish_http2(self) -> io::Result<PeerConnection> {
        let connection = match self {
            Self::Unix(stream) => PeerConnection::unix(stream)?,
            Self::Tcp(stream, address, None) => PeerConnection::tcp(stream, address)?,
            Self::Tcp(stream, _, Some(tls)) => accept_tls(&tls, stream).await?,
        };
        connection.read_preface().await
    }
}

impl PeerConnection {
    /// Wraps a Unix connection and reads the credentials of the peer.
    pub fn unix(stream: UnixStream) -> io::Result<Self> {
        // Not rustix, whose process ids cannot be 0: the kernel reports 0 for a peer in another PID
        // namespace, such as in another container.
        let cred = stream.peer_cred()?;
        let primary = std::iter::once(cred.gid());
        let gids: Arc<[u32]> = primary
            .chain(super::groups::peer_groups(&stream)?)
            .collect();
        let peer = PeerIdentity::Local {
            pid: cred.pid().unwrap_or(0),
            uid: cred.uid(),
            gids,
        };
        Ok(Self::new(AuthorityFilter::new(stream), peer))
    }

    pub fn tcp(stream: TcpStream, address: SocketAddr) -> io::Result<Self> {
        // Without Nagle's algorithm, which delays small responses until the peer acknowledges
        // earlier ones.
        stream.set_nodelay(true)?;
        Ok(Self::new(
            stream,
            PeerIdentity::Remote {
                address,
                names: Arc::default(),
            },
        ))
    }

    /// Wraps a TLS connection whose client certificate has `names`.
    pub fn tls(stream: TlsStream<TcpStream>, address: SocketAddr, names: Arc<[String]>) -> Self {
        Self::new(stream, PeerIdentity::Remote { address, names })
    }

    fn new(stream: impl ByteStream + 'static, peer: PeerIdentity) -> Self {
        let preface_bytes = [0; PREFACE.len() + FRAME_HEADER_LEN];
        Self {
            io: Box::new(stream),
            peer,
            preface_bytes,
            preface_replayed: preface_bytes.len(),
        }
    }

    /// Reads the HTTP/2 preface. Until then, a connection costs only its socket.
    pub async fn read_preface(mut self) -> io::Result<Self> {
        let (preface, frame_header) = self.preface_bytes.split_at_mut(PREFACE.len());
        self.io.read_exact(preface).await?;
        if *preface != *PREFACE {
            self.io.write_all(WRONG_PROTOCOL_RESPONSE).await?;
            lingering_close(self.io).await;
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the client does not speak HTTP/2",
            ));
        }
        self.io.read_exact(frame_header).await?;
        self.preface_replayed = 0;
        Ok(self)
    }

    pub fn peer(&self) -> PeerIdentity {
        self.peer.clone()
    }
}

impl AsyncRead for PeerConnection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        let unread = &me.preface_bytes[me.preface_replayed..];
        if unread.is_empty() {
            return Pin::new(&mut me.io).poll_read(context, buffer);
        }
        let len = unread.len().min(buffer.remaining());
        buffer.put_slice(&unread[..len]);
        me.preface_replayed += len;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PeerConnection {
    delegate_async_write!(|me| me.io);
}
