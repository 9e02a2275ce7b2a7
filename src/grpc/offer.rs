//! The way of a stream's events from the task that makes them to the connection that sends them. One is
//! made only when the connection asks for it, so that none lies in between for a reader that is slow. A
//! channel of tokio's would do, but takes room for 32 events where one is ever in it.

use futures_util::Stream;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Where events are made.
#[derive(Debug)]
pub(super) struct Offer<T>(Arc<Mutex<Between<T>>>);

/// Where events are sent from.
#[derive(Debug)]
pub(super) struct Offered<T>(Arc<Mutex<Between<T>>>);

/// Nobody reads any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gone;

/// What both ends share.
#[derive(Debug)]
struct Between<T> {
    event: Option<T>,
    /// Whether the next one is asked for.
    is_asked: bool,
    /// Whether no more is made, or no more is read.
    is_over: bool,
    /// Woken when an event is asked for, or nobody reads any more.
    maker: Option<Waker>,
    /// Woken when there is an event, or no more will be made.
    reader: Option<Waker>,
}

/// Both ends.
pub(super) fn offer<T>() -> (Offer<T>, Offered<T>) {
    let between =
        Between { event: None, is_asked: false, is_over: false, maker: None, reader: None };
    let between = Arc::new(Mutex::new(between));
    (Offer(between.clone()), Offered(between))
}

fn lock<T>(between: &Mutex<Between<T>>) -> MutexGuard<'_, Between<T>> {
    between.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes whoever waits, once nothing is locked any more.
fn end<T>(between: &Mutex<Between<T>>) {
    let mut between = lock(between);
    between.is_over = true;
    let wakers = (between.maker.take(), between.reader.take());
    drop(between);
    wakers.0.into_iter().chain(wakers.1).for_each(Waker::wake);
}

impl<T> Offer<T> {
    /// Waits until an event is asked for.
    pub(super) async fn asked(&mut self) -> Result<(), Gone> {
        poll_fn(|context| {
            let mut between = lock(&self.0);
            if between.is_over {
                return Poll::Ready(Err(Gone));
            }
            if between.is_asked {
                return Poll::Ready(Ok(()));
            }
            between.maker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Sends an event. One that was not asked for is lost if another one waits.
    pub(super) fn send(&mut self, event: T) {
        let mut between = lock(&self.0);
        if between.event.is_some() || between.is_over {
            return;
        }
        between.event = Some(event);
        between.is_asked = false;
        let reader = between.reader.take();
        drop(between);
        reader.into_iter().for_each(Waker::wake);
    }

    /// Waits until nobody reads any more.
    pub(super) async fn gone(&mut self) {
        poll_fn(|context| {
            let mut between = lock(&self.0);
            if between.is_over {
                return Poll::Ready(());
            }
            between.maker = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl<T> Drop for Offer<T> {
    fn drop(&mut self) {
        end(&self.0);
    }
}

impl<T> Drop for Offered<T> {
    fn drop(&mut self) {
        // An event that lies there is not sent any more.
        let event = lock(&self.0).event.take();
        drop(event);
        end(&self.0);
    }
}

impl<T> Stream for Offered<T> {
    type Item = T;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut between = lock(&self.0);
        if let Some(event) = between.event.take() {
            return Poll::Ready(Some(event));
        }
        if between.is_over {
            return Poll::Ready(None);
        }
        between.reader = Some(context.waker().clone());
        between.is_asked = true;
        let maker = between.maker.take();
        drop(between);
        maker.into_iter().for_each(Waker::wake);
        Poll::Pending
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

    #[tokio::test]
    async fn whoever_waits_is_woken() {
        let (mut offer, mut offered) = offer();
        let made = tokio::spawn(async move {
            for n in 0..100 {
                offer.asked().await.expect("asked for");
                offer.send(n);
            }
        });
        let read: Vec<_> = (&mut offered).collect().await;
        assert_eq!(read, (0..100).collect::<Vec<_>>(), "then nothing more is made");
        made.await.expect("made");
        let (mut offer, offered) = super::offer::<()>();
        let left = tokio::spawn(async move { offer.gone().await });
        tokio::task::yield_now().await;
        drop(offered);
        left.await.expect("told");
    }

    #[tokio::test]
    async fn the_last_event_outlives_its_maker() {
        let (mut offer, offered) = offer();
        offer.send(1);
        drop(offer);
        assert_eq!(offered.collect::<Vec<_>>().await, [1]);
    }
}
