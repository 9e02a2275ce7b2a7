//! Task of one `WatchSkills` stream, and the channel by which the connection requests each event.
//! The task holds the last sent view, and sends the difference to the current view whenever the
//! client has room for it. A slow reader delays no other stream and needs no more memory than this
//! view.

use super::audit_log::AuditedCall;
use super::auth::CallerCredentials;
use super::catalog_digests::CatalogDigests;
use super::change_events::change_events;
use super::encoded_body::{ChunkStream, EncodedEvent};
use super::errors::shutting_down;
use super::message_cache::{MessageCache, MessageKey};
use super::quota::QuotaPermit;
use super::readiness_messages::{ViewReadiness, check_view, readiness_events};
use super::requests::{KnownCatalogs, ListQuery, WatchRequest};
use super::service::GrpcService;
use crate::daemon::catalog::{CatalogView, ConsistencyLevel, RootLease, WaitBudget};
use crate::daemon::model::token::ResumeToken;
use caproot_core::proto::caproot::v1 as pb;
use caproot_core::sync::Mutex;
use caproot_core::wire::cursor::Cursor as _;
use futures_util::{Stream, StreamExt as _, stream};
use pb::watch_skills_response::Event;
use std::future::{pending, poll_fn};
use std::iter::{once, once_with};
use std::mem::take;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tonic::Status;

/// Path of the method.
pub const WATCH_METHOD_PATH: &str = "/caproot.v1.CapabilityService/WatchSkills";

/// State of one stream.
pub struct WatchStream {
    service: Arc<GrpcService>,
    /// Readiness that the client has.
    sent_readiness: ViewReadiness,
    credentials: CallerCredentials,
    request: WatchRequest,
    /// Lease of the selected roots.
    lease: Option<RootLease>,
    /// Events are encoded only when the client requests them.
    event_sender: PullSender<Result<Arc<EncodedEvent>, Status>>,
    /// Status of the stream, if the stream ends for another reason than shutdown.
    end_status: oneshot::Sender<Status>,
    /// Permit of the quota of open streams.
    permit: QuotaPermit,
    /// Revision that the client holds completely; `None` in the middle of a state.
    synced_revision: Option<u64>,
    /// Time of the next bookmark. Changes that the stream does not show do not delay it.
    next_bookmark: Instant,
}

/// Interruption of a transition.
#[derive(Debug, PartialEq, Eq)]
enum StreamInterruption {
    /// The client disconnected, or the daemon is stopping.
    Closed,
    /// The client stopped reading in the middle of a state.
    ReaderStalled,
}

impl WatchStream {
    /// Starts the task of a stream and returns its encoded events. Records a denied root in `call` when
    /// its event is sent. The task ends when the client disconnects, the caller is denied, or the daemon
    /// stops.
    pub fn spawn(
        service: Arc<GrpcService>,
        credentials: CallerCredentials,
        request: WatchRequest,
        permit: QuotaPermit,
        call: AuditedCall,
    ) -> ChunkStream {
        let (event_sender, events) = pull_channel();
        let (end_status, ended) = oneshot::channel();
        let next_bookmark = Instant::now() + request.bookmark_interval;
        let stream = Self {
            service,
            sent_readiness: Vec::new(),
            credentials,
            request,
            lease: None,
            event_sender,
            end_status,
            permit,
            synced_revision: None,
            next_bookmark,
        };

        tokio::spawn(stream.run());

        let chunks = events.map(move |event: Result<Arc<EncodedEvent>, Status>| {
            event.map(|event| {
                if let Some(root) = &event.denied_root {
                    call.record_denied_root(root);
                }
                event.into_bytes()
            })
        });
        // If the task drops the sender without a status, the daemon is stopping.
        let end = async { Err(ended.await.unwrap_or_else(|_| shutting_down())) };
        Box::pin(chunks.chain(stream::once(end)))
    }

    async fn run(mut self) {
        let mut signals = ChangeSignals {
            revisions: self.service.store.subscribe_revisions(),
            readiness: self.service.readiness.subscribe(),
        };
        let shutdown = self.service.shutdown.clone();
        let credentials = self.credentials.clone();

        tokio::select! {
            () = self.send_changes(&mut signals) => {}
            status = credentials.wait_until_denied(WATCH_METHOD_PATH) => {
                // The receiver is gone if the client disconnected.
                drop(self.end_status.send(status));
            }
            () = shutdown.cancelled() => {
                if let Some(revision) = self.synced_revision {
                    // If the client has not requested an event, it has the token of the previous
                    // event.
                    self.event_sender.send(self.bookmark_event(revision));
                }
            }
        }

        // Release the permit before the rest is dropped, so that another stream can start.
        drop(self.permit);
    }

