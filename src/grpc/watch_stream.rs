//! Task of one `WatchSkills` stream. The task holds the last sent view, and sends the difference to
//! the current view whenever the client has room for it. A slow reader delays no other stream and
//! needs no more memory than this view.

use super::auth::CallerCredentials;
use super::change_events::change_events;
use super::event_cache::{EncodedEvent, EventCache, TransitionKey};
use super::pull_channel::{PullSender, ReceiverClosed};
use super::quota::QuotaPermit;
use super::skill_pages::{ListQuery, format_epoch};
use crate::catalog::{
    CatalogStore, CatalogView, ConsistencyLevel, RootLease, RootState, WaitBudget,
};
use crate::domain::SelectedRoot;
use crate::domain::token::ResumeToken;
use crate::proto::caproot::v1 as pb;
use pb::watch_skills_response::Event;
use std::future::pending;
use std::iter::once_with;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tonic::Status;

/// Path of the method in the audit log.
const WATCH_METHOD_PATH: &str = "/caproot.v1.CapabilityService/WatchSkills";

/// State of one stream.
pub(super) struct WatchStream {
    pub(super) store: CatalogStore,
    /// Credentials of the caller.
    pub(super) credentials: CallerCredentials,
    pub(super) selection: Vec<SelectedRoot>,
    /// Lease of the selected roots.
    pub(super) lease: Option<RootLease>,
    pub(super) product: String,
    pub(super) view: pb::SkillView,
    pub(super) bookmark_interval: Duration,
    /// Events are encoded only when the client requests them.
    pub(super) event_sender: PullSender<Result<Arc<EncodedEvent>, Status>>,
    /// Events shared with other streams.
    pub(super) event_cache: EventCache,
    pub(super) shutdown: watch::Receiver<bool>,
    /// Status of the stream, if the stream ends for another reason than shutdown.
    pub(super) end_status: oneshot::Sender<Status>,
    /// Permit of the quota of open streams.
    pub(super) permit: QuotaPermit,
    /// Revision that the client holds completely; `None` in the middle of a state.
    pub(super) synced_revision: Option<u64>,
    /// Time of the next bookmark. Changes that the stream does not show do not delay it.
    pub(super) next_bookmark: Instant,
}

/// Interruption of a transition.
enum StreamInterruption {
    /// The client disconnected, or the daemon is stopping.
    Closed,
    /// The client stopped reading in the middle of a state.
    ReaderStalled,
}

