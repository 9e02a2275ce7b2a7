//! Channel with one slot in which the receiver requests each value. The sender encodes an event
//! only when the connection has room for it, so no events queue up for a slow reader. A tokio
//! channel allocates room for 32 values.

use futures_util::Stream;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Sending end.
#[derive(Debug)]
pub(super) struct PullSender<T>(Arc<Mutex<PullSlot<T>>>);

/// Receiving end, a stream of values.
#[derive(Debug)]
pub(super) struct PullReceiver<T>(Arc<Mutex<PullSlot<T>>>);

/// The receiver was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReceiverClosed;

/// State that both ends share.
#[derive(Debug)]
struct PullSlot<T> {
    event: Option<T>,
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
pub(super) fn pull_channel<T>() -> (PullSender<T>, PullReceiver<T>) {
    let between = PullSlot {
        event: None,
        is_requested: false,
        is_closed: false,
        sender_waker: None,
        receiver_waker: None,
    };
    let between = Arc::new(Mutex::new(between));
    (PullSender(between.clone()), PullReceiver(between))
}

fn lock<T>(between: &Mutex<PullSlot<T>>) -> MutexGuard<'_, PullSlot<T>> {
    between.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Closes the slot and wakes both ends. The lock is released before waking.
fn close_slot<T>(between: &Mutex<PullSlot<T>>) {
    let mut between = lock(between);
    between.is_closed = true;
    let wakers = (between.sender_waker.take(), between.receiver_waker.take());
    drop(between);
    wakers.0.into_iter().chain(wakers.1).for_each(Waker::wake);
}

impl<T> PullSender<T> {
    /// Waits until the receiver requests a value.
    pub(super) async fn wait_for_demand(&mut self) -> Result<(), ReceiverClosed> {
        poll_fn(|context| {
            let mut between = lock(&self.0);
            if between.is_closed {
                return Poll::Ready(Err(ReceiverClosed));
            }
            if between.is_requested {
                return Poll::Ready(Ok(()));
            }
            between.sender_waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Sends a value. Discards the value if another one is still in the slot.
    pub(super) fn send(&mut self, event: T) {
        let mut between = lock(&self.0);
        if between.event.is_some() || between.is_closed {
            return;
        }
        between.event = Some(event);
        between.is_requested = false;
        let reader = between.receiver_waker.take();
        drop(between);
        reader.into_iter().for_each(Waker::wake);
    }

    /// Waits until the receiver is dropped.
    pub(super) async fn wait_for_close(&mut self) {
        poll_fn(|context| {
            let mut between = lock(&self.0);
            if between.is_closed {
                return Poll::Ready(());
            }
            between.sender_waker = Some(context.waker().clone());
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
        let event = lock(&self.0).event.take();
        drop(event);
        close_slot(&self.0);
    }
}

impl<T> Stream for PullReceiver<T> {
    type Item = T;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut between = lock(&self.0);
        if let Some(event) = between.event.take() {
            return Poll::Ready(Some(event));
        }
        if between.is_closed {
            return Poll::Ready(None);
        }
        between.receiver_waker = Some(context.waker().clone());
        between.is_requested = true;
        let maker = between.sender_waker.take();
        drop(between);
        maker.into_iter().for_each(Waker::wake);
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::{ReceiverClosed, pull_channel};
    use futures_util::{FutureExt as _, StreamExt as _};

    #[tokio::test]
    async fn nothing_is_made_before_it_is_asked_for() {
        let (mut offer, mut offered) = pull_channel();
        assert!(offer.wait_for_demand().now_or_never().is_none());
        assert!(offered.next().now_or_never().is_none());
        offer.wait_for_demand().await.expect("asked for");
        offer.wait_for_demand().await.expect("still asked for");
        offer.send(1);
        assert!(offer.wait_for_demand().now_or_never().is_none());
        assert_eq!(offered.next().await, Some(1));
        assert!(offer.wait_for_demand().now_or_never().is_none(), "taken is not asked");
        offer.send(2);
        offer.send(3);
        assert_eq!(offered.next().await, Some(2));
        assert!(offered.next().now_or_never().is_none(), "the third was lost");
        offer.wait_for_demand().await.expect("asked for");
        drop(offered);
        assert_eq!(offer.wait_for_demand().await.err(), Some(ReceiverClosed));
        offer.wait_for_close().await;
    }

    #[tokio::test]
    async fn whoever_waits_is_woken() {
        let (mut offer, mut offered) = pull_channel();
        let made = tokio::spawn(async move {
            for n in 0..100 {
                offer.wait_for_demand().await.expect("asked for");
                offer.send(n);
            }
        });
        let read: Vec<_> = (&mut offered).collect().await;
        assert_eq!(read, (0..100).collect::<Vec<_>>(), "then nothing more is made");
        made.await.expect("made");
        let (mut offer, offered) = pull_channel::<()>();
        let left = tokio::spawn(async move { offer.wait_for_close().await });
        tokio::task::yield_now().await;
        drop(offered);
        left.await.expect("told");
    }

    #[tokio::test]
    async fn the_last_event_outlives_its_maker() {
        let (mut offer, offered) = pull_channel();
        offer.send(1);
        drop(offer);
        assert_eq!(offered.collect::<Vec<_>>().await, [1]);
    }
}