    async fn send_changes(&mut self, signals: &mut ChangeSignals) {
        let resumed = self.resume_view();
        let mut reason = resumed.as_ref().err().copied();
        let mut client_view = resumed.ok();
        if let Some(view) = &client_view {
            self.request.known_catalogs.remove_ready_roots(view);
        }

        let mut view = self.current_view().await;
        loop {
            signals.revisions.mark_unchanged();
            signals.readiness.mark_unchanged();

            let is_first = self.synced_revision.is_none();
            let readiness = check_view(&self.service.readiness, &view).await;
            let product = &self.request.query.product;
            let events = readiness_events(product, &self.sent_readiness, &view, &readiness);
            let next = NextState {
                client_view: client_view.as_ref(),
                reason,
                view: &view,
            };
            // Boxed, so that an idle stream does not keep its memory. Most streams are idle most of
            // the time.
            match Box::pin(self.send_transition(next, events, is_first)).await {
                Ok(()) => {
                    self.sent_readiness = readiness;
                    self.synced_revision = Some(view.revision);
                    self.request.known_catalogs.remove_ready_roots(&view);
                }
                Err(StreamInterruption::Closed) => return,
                Err(StreamInterruption::ReaderStalled) => {
                    // Discard the client's state, and wait until the client reads again. The client
                    // may have discarded its known catalogs.
                    client_view = None;
                    self.request.known_catalogs = KnownCatalogs::default();
                    self.sent_readiness.clear();
                    drop(view);
                    reason = Some(pb::ResetReason::Resync);
                    if self.event_sender.wait_for_demand().await.is_err() {
                        return;
                    }
                    view = self.current_view().await;
                    continue;
                }
            }

            reason = None;
            let sent = view;
            let Some(next) = self.wait_for_change(signals, &sent).await else {
                return;
            };
            view = next;
            client_view = Some(sent);
        }
    }

    /// Returns the current view for the current access scope of the caller.
    async fn current_view(&mut self) -> CatalogView {
        loop {
            if self.credentials.rules_changed() {
                match self.credentials.authenticate().await {
                    Ok(caller) => self.request.query.selection.access_scope = caller.access_scope,
                    // `wait_until_denied` ends the stream.
                    Err(_) => return pending().await,
                }
            }

            let store = &self.service.store;
            let selection = &self.request.query.selection;
            let lease = self.lease.as_ref();
            let view = if lease.is_some_and(|lease| store.is_lease_current(lease, selection)) {
                store.current_view(selection)
            } else {
                // The lease keeps the roots watched while this stream is open.
                self.lease = Some(store.lease_roots(selection));
                let wait_budget = WaitBudget::new(None);
                // Boxed because it is rarely needed and larger than the rest of the stream.
                let view = store.view(selection, ConsistencyLevel::Cached, wait_budget);
                let view = Box::pin(view).await;
                view.unwrap_or_else(|_| store.current_view(selection))
            };

            // If the rules changed meanwhile, the view may show too much.
            if !self.credentials.rules_changed() {
                return view;
            }
        }
    }

    /// Returns the view that the client holds, or the reason for a reset.
    fn resume_view(&self) -> Result<CatalogView, pb::ResetReason> {
        let query = &self.request.query;
        let Some(token) = ResumeToken::decode(&self.request.resume_token, b"") else {
            return Err(pb::ResetReason::Initial);
        };

        let store = &self.service.store;
        let expected = query.resume_token(store.epoch(), token.revision);
        if token.epoch != expected.epoch {
            return Err(pb::ResetReason::EpochChanged);
        }
        if token != expected {
            return Err(pb::ResetReason::SelectionChanged);
        }

        let view = store.view_at(&query.selection, token.revision);
        view.ok_or(pb::ResetReason::Compacted)
    }

