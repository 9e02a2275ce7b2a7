//! A connection as it was accepted, with who is at its other end. Leaves what they may do to `rpc`.

use crate::domain::Peer;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

/// One accepted connection.
pub(super) struct Connection {
    io: Box<dyn Stream>,
    peer: Peer,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Connection {
    /// Asks the kernel who connected.
    pub(super) fn unix(stream: UnixStream) -> io::Result<Self> {
        let cred = rustix::net::sockopt::socket_peercred(&stream)?;
        let own = std::iter::once(cred.gid.as_raw());
        let gids: Arc<[u32]> = own.chain(super::groups::of_peer(&stream)?).collect();
        let peer = Peer::Local { pid: cred.pid.as_raw_pid(), uid: cred.uid.as_raw(), gids };
        Ok(Self { io: Box::new(stream), peer })
    }

    pub(super) fn tcp(stream: TcpStream) -> io::Result<Self> {
        // Small answers must not wait for acknowledgements of earlier ones.
        stream.set_nodelay(true)?;
        let peer = Peer::Remote { address: stream.peer_addr()?, names: Arc::default() };
        Ok(Self { io: Box::new(stream), peer })
    }

    /// After a handshake that showed `names`.
    pub(super) fn tls(
        stream: TlsStream<TcpStream>,
        address: SocketAddr,
        names: Arc<[String]>,
    ) -> Self {
        Self { io: Box::new(stream), peer: Peer::Remote { address, names } }
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
