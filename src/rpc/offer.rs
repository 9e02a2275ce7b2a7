//! The way of a stream's events from the task that makes them to the connection that sends them. One is
//! made only when the connection asks for it, so that none lies in between for a reader that is slow.

use futures_util::Stream;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::{mpsc, watch};

/// Where events are made.
#[derive(Debug)]
pub(super) struct Offer<T> {
    /// Holds the one event that was asked for.
    events: mpsc::Sender<T>,
    sent: u64,
    asked: watch::Receiver<Option<u64>>,
}

/// Where events are sent from.
#[derive(Debug)]
pub(super) struct Offered<T> {
    events: mpsc::Receiver<T>,
    taken: u64,
    /// How many were taken when the next one was asked for. A watch holds only the latest, so it is
    /// never full.
    asked: watch::Sender<Option<u64>>,
}

/// Nobody reads any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gone;

/// Both ends.
pub(super) fn offer<T>() -> (Offer<T>, Offered<T>) {
    let (send, receive) = mpsc::channel(1);
    let (ask, asked) = watch::channel(None);
    (Offer { events: send, sent: 0, asked }, Offered { events: receive, taken: 0, asked: ask })
}

impl<T> Offer<T> {
    /// Waits until an event is asked for.
    pub(super) async fn asked(&mut self) -> Result<(), Gone> {
        if self.events.is_closed() {
            return Err(Gone);
        }
        let sent = self.sent;
        self.asked.wait_for(|asked| *asked == Some(sent)).await.map(drop).map_err(|_| Gone)
    }

    /// Sends an event. One that was not asked for is lost if another one waits.
    pub(super) fn send(&mut self, event: T) {
        if self.events.try_send(event).is_ok() {
            self.sent += 1;
        }
    }

    /// Waits until nobody reads any more.
    pub(super) async fn gone(&self) {
        self.events.closed().await;
    }
}

impl<T> Stream for Offered<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let event = self.events.poll_recv(context);
        match &event {
            Poll::Ready(_) => self.taken += 1,
            Poll::Pending => {
                let taken = Some(self.taken);
                self.asked.send_if_modified(|asked| std::mem::replace(asked, taken) != taken);
            }
        }
        event
    }
}

#[cfg(test)]
mod tests {
    use super::{Gone, offer};
    use futures_util::{FutureExt as _, StreamExt as _};

    #[tokio::test]
    async fn nothing_is_made_before_it_is_asked_for() {
        let (mut offer, mut offered) = offer();
        assert!(offer.asked().now_or_never().is_none());
        assert!(offered.next().now_or_never().is_none());
        offer.asked().await.expect("asked for");
        offer.asked().await.expect("still asked for");
        offer.send(1);
        assert!(offer.asked().now_or_never().is_none());
        assert_eq!(offered.next().await, Some(1));
        assert!(offer.asked().now_or_never().is_none(), "taken is not asked");
        offer.send(2);
        offer.send(3);
        assert_eq!(offered.next().await, Some(2));
        assert!(offered.next().now_or_never().is_none(), "the third was lost");
        offer.asked().await.expect("asked for");
        drop(offered);
        assert_eq!(offer.asked().await.err(), Some(Gone));
        offer.gone().await;
    }
}