    /// Waits until the roots change and the client has room for an event. Sends bookmarks
    /// meanwhile. Returns `None` at the end of the stream.
    async fn wait_for_change(
        &mut self,
        signals: &mut ChangeSignals,
        sent: &CatalogView,
    ) -> Option<CatalogView> {
        loop {
            let (mut is_readiness, mut is_idle) = (false, false);
            tokio::select! {
                changed = signals.revisions.changed() => changed.ok()?,
                changed = signals.readiness.changed() => { changed.ok()?; is_readiness = true; }
                () = self.credentials.wait_for_new_rules() => {}
                () = self.event_sender.wait_for_close() => return None,
                () = sleep_until(self.next_bookmark) => is_idle = true,
            }

            self.event_sender.wait_for_demand().await.ok()?;
            signals.revisions.mark_unchanged();
            let view = self.current_view().await;
            let mut roots = sent.roots.iter().zip(&view.roots);
            if is_readiness || !roots.all(|(old, new)| old.state.is_same(&new.state)) {
                return Some(view);
            }

            if is_idle {
                self.event_sender.send(self.bookmark_event(view.revision));
                self.synced_revision = Some(view.revision);
                self.next_bookmark = Instant::now() + self.request.bookmark_interval;
            }
        }
    }

    /// Sends the events between two views, followed by those with the changed readiness and `synced`.
    async fn send_transition(
        &mut self,
        next: NextState<'_>,
        mut readiness: Vec<Event>,
        is_first: bool,
    ) -> Result<(), StreamInterruption> {
        let GrpcService {
            store,
            event_cache,
            catalog_digests,
            ..
        } = &*self.service;
        // Borrows only single fields, because the event sender is borrowed mutably below.
        let transition = Transition {
            query: &self.request.query,
            digests: catalog_digests,
            known: &self.request.known_catalogs,
            next,
            epoch: store.epoch(),
        };
        let revision = next.view.revision;
        let key = transition.cache_key(is_first);

        let mut events = None;
        if !is_first && cached_event(event_cache, key, 0).is_none() {
            let mut new = transition.events();
            events = match new.next() {
                // Nothing visible changed, so there is nothing to send.
                None => return Ok(()),
                Some(Event::Synced(_)) if readiness.is_empty() => return Ok(()),
                Some(first) => Some(Box::new(once(first).chain(new)) as Box<_>),
            };
        }

        self.synced_revision = None;
        self.next_bookmark = Instant::now() + self.request.bookmark_interval;
        let stall_timeout = store.timing().stalled_reader_timeout;
        let mut skipped = 0;
        for number in 0.. {
            wait_for_reader(&mut self.event_sender, stall_timeout).await?;

            let event = if let Some(event) = cached_event(event_cache, key, number) {
                skipped += 1;
                Ok(event)
            } else {
                // Encoded only now, so that no event waits in memory for a slow reader.
                let new_events = events.get_or_insert_with(|| transition.events());
                let Some(event) = new_events.nth(skipped) else {
                    break;
                };
                skipped = 0;
                EncodedEvent::new(transition.epoch, revision, event).map(|event| match key {
                    Some(key) => event_cache.insert(key.at_position((0, number)), event),
                    None => Arc::new(event),
                })
            };

            let is_synced = event.as_ref().is_ok_and(|event| event.is_synced);
            if is_synced {
                // These events are only of this executor, so they are in no cache.
                for list in take(&mut readiness) {
                    let list = EncodedEvent::new(transition.epoch, revision, list);
                    self.event_sender.send(list.map(Arc::new));
                    wait_for_reader(&mut self.event_sender, stall_timeout).await?;
                }
            }
            self.event_sender.send(event);
            if is_synced {
                break;
            }
        }
        Ok(())
    }

    fn bookmark_event(&self, revision: u64) -> Result<Arc<EncodedEvent>, Status> {
        let epoch = self.service.store.epoch();
        let token = self.request.query.resume_token(epoch, revision);
        let bookmark = Event::Bookmark(pb::Bookmark {
            resume_token: token.encode(b""),
        });
        EncodedEvent::new(epoch, revision, bookmark).map(Arc::new)
    }
}

/// Signals of changes that a stream waits for.
struct ChangeSignals {
    /// Revision of the catalogs.
    revisions: watch::Receiver<u64>,
    /// Number of the lookups of programs.
    readiness: watch::Receiver<u64>,
}

/// State to which a stream leads its client.
#[derive(Clone, Copy)]
struct NextState<'a> {
    client_view: Option<&'a CatalogView>,
    /// Reason for a reset, if the client must discard its state.
    reason: Option<pb::ResetReason>,
    view: &'a CatalogView,
}

