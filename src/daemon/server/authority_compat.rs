//! Admits gRPC clients that send the path of the Unix socket as `:authority`, percent-encoded like
//! grpcio or unencoded. RFC 3986 does not allow such an authority, and `h2` rejects the request
//! (hyperium/h2#487). The daemon does not use the authority, so `AuthorityFilter` overwrites the
//! invalid characters in place. The bytes keep their length and are neither buffered nor delayed.
//!
//! Only connections of Unix sockets pass through this module. The page
//! `docs/design/unix-authority.md` has the reasons, the alternatives, and the condition under which
//! the module can be deleted.

mod authority_value;
mod frames;
mod header_block;

pub use frames::{AuthorityRewriter, FRAME_HEADER_LEN, PREFACE};

use caproot_core::delegate_async_write;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Connection that rewrites each `:authority` that is a path.
#[derive(Debug)]
pub(super) struct AuthorityFilter<S> {
    io: S,
    rewriter: AuthorityRewriter,
}

impl<S> AuthorityFilter<S> {
    /// Wraps a connection from which no byte was read.
    pub(super) fn new(io: S) -> Self {
        Self {
            io,
            rewriter: AuthorityRewriter::default(),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for AuthorityFilter<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(context, buffer))?;
        self.rewriter.rewrite(&mut buffer.filled_mut()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for AuthorityFilter<S> {
    delegate_async_write!(|me| me.io);
}
