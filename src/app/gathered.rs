//! What a connection sends, gathered: HTTP/2 has each part of an answer go by itself, and the system takes
//! longer for that than for what is in it. So it goes together, when the connection has done all it could.
//! Leaves what is sent to `http`.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, BufWriter, ReadBuf};

/// What goes together at most: two of the frames of a long answer. A caller who takes nothing costs it.
const TOGETHER_BYTES: usize = 40 << 10;

/// Both ends of it: who writes, and who sends. They are one task, so that nobody waits for the lock.
#[derive(Debug)]
pub(super) struct Gathered<T>(Arc<Mutex<BufWriter<T>>>);

impl<T: AsyncWrite + Unpin> Gathered<T> {
    pub(super) fn new(io: T) -> Self {
        Self(Arc::new(Mutex::new(BufWriter::with_capacity(TOGETHER_BYTES, io))))
    }

    /// Has the connection do what it can, and sends what that wrote, until it ends.
    pub(super) async fn drive<R>(
        &self,
        mut connection: Pin<&mut impl Future<Output = R>>,
    ) -> io::Result<R> {
        std::future::poll_fn(|context| {
            let ended = connection.as_mut().poll(context);
            if let Poll::Ready(Err(error)) = self.poll_send(context) {
                return Poll::Ready(Err(error));
            }
            Poll::Ready(Ok(ready!(ended)))
        })
        .await
    }

    fn poll_send(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.io()).poll_flush(context)
    }

    fn io(&self) -> MutexGuard<'_, BufWriter<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Clone for Gathered<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for Gathered<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.io()).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Gathered<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.io()).poll_write(context, bytes)
    }

    /// Nothing yet: [`Gathered::drive`] does, before the connection is left alone.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// With all that was written before.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.io()).poll_shutdown(context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.io()).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io().is_write_vectored()
    }
}
