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
use crate::daemon::catalog::{CatalogStore, CatalogView, ConsistencyLevel, RootLease, WaitBudget};
use crate::daemon::model::token::ResumeToken;
use crate::daemon::readiness::ReadinessChecker;
use caproot_core::proto::caproot::v1 as pb;
use caproot_core::sync::Mutex;
use caproot_core::wire::cursor::Cursor as _;
use futures_util::{Stream, StreamExt as _, stream};
use pb::watch_skills_response::Event;
use std::future::{pending, poll_fn};
use std::iter::{once, once_with};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tonic::Status;

/// Path of the method.
pub const WATCH_METHOD_PATH: &str = "/caproot.v1.CapabilityService/WatchSkills";

/// Parameters of a new stream.
pub struct StreamParameters {
    pub store: CatalogStore,
    pub readiness: ReadinessChecker,
    /// Credentials of the caller.
    pub credentials: CallerCredentials,
    pub request: WatchRequest,
    /// Events shared with other streams.
    pub event_cache: MessageCache<EncodedEvent>,
    pub catalog_digests: CatalogDigests,
    /// Cancelled when the daemon stops.
    pub shutdown: CancellationToken,
    /// Permit of the quota of open streams.
    pub permit: QuotaPermit,
    /// Record of the call in the audit log.
    pub call: AuditedCall,
}

/// State of one stream.
pub struct WatchStream {
    store: CatalogStore,
    readiness: ReadinessChecker,
    /// Readiness that the client has.
    sent_readiness: ViewReadiness,
    credentials: CallerCredentials,
    request: WatchRequest,
    /// Lease of the selected roots.
    lease: Option<RootLease>,
    /// Events are encoded only when the client requests them.
    event_sender: PullSender<Result<Arc<EncodedEvent>, Status>>,
    event_cache: MessageCache<EncodedEvent>,
    catalog_digests: CatalogDigests,
    shutdown: CancellationToken,
    /// Status of the stream, if the stream ends for another reason than shutdown.
    end_status: oneshot::Sender<Status>,
    permit: QuotaPermit,
    /// Revision that the client holds completely; `None` in the middle of a state.
    synced_revision: Option<u64>,
    /// Time of the next bookmark. Changes that the stream does not show do not delay it.
    next_bookmark: Instant,
}

/// Interruption of a transition.
enum StreamInterruption {
    /// The client disconnected, or the daemon is stopping.
    Closed,
    /// The client stopped reading in the middle of a state.
    ReaderStalled,
}

impl WatchStream {
    /// Starts the task of a stream and returns its encoded events. Records a denied root when its
    /// event is sent. The task ends when the client disconnects, the caller is denied, or the daemon
    /// stops.
    pub fn spawn(parameters: StreamParameters) -> ChunkStream {
        let StreamParameters {
            store,
            readiness,
            credentials,
            request,
            event_cache,
            catalog_digests,
            shutdown,
            permit,
            call,
        } = parameters;

        let (event_sender, events) = pull_channel();
        let (end_status, ended) = oneshot::channel();
        let next_bookmark = Instant::now() + request.bookmark_interval;
        let stream = Self {
            store,
            readiness,
            sent_readiness: Vec::new(),
            credentials,
            request,
            lease: None,
            event_sender,
            event_cache,
            catalog_digests,
            shutdown,
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
            revisions: self.store.subscribe_revisions(),
            readiness: self.readiness.subscribe(),
        };
        let shutdown = self.shutdown.clone();
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
            signals.mark_unchanged();

            let is_first = self.synced_revision.is_none();
            let readiness = check_view(&self.readiness, &view).await;
            let product = &self.request.query.product;
            let next = NextState {
                client_view: client_view.as_ref(),
                reason,
                view: &view,
                readiness: readiness_events(product, &self.sent_readiness, &view, &readiness),
            };
            // Boxed, so that an idle stream does not keep its memory. Most streams are idle most of
            // the time.
            match Box::pin(self.send_transition(next, is_first)).await {
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
                    self.request.known_catalogs.clear();
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
            view = match self.wait_for_change(signals, &sent).await {
                Some(view) => view,
                None => return,
            };
            client_view = Some(sent);
        }
    }

