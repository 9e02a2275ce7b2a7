//! Write buffer of a connection. HTTP/2 writes each part of a response separately, and a system
//! call for each part costs more than its content. The buffer is sent when the connection task
//! waits.

use caproot_core::delegate_async_write;
use caproot_core::sync::Mutex;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, BufWriter, ReadBuf};

/// Size of the buffer: two frames of a long response. A client that does not read costs this
/// memory.
const BUFFER_BYTES: usize = 40 << 10;

/// Connection with a write buffer. Clones share the buffer. The task that writes is also the task
/// that sends, so nothing waits for the lock.
#[derive(Debug)]
pub struct CoalescingIo<T>(Arc<Mutex<BufWriter<T>>>);

impl<T: AsyncWrite + Unpin> CoalescingIo<T> {
    pub fn new(io: T) -> Self {
        Self(Arc::new(Mutex::new(BufWriter::with_capacity(
            BUFFER_BYTES,
            io,
        ))))
    }

    /// Polls `connection` until its end, and sends the buffer after each poll.
    pub async fn drive_connection<R>(
        &self,
        mut connection: Pin<&mut impl Future<Output = R>>,
    ) -> io::Result<R> {
        std::future::poll_fn(|context| {
            let ended = connection.as_mut().poll(context);
            let sent = Pin::new(&mut *self.0.lock()).poll_flush(context);
            if let Poll::Ready(Err(error)) = sent {
                return Poll::Ready(Err(error));
            }
            ended.map(Ok)
        })
        .await
    }
}

impl<T> Clone for CoalescingIo<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for CoalescingIo<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.lock()).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for CoalescingIo<T> {
    // `poll_shutdown` sends the buffer first.
    delegate_async_write!(|me| *me.0.lock(), except flush);

    /// Does nothing: [`CoalescingIo::drive_connection`] sends the buffer.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::{BUFFER_BYTES, CoalescingIo};
    use proptest::prelude::*;
    use std::future::poll_fn;
    use std::io::{self, IoSlice};
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll};
    use tokio::io::{AsyncWrite, AsyncWriteExt as _};

    /// Writer that accepts `max_write` bytes in every second call, and counts writes.
    #[derive(Debug, Default)]
    struct NarrowWriter {
        sent_bytes: Vec<u8>,
        max_write: usize,
        writes: usize,
        waits: bool,
        is_closed: bool,
    }

    impl AsyncWrite for NarrowWriter {
        fn poll_write(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.waits = !self.waits;
            if self.waits {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            if self.is_closed {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            let len = bytes.len().min(self.max_write);
            self.sent_bytes.extend(&bytes[..len]);
            self.writes += 1;
            Poll::Ready(Ok(len))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.is_closed = true;
            Poll::Ready(Ok(()))
        }
    }

    fn coalescing_io(max_write: usize) -> CoalescingIo<NarrowWriter> {
        CoalescingIo::new(NarrowWriter {
            max_write,
            ..NarrowWriter::default()
        })
    }

    fn sent_bytes(io: &CoalescingIo<NarrowWriter>) -> Vec<u8> {
        io.0.lock().get_ref().sent_bytes.clone()
    }

    #[tokio::test]
    async fn small_writes_are_sent_together_when_the_connection_waits() {
        let io = coalescing_io(usize::MAX);
        let mut writer = io.clone();
        let connection = async {
            for n in 0..9 {
                writer.write_all(&[n; 9]).await.expect("taken");
                writer.flush().await.expect("buffered");
            }
            assert_eq!(io.0.lock().get_ref().writes, 0);
            while sent_bytes(&io).is_empty() {
                tokio::task::yield_now().await;
            }
            assert_eq!(
                (sent_bytes(&io).len(), io.0.lock().get_ref().writes),
                (81, 1)
            );
            writer.write_all(b"the end").await.expect("taken");
        };
        io.drive_connection(pin!(connection)).await.expect("sent");
        assert_eq!(
            sent_bytes(&io).len(),
            81,
            "the rest is sent by shutting down"
        );
        writer.shutdown().await.expect("sent");
        assert!(sent_bytes(&io).ends_with(b"the end") && io.0.lock().get_ref().is_closed);
    }

    #[tokio::test]
    async fn a_write_error_ends_the_connection() {
        let io = coalescing_io(usize::MAX);
        io.0.lock().get_mut().is_closed = true;
        let mut writer = io.clone();
        let connection = async {
            writer.write_all(b"lost").await.expect("buffered");
            std::future::pending::<()>().await;
        };
        let error = io
            .drive_connection(pin!(connection))
            .await
            .expect_err("broken");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    proptest! {
        #[test]
        fn all_bytes_are_sent_in_order(
            writes in prop::collection::vec((0_usize..50_000, 1_usize..4, any::<bool>()), 0..20),
            max_write in 1_usize..60_000,
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            let io = coalescing_io(max_write.max(64));
            let mut writer = io.clone();
            let mut expected: Vec<u8> = Vec::new();
            let connection = async {
                for (n, (len, slices, waits)) in writes.iter().enumerate() {
                    let part: Vec<u8> = (0..*len).map(|i| ((i / 7 + n) % 251).to_le_bytes()[0]).collect();
                    expected.extend(&part);
                    let mut rest = &part[..];
                    while !rest.is_empty() {
                        let size = rest.len().div_ceil(*slices);
                        let slices: Vec<_> = rest.chunks(size).map(IoSlice::new).collect();
                        let write = |c: &mut Context<'_>| Pin::new(&mut writer).poll_write_vectored(c, &slices);
                        let written = poll_fn(write).await.expect("taken");
                        rest = &rest[written..];
                        let buffered = io.0.lock().buffer().len();
                        assert!(buffered <= BUFFER_BYTES, "{buffered}");
                    }
                    if *waits {
                        tokio::task::yield_now().await;
                    }
                }
                writer.shutdown().await.expect("sent");
            };
            runtime.block_on(io.drive_connection(pin!(connection))).expect("sent");
            prop_assert!(sent_bytes(&io) == expected);
        }
    }
}