impl WatchStream {
    /// Sends events until the client disconnects, the caller is denied, or the daemon stops.
    pub(super) async fn run(mut self, token: String) {
        let mut revisions = self.store.subscribe_revisions();
        let mut stopping = self.shutdown.clone();
        let pass = self.credentials.clone();
        tokio::select! {
            () = self.send_changes(&token, &mut revisions) => {}
            status = pass.wait_until_denied(WATCH_METHOD_PATH) => {
                // The receiver is gone if the client disconnected.
                drop(self.end_status.send(status));
            }
            _ = stopping.wait_for(|stop| *stop) => {
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

    async fn send_changes(&mut self, token: &str, revisions: &mut watch::Receiver<u64>) {
        let (mut held, mut reason) = self.resume_view(token);
        let mut now = self.current_view().await;
        loop {
            revisions.mark_unchanged();
            let is_first = self.synced_revision.is_none();
            // Boxed, so that an idle stream does not keep its memory. Most streams are idle most of
            // the time.
            match Box::pin(self.send_transition(held.as_ref(), reason, &now, is_first)).await {
                Ok(()) => self.synced_revision = Some(now.revision),
                Err(StreamInterruption::Closed) => return,
                Err(StreamInterruption::ReaderStalled) => {
                    // Discard the client's state, and wait until the client reads again.
                    held = None;
                    drop(now);
                    reason = Some(pb::ResetReason::Resync);
                    if self.event_sender.wait_for_demand().await.is_err() {
                        return;
                    }
                    now = self.current_view().await;
                    continue;
                }
            }
            reason = None;
            let sent = now;
            now = match self.wait_for_change(revisions, &sent).await {
                Some(view) => view,
                None => return,
            };
            held = Some(sent);
        }
    }

    /// Returns the current view for the current access scope of the caller.
    async fn current_view(&mut self) -> CatalogView {
        loop {
            if self.credentials.rules_changed() {
                match self.credentials.reauthenticate().await {
                    Ok(caller) => self.store = self.store.with_access_scope(&caller.access_scope),
                    // `wait_until_denied` ends the stream.
                    Err(_) => return pending().await,
                }
            }
            let is_leased = |lease| self.store.is_lease_current(lease, &self.selection);
            let view = if self.lease.as_ref().is_some_and(is_leased) {
                self.store.current_view(&self.selection)
            } else {
                // The lease keeps the roots watched while this stream is open.
                self.lease = Some(self.store.lease_roots(&self.selection));
                let patience = WaitBudget::new(None);
                // Boxed because it is rarely needed and larger than the rest of the stream.
                let first = self.store.view(&self.selection, ConsistencyLevel::Cached, patience);
                let first = Box::pin(first).await;
                first.unwrap_or_else(|_| self.store.current_view(&self.selection))
            };
            // If the rules changed meanwhile, the view may show too much.
            if !self.credentials.rules_changed() {
                return view;
            }
        }
    }

    /// Returns the view that the client holds, or the reason for a reset.
    fn resume_view(&self, token: &str) -> (Option<CatalogView>, Option<pb::ResetReason>) {
        let question = self.list_query().resume_token_binding();
        let anew = |reason| (None, Some(reason));
        let Some(token) = ResumeToken::decode(token) else {
            return anew(pb::ResetReason::Initial);
        };
        let here = ResumeToken::new(self.store.epoch(), token.revision, &question);
        if token.epoch != here.epoch {
            return anew(pb::ResetReason::EpochChanged);
        }
        if token != here {
            return anew(pb::ResetReason::SelectionChanged);
        }
        match self.store.view_at(&self.selection, token.revision) {
            None => anew(pb::ResetReason::Compacted),
            Some(view) => (Some(view), None),
        }
    }

    /// Waits until the roots change and the client has room for an event. Sends bookmarks
    /// meanwhile. Returns `None` at the end of the stream.
    async fn wait_for_change(
        &mut self,
        revisions: &mut watch::Receiver<u64>,
        sent: &CatalogView,
    ) -> Option<CatalogView> {
        loop {
            let is_idle = tokio::select! {
                changed = revisions.changed() => { changed.ok()?; false }
                () = self.credentials.wait_for_new_rules() => false,
                () = self.event_sender.wait_for_close() => return None,
                () = sleep_until(self.next_bookmark) => true,
            };
            self.event_sender.wait_for_demand().await.ok()?;
            revisions.mark_unchanged();
            let now = self.current_view().await;
            if !is_same_state(sent, &now) {
                return Some(now);
            }
            if is_idle {
                self.event_sender.send(self.bookmark_event(now.revision));
                self.synced_revision = Some(now.revision);
                self.next_bookmark = Instant::now() + self.bookmark_interval;
            }
        }
    }

    /// Sends the events between two views, followed by `synced`.
    async fn send_transition(
        &mut self,
        held: Option<&CatalogView>,
        reason: Option<pb::ResetReason>,
        now: &CatalogView,
        is_first: bool,
    ) -> Result<(), StreamInterruption> {
        let way = self.transition_key(held, reason, now, is_first);
        let shared = |number| way.as_ref().and_then(|way| self.event_cache.get(way, number));
        let question = ListQuery {
            access_scope: self.store.access_scope(),
            selection: &self.selection,
            product: &self.product,
            view: self.view,
            page_size: 0,
        };
        let reset = reason.map(|reason| Event::Reset(pb::Reset { reason: reason.into() }));
        let changes = once_with(|| change_events(&question, held, now)).flatten();
        let mut changes = reset.into_iter().chain(changes).peekable();
        // Nothing visible changed, so there is nothing to send.
        if !is_first && shared(0).is_none() && changes.peek().is_none() {
            return Ok(());
        }
        let synced = once_with(|| {
            let bytes = question.resume_token_binding();
            let token = ResumeToken::new(self.store.epoch(), now.revision, &bytes);
            Event::Synced(pb::Synced { resume_token: token.encode() })
        });
        let mut events = changes.chain(synced);
        self.synced_revision = None;
        self.next_bookmark = Instant::now() + self.bookmark_interval;
        let stuck = self.store.timing().stalled_reader_timeout;
        let mut passed_over = 0;
        for number in 0.. {
            match timeout(stuck, self.event_sender.wait_for_demand()).await {
                Ok(Ok(())) => {}
                Ok(Err(ReceiverClosed)) => return Err(StreamInterruption::Closed),
                Err(_) => return Err(StreamInterruption::ReaderStalled),
            }
            let made = if let Some(made) = shared(number) {
                passed_over += 1;
                Ok(made)
            } else {
                // Encoded only now, so that no event waits in memory for a slow reader.
                let Some(event) = events.nth(passed_over) else { break };
                passed_over = 0;
                let made = encode_event(self.store.epoch(), now.revision, event);
                made.map(|made| match &way {
                    Some(way) => self.event_cache.insert(way, number, made),
                    None => Arc::new(made),
                })
            };
            let is_last = made.as_ref().is_ok_and(|made| made.is_synced);
            self.event_sender.send(made);
            if is_last {
                break;
            }
        }
        Ok(())
    }

    /// Returns the key of a transition. Returns `None` if the state of a root is unknown, because
    /// it can change without a new revision.
    fn transition_key(
        &self,
        held: Option<&CatalogView>,
        reason: Option<pb::ResetReason>,
        now: &CatalogView,
        is_first: bool,
    ) -> Option<TransitionKey> {
        let is_known = |view: &CatalogView| {
            view.roots.iter().all(|root| matches!(root.state, RootState::Snapshot(_)))
        };
        if !is_known(now) || held.is_some_and(|held| !is_known(held)) {
            return None;
        }
        let (from, to) = (held.map(|held| held.revision), now.revision);
        Some(TransitionKey::new(
            &self.list_query().page_token_binding(),
            from,
            to,
            reason,
            is_first,
        ))
    }

    fn list_query(&self) -> ListQuery<'_> {
        ListQuery {
            access_scope: self.store.access_scope(),
            selection: &self.selection,
            product: &self.product,
            view: self.view,
            page_size: 0,
        }
    }

    fn resume_token(&self, revision: u64) -> String {
        let question = self.list_query().resume_token_binding();
        ResumeToken::new(self.store.epoch(), revision, &question).encode()
    }

    fn bookmark_event(&self, revision: u64) -> Result<Arc<EncodedEvent>, Status> {
        let resume_token = self.resume_token(revision);
        let bookmark = Event::Bookmark(pb::Bookmark { resume_token });
        encode_event(self.store.epoch(), revision, bookmark).map(Arc::new)
    }
}

fn encode_event(epoch: u64, revision: u64, event: Event) -> Result<EncodedEvent, Status> {
    let event = Some(event);
    EncodedEvent::new(&pb::WatchSkillsResponse { epoch: format_epoch(epoch), revision, event })
}

/// Whether the states of all roots are identical.
fn is_same_state(a: &CatalogView, b: &CatalogView) -> bool {
    a.roots.iter().zip(&b.roots).all(|(a, b)| a.state.is_same(&b.state))
}