    /// Returns the current view for the current access scope of the caller.
    async fn current_view(&mut self) -> CatalogView {
        loop {
            if self.credentials.rules_changed() {
                match self.credentials.reauthenticate().await {
                    Ok(caller) => self.request.query.selection.access_scope = caller.access_scope,
                    // `wait_until_denied` ends the stream.
                    Err(_) => return pending().await,
                }
            }

            let selection = &self.request.query.selection;
            let is_leased = self
                .lease
                .as_ref()
                .is_some_and(|lease| self.store.is_lease_current(lease, selection));
            let view = if is_leased {
                self.store.current_view(selection)
            } else {
                // The lease keeps the roots watched while this stream is open.
                self.lease = Some(self.store.lease_roots(selection));
                let wait_budget = WaitBudget::new(None);
                // Boxed because it is rarely needed and larger than the rest of the stream.
                let view = self
                    .store
                    .view(selection, ConsistencyLevel::Cached, wait_budget);
                let view = Box::pin(view).await;
                view.unwrap_or_else(|_| self.store.current_view(selection))
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

        let binding = query.resume_token_binding();
        let expected = ResumeToken::new(self.store.epoch(), token.revision, &binding);
        if token.epoch != expected.epoch {
            return Err(pb::ResetReason::EpochChanged);
        }
        if token != expected {
            return Err(pb::ResetReason::SelectionChanged);
        }

        self.store
            .view_at(&query.selection, token.revision)
            .ok_or(pb::ResetReason::Compacted)
    }

    /// Waits until the roots change and the client has room for an event. Sends bookmarks
    /// meanwhile. Returns `None` at the end of the stream.
    async fn wait_for_change(
        &mut self,
        signals: &mut ChangeSignals,
        sent: &CatalogView,
    ) -> Option<CatalogView> {
        loop {
            let mut is_readiness = false;
            let is_idle = tokio::select! {
                changed = signals.revisions.changed() => { changed.ok()?; false }
                changed = signals.readiness.changed() => { changed.ok()?; is_readiness = true; false }
                () = self.credentials.wait_for_new_rules() => false,
                () = self.event_sender.wait_for_close() => return None,
                () = sleep_until(self.next_bookmark) => true,
            };

            self.event_sender.wait_for_demand().await.ok()?;
            signals.revisions.mark_unchanged();
            let view = self.current_view().await;
            if is_readiness || !is_same_state(sent, &view) {
                return Some(view);
            }

            if is_idle {
                self.event_sender.send(self.bookmark_event(view.revision));
                self.synced_revision = Some(view.revision);
                self.next_bookmark = Instant::now() + self.request.bookmark_interval;
            }
        }
    }

    /// Sends the events between two views, followed by `synced`.
    async fn send_transition(
        &mut self,
        next: NextState<'_>,
        is_first: bool,
    ) -> Result<(), StreamInterruption> {
        let NextState {
            client_view,
            reason,
            view,
            readiness,
        } = next;
        // Borrows only single fields, because the event sender is borrowed mutably below.
        let transition = Transition {
            query: &self.request.query,
            digests: &self.catalog_digests,
            known: &self.request.known_catalogs,
            client_view,
            view,
            reason,
            epoch: self.store.epoch(),
        };
        let key = transition.cache_key(is_first);

        let mut events = None;
        if !is_first && cached_event(&self.event_cache, key, 0).is_none() {
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
        let stall_timeout = self.store.timing().stalled_reader_timeout;
        let mut skipped = 0;
        for number in 0.. {
            wait_for_reader(&mut self.event_sender, stall_timeout).await?;

            let event = if let Some(event) = cached_event(&self.event_cache, key, number) {
                skipped += 1;
                Ok(event)
            } else {
                // Encoded only now, so that no event waits in memory for a slow reader.
                let new_events = events.get_or_insert_with(|| transition.events());
                let Some(event) = new_events.nth(skipped) else {
                    break;
                };
                skipped = 0;
                EncodedEvent::new(transition.epoch, view.revision, event).map(|event| match key {
                    Some(key) => self.event_cache.insert(key.at_position((0, number)), event),
                    None => Arc::new(event),
                })
            };

            let is_synced = event.as_ref().is_ok_and(|event| event.is_synced);
            if is_synced {
                // These events are only of this executor, so they are in no cache.
                for list in &readiness {
                    let list = EncodedEvent::new(transition.epoch, view.revision, list.clone());
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

    fn resume_token(&self, revision: u64) -> String {
        let query = self.request.query.resume_token_binding();
        ResumeToken::new(self.store.epoch(), revision, &query).encode(b"")
    }

    fn bookmark_event(&self, revision: u64) -> Result<Arc<EncodedEvent>, Status> {
        let resume_token = self.resume_token(revision);
        let bookmark = Event::Bookmark(pb::Bookmark { resume_token });
        EncodedEvent::new(self.store.epoch(), revision, bookmark).map(Arc::new)
    }
}

/// Signals of changes that a stream waits for.
struct ChangeSignals {
    /// Revision of the catalogs.
    revisions: watch::Receiver<u64>,
    /// Number of the lookups of programs.
    readiness: watch::Receiver<u64>,
}

impl ChangeSignals {
    fn mark_unchanged(&mut self) {
        self.revisions.mark_unchanged();
        self.readiness.mark_unchanged();
    }
}

/// State to which a stream leads its client.
struct NextState<'a> {
    client_view: Option<&'a CatalogView>,
    /// Reason for a reset, if the client must discard its state.
    reason: Option<pb::ResetReason>,
    view: &'a CatalogView,
    /// Events with the changed readiness.
    readiness: Vec<Event>,
}

/// Way from the view that the client holds to another view.
#[derive(Clone, Copy)]
struct Transition<'a> {
    query: &'a ListQuery,
    digests: &'a CatalogDigests,
    known: &'a KnownCatalogs,
    client_view: Option<&'a CatalogView>,
    view: &'a CatalogView,
    /// Reason for a reset, if the client must discard its state.
    reason: Option<pb::ResetReason>,
    epoch: u64,
}

impl<'a> Transition<'a> {
    /// Returns the key under which streams share the events.
    fn cache_key(&self, is_first: bool) -> Option<MessageKey> {
        let parameters = [
            self.reason.map_or(0, |reason| reason as usize),
            usize::from(is_first),
        ];
        let mut query = self.query.page_token_binding();
        self.known.append_to(&mut query);
        MessageKey::new(&query, self.client_view, self.view, parameters)
    }

    /// Returns the events, the last of which is `synced`. Boxed, and built by the first stream only:
    /// all streams send at the same time, and these iterators need more memory than the rest of a
    /// stream.
    fn events(self) -> Box<dyn Iterator<Item = Event> + Send + 'a> {
        let reset = self.reason.map(|reason| {
            Event::Reset(pb::Reset {
                reason: reason.into(),
            })
        });
        let changes = change_events(
            self.query,
            self.digests,
            self.known,
            self.client_view,
            self.view,
        );
        let synced = once_with(move || {
            let binding = self.query.resume_token_binding();
            let token = ResumeToken::new(self.epoch, self.view.revision, &binding);
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
    match timeout(stall_timeout, event_sender.wait_for_demand()).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(ReceiverClosed)) => Err(StreamInterruption::Closed),
        Err(_) => Err(StreamInterruption::ReaderStalled),
    }
}

fn cached_event(
    cache: &MessageCache<EncodedEvent>,
    key: Option<MessageKey>,
    number: usize,
) -> Option<Arc<EncodedEvent>> {
    cache.get(&key?.at_position((0, number)))
}

/// Whether the states of all roots are identical.
fn is_same_state(a: &CatalogView, b: &CatalogView) -> bool {
    a.roots
        .iter()
        .zip(&b.roots)
        .all(|(a, b)| a.state.is_same(&b.state))
}

/// Sending end of a channel with one slot in which the receiver requests each value. The sender
/// encodes an event only when the connection has room for it, so no events queue up for a slow
/// reader. A tokio channel allocates room for 32 values.
#[derive(Debug)]
struct PullSender<T>(Arc<Mutex<PullSlot<T>>>);

/// Receiving end, a stream of values.
#[derive(Debug)]
struct PullReceiver<T>(Arc<Mutex<PullSlot<T>>>);

/// The receiver was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ReceiverClosed;

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
    let wakers = (slot.sender_waker.take(), slot.receiver_waker.take());
    drop(slot);
    wakers.0.into_iter().chain(wakers.1).for_each(Waker::wake);
}

impl<T> PullSender<T> {
    /// Waits until the receiver requests a value.
    async fn wait_for_demand(&mut self) -> Result<(), ReceiverClosed> {
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
    use super::{ReceiverClosed, pull_channel};
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
        assert_eq!(sender.wait_for_demand().await.err(), Some(ReceiverClosed));
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
