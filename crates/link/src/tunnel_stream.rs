//! Tunnel as a stream of bytes, and its driver, which carries the frames.

use super::tunnel_state::TunnelState;
use bytes::Bytes;
use caproot_core::proto::link::caproot::link::v1::{TunnelFrame, TunnelResetReason};
use caproot_core::sync::Mutex;
use prost::Message as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

/// Stream of bytes through a tunnel. A reset is an error of the kind `ConnectionReset`. Dropping the
/// stream ends the tunnel.
#[derive(Debug)]
pub struct TunnelStream(Arc<SharedTunnel>);

/// Side of a tunnel that takes frames from the broker and gives frames to the broker.
#[derive(Debug)]
pub struct TunnelDriver(Arc<SharedTunnel>);

#[derive(Debug, Default)]
struct SharedTunnel {
    halves: Mutex<TunnelHalves>,
    /// Notified when the stream has changed the state.
    stream_changed: Notify,
}

#[derive(Debug, Default)]
struct TunnelHalves {
    state: TunnelState,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl TunnelHalves {
    fn wake_stream(&mut self) {
        for waker in self.reader.take().into_iter().chain(self.writer.take()) {
            waker.wake();
        }
    }
}

/// Creates a tunnel without frames.
pub fn open_tunnel() -> (TunnelStream, TunnelDriver) {
    let shared = Arc::<SharedTunnel>::default();
    (TunnelStream(shared.clone()), TunnelDriver(shared))
}

impl TunnelDriver {
    /// Takes a message of the other side. A message that is no frame resets the tunnel.
    pub fn receive(&self, message: Bytes) {
        // Number 0 is never the next frame.
        let frame = TunnelFrame::decode(message).unwrap_or_default();
        self.change_state(|state| {
            state.receive(frame);
        });
    }

    fn change_state(&self, change: impl FnOnce(&mut TunnelState)) {
        let mut halves = self.0.halves.lock();
        change(&mut halves.state);
        halves.wake_stream();
        // There may be credit to send bytes, or a reset to send.
        self.0.stream_changed.notify_one();
    }

    /// Waits for the next frame, encoded. Returns `None` once the tunnel is over. Cancel safe.
    pub async fn next_frame(&self) -> Option<Bytes> {
        loop {
            {
                let mut halves = self.0.halves.lock();
                if let Some(frame) = halves.state.next_frame() {
                    halves.wake_stream();
                    return Some(frame.encode_to_vec().into());
                }
                if halves.state.is_over() {
                    return None;
                }
            }
            self.0.stream_changed.notified().await;
        }
    }

    /// Resets the tunnel. The next frame tells the other side.
    pub fn reset(&self, reason: TunnelResetReason) {
        self.change_state(|state| state.start_reset(reason));
    }
}

impl Drop for TunnelDriver {
    fn drop(&mut self) {
        self.change_state(|state| {
            // A tunnel that is over is complete or reset already.
            if !state.is_over() {
                state.start_reset(TunnelResetReason::BrokerLost);
            }
        });
    }
}

impl Drop for TunnelStream {
    fn drop(&mut self) {
        self.0.halves.lock().state.abandon();
        self.0.stream_changed.notify_one();
    }
}

impl AsyncRead for TunnelStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let mut halves = self.0.halves.lock();
        let Some(read) = halves.state.read(buffer.initialize_unfilled())? else {
            halves.reader = Some(context.waker().clone());
            return Poll::Pending;
        };
        buffer.advance(read);
        // There may be credit to give back.
        self.0.stream_changed.notify_one();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TunnelStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut halves = self.0.halves.lock();
        match halves.state.write(bytes)? {
            0 if !bytes.is_empty() => {
                halves.writer = Some(context.waker().clone());
                Poll::Pending
            }
            written => {
                self.0.stream_changed.notify_one();
                Poll::Ready(Ok(written))
            }
        }
    }

    /// Does nothing: the driver sends all bytes that were written.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.halves.lock().state.close_write();
        self.0.stream_changed.notify_one();
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::{TunnelDriver, open_tunnel};
    use caproot_core::proto::link::caproot::link::v1::TunnelResetReason;
    use std::io::ErrorKind;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// Carries frames from one driver to the other until the tunnel is over.
    async fn carry(from: &TunnelDriver, to: &TunnelDriver) {
        while let Some(frame) = from.next_frame().await {
            to.receive(frame);
        }
    }

    #[tokio::test]
    async fn megabytes_pass_in_both_directions() {
        let ((mut one, one_driver), (mut other, other_driver)) = (open_tunnel(), open_tunnel());
        let drivers = tokio::spawn(async move {
            tokio::join!(
                carry(&one_driver, &other_driver),
                carry(&other_driver, &one_driver)
            );
        });
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| n.to_le_bytes()[1]).collect();
        let expected = bytes.clone();
        let echo = tokio::spawn(async move {
            let mut read = Vec::new();
            other.read_to_end(&mut read).await.expect("all bytes");
            other.write_all(&read).await.expect("a tunnel");
            other.shutdown().await.expect("a tunnel");
            // The stream lives until the other side has everything.
            other
        });
        one.write_all(&bytes).await.expect("a tunnel");
        one.shutdown().await.expect("a tunnel");
        let mut read = Vec::new();
        one.read_to_end(&mut read).await.expect("all bytes");
        assert!(read == expected);
        drop(echo.await.expect("no panic"));
        drivers.await.expect("both directions end");
    }

    #[tokio::test]
    async fn a_reset_reaches_both_sides() {
        let ((mut one, one_driver), (mut other, other_driver)) = (open_tunnel(), open_tunnel());
        let waiting = tokio::spawn(async move { one.read_u8().await.expect_err("a reset").kind() });
        one_driver.reset(TunnelResetReason::Superseded);
        tokio::join!(
            carry(&one_driver, &other_driver),
            carry(&other_driver, &one_driver)
        );
        assert_eq!(waiting.await.expect("no panic"), ErrorKind::ConnectionReset);
        let error = other.read_u8().await.expect_err("a reset");
        assert_eq!(error.to_string(), "a newer link serves the environment");
        assert_eq!(
            other.write(b"x").await.expect_err("a reset").kind(),
            ErrorKind::ConnectionReset
        );
    }

    #[tokio::test]
    async fn a_message_that_is_no_frame_resets_the_tunnel() {
        let (mut stream, driver) = open_tunnel();
        driver.receive((&b"\xff\xff"[..]).into());
        assert_eq!(
            stream.read_u8().await.expect_err("a reset").kind(),
            ErrorKind::ConnectionReset
        );
        assert!(driver.next_frame().await.is_some() && driver.next_frame().await.is_none());
    }

    #[tokio::test]
    async fn a_lost_driver_is_an_error_of_the_stream() {
        let (mut stream, driver) = open_tunnel();
        drop(driver);
        assert_eq!(
            stream.read_u8().await.expect_err("a reset").kind(),
            ErrorKind::ConnectionReset
        );
    }
}