/// Way from the view that the client holds to another view.
#[derive(Clone, Copy)]
struct Transition<'a> {
    query: &'a ListQuery,
    digests: &'a CatalogDigests,
    known: &'a KnownCatalogs,
    next: NextState<'a>,
    epoch: u64,
}

impl<'a> Transition<'a> {
    /// Returns the key under which streams share the events.
    fn cache_key(&self, is_first: bool) -> Option<MessageKey> {
        let parameters = [
            self.next.reason.map_or(0, |reason| reason as usize),
            usize::from(is_first),
        ];
        let mut query = self.query.page_token_binding();
        self.known.append_to(&mut query);
        MessageKey::new(&query, self.next.client_view, self.next.view, parameters)
    }

    /// Returns the events, the last of which is `synced`. Boxed, and built by the first stream only:
    /// all streams send at the same time, and these iterators need more memory than the rest of a
    /// stream.
    fn events(self) -> Box<dyn Iterator<Item = Event> + Send + 'a> {
        let reset = self.next.reason.map(|reason| {
            Event::Reset(pb::Reset {
                reason: reason.into(),
            })
        });
        let changes = change_events(
            self.query,
            self.digests,
            self.known,
            self.next.client_view,
            self.next.view,
        );
        let synced = once_with(move || {
            let token = self.query.resume_token(self.epoch, self.next.view.revision);
            Event::Synced(pb::Synced {
                resume_token: token.encode(b""),
            })
        });
        Box::new(reset.into_iter().chain(changes).chain(synced))
    }
}

/// Waits until the client has room for an event.
async fn wait_for_reader(
    event_sender: &mut PullSender<Result<Arc<EncodedEvent>, Status>>,
    stall_timeout: Duration,
) -> Result<(), StreamInterruption> {
    let waited = timeout(stall_timeout, event_sender.wait_for_demand()).await;
    waited.unwrap_or(Err(StreamInterruption::ReaderStalled))
}

fn cached_event(
    cache: &MessageCache<EncodedEvent>,
    key: Option<MessageKey>,
    number: usize,
) -> Option<Arc<EncodedEvent>> {
    cache.get(&key?.at_position((0, number)))
}

/// Sending end of a channel with one slot in which the receiver requests each value. The sender
/// encodes an event only when the connection has room for it, so no events queue up for a slow
/// reader. A tokio channel allocates room for 32 values.
#[derive(Debug)]
struct PullSender<T>(Arc<Mutex<PullSlot<T>>>);

/// Receiving end, a stream of values.
#[derive(Debug)]
struct PullReceiver<T>(Arc<Mutex<PullSlot<T>>>);

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
fn pull_channel<T>() -> (PullSender<T>, PullReceiver<T>) {
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
    let wakers = [slot.sender_waker.take(), slot.receiver_waker.take()];
    drop(slot);
    wakers.into_iter().flatten().for_each(Waker::wake);
}

impl<T> PullSender<T> {
    /// Waits until the receiver requests a value.
    async fn wait_for_demand(&mut self) -> Result<(), StreamInterruption> {
        poll_fn(|context| {
            let mut slot = self.0.lock();
            if slot.is_closed {
                return Poll::Ready(Err(StreamInterruption::Closed));
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
    fn send(&mut self, value: T) {
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
    async fn wait_for_close(&mut self) {
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
    use super::{StreamInterruption, pull_channel};
    use futures_util::{FutureExt as _, StreamExt as _};

    #[tokio::test]
    async fn sender_waits_for_demand() {
        let (mut sender, mut receiver) = pull_channel();
        assert!(sender.wait_for_demand().now_or_never().is_none());
        assert!(receiver.next().now_or_never().is_none());
        sender
            .wait_for_demand()
            .await
            .expect("receiver requested a value");
        sender
            .wait_for_demand()
            .await
            .expect("request is still pending");
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
        assert!(
            receiver.next().now_or_never().is_none(),
            "third value was discarded"
        );
        sender
            .wait_for_demand()
            .await
            .expect("receiver requested a value");
        drop(receiver);
        let closed = sender.wait_for_demand().await;
        assert_eq!(closed, Err(StreamInterruption::Closed));
        sender.wait_for_close().await;
    }

    #[tokio::test]
    async fn waiting_ends_are_woken() {
        let (mut sender, mut receiver) = pull_channel();
        let sender_task = tokio::spawn(async move {
            for n in 0..100 {
                sender
                    .wait_for_demand()
                    .await
                    .expect("receiver requested a value");
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
