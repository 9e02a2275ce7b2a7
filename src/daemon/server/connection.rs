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
    pub peer: PeerIdentity,
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

    /// Does the TLS handshake and reads the HTTP/2 preface. Runs in the task of the connection. A TCP
    /// peer may leave data unacknowledged for `user_timeout`: HTTP/2 pings detect a peer that is gone
    /// only once the connection is set up.
    pub async fn establish_http2(self, user_timeout: Duration) -> io::Result<PeerConnection> {
        if let Self::Tcp(stream, ..) = &self {
            // Without Nagle's algorithm, which delays small responses until the peer acknowledges
            // earlier ones.
            stream.set_nodelay(true)?;
            let millis = u32::try_from(user_timeout.as_millis()).unwrap_or(u32::MAX);
            set_tcp_user_timeout(stream, millis)?;
        }

        let connection = match self {
            Self::Unix(stream) => {
                // Not rustix, whose process ids cannot be 0: the kernel reports 0 for a peer in
                // another PID namespace, such as in another container.
                let cred = stream.peer_cred()?;
                let groups = super::groups::peer_groups(&stream)?;
                let peer = PeerIdentity::Local {
                    pid: cred.pid().unwrap_or(0),
                    uid: cred.uid(),
                    gids: std::iter::once(cred.gid()).chain(groups).collect(),
                };
                PeerConnection::new(AuthorityFilter::new(stream), peer)
            }
            Self::Tcp(stream, address, None) => {
                let names = Arc::default();
                PeerConnection::new(stream, PeerIdentity::Remote { address, names })
            }
            Self::Tcp(stream, address, Some(tls)) => accept_tls(&tls, stream, address).await?,
        };
        connection.read_preface().await
    }
}

impl PeerConnection {
    pub fn new(stream: impl ByteStream + 'static, peer: PeerIdentity) -> Self {
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
