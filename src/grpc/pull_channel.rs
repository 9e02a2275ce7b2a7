//! Channel with one slot in which the receiver requests each value. The sender encodes an event
//! only when the connection has room for it, so no events queue up for a slow reader. A tokio
//! channel allocates room for 32 values.

use crate::sync::Mutex;
use futures_util::Stream;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Sending end.
#[derive(Debug)]
pub struct PullSender<T>(Arc<Mutex<PullSlot<T>>>);

/// Receiving end, a stream of values.
#[derive(Debug)]
pub struct PullReceiver<T>(Arc<Mutex<PullSlot<T>>>);

/// The receiver was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiverClosed;

/// State that both ends share.
#[derive(Debug)]
struct PullSlot<T> {
    value: Option<T>,
    /// Whether the receiver waits for a value.
    is_requested: bool,
    /// Whether one of the ends was dropped.
    is_closed: bool,
    /// Woken when the receiver requests a value or is dropped.
    sender_waker: Option<Waker>,
    /// Woken when a value arrives or the sender is dropped.
    receiver_waker: Option<Waker>,
}

/// Creates a channel.
pub fn pull_channel<T>() -> (PullSender<T>, PullReceiver<T>) {
    let slot = PullSlot {
        value: None,
        is_requested: false,
        is_closed: false,
        sender_waker: None,
        receiver_waker: None,
    };
    let slot = Arc::new(Mutex::new(slot));
    (PullSender(slot.clone()), PullReceiver(slot))
}

/// Closes the slot and wakes both ends. The lock is released before waking.
fn close_slot<T>(slot: &Mutex<PullSlot<T>>) {
    let mut slot = slot.lock();
    slot.is_closed = true;
    let wakers = (slot.sender_waker.take(), slot.receiver_waker.take());
    drop(slot);
    wakers.0.into_iter().chain(wakers.1).for_each(Waker::wake);
}

impl<T> PullSender<T> {
    /// Waits until the receiver requests a value.
    pub async fn wait_for_demand(&mut self) -> Result<(), ReceiverClosed> {
        poll_fn(|context| {
            let mut slot = self.0.lock();
            if slot.is_closed {
                return Poll::Ready(Err(ReceiverClosed));
            }
            if slot.is_requested {
                return Poll::Ready(Ok(()));
            }
            slot.sender_waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Sends a value. Discards the value if the slot is full.
    pub fn send(&mut self, value: T) {
        let mut slot = self.0.lock();
        if slot.value.is_some() || slot.is_closed {
            return;
        }
        slot.value = Some(value);
        slot.is_requested = false;
        let waker = slot.receiver_waker.take();
        drop(slot);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Waits until the receiver is dropped.
    pub async fn wait_for_close(&mut self) {
        poll_fn(|context| {
            let mut slot = self.0.lock();
            if slot.is_closed {
                return Poll::Ready(());
            }
            slot.sender_waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl<T> Drop for PullSender<T> {
    fn drop(&mut self) {
        close_slot(&self.0);
    }
}

impl<T> Drop for PullReceiver<T> {
    fn drop(&mut self) {
        // Drop the value outside the lock.
        let value = self.0.lock().value.take();
        drop(value);
        close_slot(&self.0);
    }
}

impl<T> Stream for PullReceiver<T> {
    type Item = T;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut slot = self.0.lock();
        if let Some(value) = slot.value.take() {
            return Poll::Ready(Some(value));
        }
        if slot.is_closed {
            return Poll::Ready(None);
        }
        slot.receiver_waker = Some(context.waker().clone());
        slot.is_requested = true;
        let waker = slot.sender_waker.take();
        drop(slot);
        waker.into_iter().for_each(Waker::wake);
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::{ReceiverClosed, pull_channel};
    use futures_util::{FutureExt as _, StreamExt as _};

    #[tokio::test]
    async fn sender_waits_for_demand() {
        let (mut sender, mut receiver) = pull_channel();
        assert!(sender.wait_for_demand().now_or_never().is_none());
        assert!(receiver.next().now_or_never().is_none());
        sender.wait_for_demand().await.expect("receiver requested a value");
        sender.wait_for_demand().await.expect("request is still pending");
        sender.send(1);
        assert!(sender.wait_for_demand().now_or_never().is_none());
        assert_eq!(receiver.next().await, Some(1));
        assert!(
            sender.wait_for_demand().now_or_never().is_none(),
            "taking a value is not a request"
        );
        sender.send(2);
        sender.send(3);
        assert_eq!(receiver.next().await, Some(2));
        assert!(receiver.next().now_or_never().is_none(), "third value was discarded");
        sender.wait_for_demand().await.expect("receiver requested a value");
        drop(receiver);
        assert_eq!(sender.wait_for_demand().await.err(), Some(ReceiverClosed));
        sender.wait_for_close().await;
    }

    #[tokio::test]
    async fn waiting_ends_are_woken() {
        let (mut sender, mut receiver) = pull_channel();
        let sender_task = tokio::spawn(async move {
            for n in 0..100 {
                sender.wait_for_demand().await.expect("receiver requested a value");
                sender.send(n);
            }
        });
        let values: Vec<_> = (&mut receiver).collect().await;
        assert_eq!(values, (0..100).collect::<Vec<_>>(), "all values in order");
        sender_task.await.expect("sender task");
        let (mut sender, receiver) = pull_channel::<()>();
        let closing = tokio::spawn(async move { sender.wait_for_close().await });
        tokio::task::yield_now().await;
        drop(receiver);
        closing.await.expect("sender is woken");
    }

    #[tokio::test]
    async fn last_event_outlives_sender() {
        let (mut sender, receiver) = pull_channel();
        sender.send(1);
        drop(sender);
        assert_eq!(receiver.collect::<Vec<_>>().await, [1]);
    }
}
