//! Wrappers of connections.

use tokio::io::{AsyncRead, AsyncWrite};

/// Connection of any kind: a socket, a pipe in memory, or a tunnel.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// Implements the methods of [`AsyncWrite`] for a wrapper of a writer. `|me| me.io` names the
/// writer of the wrapper `me`. With `except flush`, the wrapper has its own `poll_flush`.
#[macro_export]
macro_rules! delegate_async_write {
    (|$me:ident| $io:expr) => {
        $crate::delegate_async_write!(|$me| $io, except flush);

        fn poll_flush(
            self: ::std::pin::Pin<&mut Self>,
            context: &mut ::std::task::Context<'_>,
        ) -> ::std::task::Poll<::std::io::Result<()>> {
            let $me = self.get_mut();
            ::std::pin::Pin::new(&mut $io).poll_flush(context)
        }
    };
    (|$me:ident| $io:expr, except flush) => {
        fn poll_write(
            self: ::std::pin::Pin<&mut Self>,
            context: &mut ::std::task::Context<'_>,
            bytes: &[u8],
        ) -> ::std::task::Poll<::std::io::Result<usize>> {
            let $me = self.get_mut();
            ::std::pin::Pin::new(&mut $io).poll_write(context, bytes)
        }

        fn poll_write_vectored(
            self: ::std::pin::Pin<&mut Self>,
            context: &mut ::std::task::Context<'_>,
            slices: &[::std::io::IoSlice<'_>],
        ) -> ::std::task::Poll<::std::io::Result<usize>> {
            let $me = self.get_mut();
            ::std::pin::Pin::new(&mut $io).poll_write_vectored(context, slices)
        }

        fn is_write_vectored(&self) -> bool {
            let $me = self;
            $io.is_write_vectored()
        }

        fn poll_shutdown(
            self: ::std::pin::Pin<&mut Self>,
            context: &mut ::std::task::Context<'_>,
        ) -> ::std::task::Poll<::std::io::Result<()>> {
            let $me = self.get_mut();
            ::std::pin::Pin::new(&mut $io).poll_shutdown(context)
        }
    };
}
