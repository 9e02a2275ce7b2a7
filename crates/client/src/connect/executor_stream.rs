//! Byte stream of an executor's connection that knows its end, and that ends when the executor has
//! another address.

use super::tls_probe::TlsProbeIo;
use caproot_core::delegate_async_write;
use futures_util::future::BoxFuture;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Life of one connection.
#[derive(Debug, Default)]
pub struct ConnectionLife {
    /// Whether new calls must use another connection.
    is_retired: AtomicBool,
    /// Number of open connections of the fleet.
    open_count: Arc<AtomicUsize>,
}

/// Stream of one connection.
pub struct ExecutorStream {
    io: TlsProbeIo,
    life: Arc<ConnectionLife>,
    /// Completes when the executor has another address. `None` afterwards.
    moved: Option<BoxFuture<'static, ()>>,
}

impl ConnectionLife {
    pub fn new(open_count: Arc<AtomicUsize>) -> Self {
        Self {
            is_retired: AtomicBool::new(false),
            open_count,
        }
    }

    /// Returns whether new calls may use the connection.
    pub fn is_usable(&self) -> bool {
        !self.is_retired.load(Ordering::Acquire)
    }

    /// Sends new calls to another connection. Calls in flight and streams go on.
    pub fn retire(&self) {
        self.is_retired.store(true, Ordering::Release);
    }
}

impl ExecutorStream {
    pub fn new(io: TlsProbeIo, life: Arc<ConnectionLife>, moved: BoxFuture<'static, ()>) -> Self {
        life.open_count.fetch_add(1, Ordering::Relaxed);
        Self {
            io,
            life,
            moved: Some(moved),
        }
    }
}

impl Drop for ExecutorStream {
    fn drop(&mut self) {
        self.life.retire();
        self.life.open_count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl AsyncRead for ExecutorStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self
            .moved
            .as_mut()
            .is_none_or(|moved| moved.as_mut().poll(context).is_ready())
        {
            self.moved = None;
            self.life.retire();
            let reason = "the executor has another address now";
            return Poll::Ready(Err(io::Error::new(ErrorKind::ConnectionAborted, reason)));
        }

        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.io).poll_read(context, buffer));
        if read.is_err() || buffer.filled().len() == before {
            self.life.retire();
        }
        Poll::Ready(read)
    }
}

impl AsyncWrite for ExecutorStream {
    delegate_async_write!(|me| me.io);
}
