//! One `WatchSkills` stream. A task of its own holds the view that was sent last, and sends the
//! difference to now whenever there is room: a slow reader slows nobody and costs no more than that.

use super::callers::Pass;
use super::changes::changes;
use super::offer::{Gone, Offer};
use super::pages::{Question, print_epoch};
use super::places::Place;
use super::shared::{Made, Shared, Way};
use crate::catalog::{Consistency, Keeper, Lease, Patience, RootState, View};
use crate::domain::Selected;
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

/// What the audit log calls it by.
const WATCH: &str = "/caproot.v1.CapabilityService/WatchSkills";

/// What one stream shows, and to whom.
pub(super) struct Stream {
    pub(super) keeper: Keeper,
    /// By which its caller was let in.
    pub(super) pass: Pass,
    pub(super) selection: Vec<Selected>,
    /// Of the roots that are selected.
    pub(super) lease: Option<Lease>,
    pub(super) product: String,
    pub(super) view: pb::SkillView,
    pub(super) bookmark: Duration,
    /// While none is asked for, none is made.
    pub(super) events: Offer<Result<Arc<Made>, Status>>,
    /// Events that other streams are sent, too.
    pub(super) shared: Shared,
    pub(super) stopping: watch::Receiver<bool>,
    /// How the stream ends, if not because the daemon stops.
    pub(super) end: oneshot::Sender<Status>,
    /// Of the streams that may be open.
    pub(super) place: Place,
    /// The revision that the caller holds whole; `None` in the middle of a state.
    pub(super) closed: Option<u64>,
    /// When to say that the stream lives; changes that are not shown do not put it off.
    pub(super) bookmark_at: Instant,
}

/// Why a stream does not go on as it was.
enum Cut {
    /// Nobody reads any more, or the daemon stops.
    End,
    /// The reader stopped in the middle of a state.
    Stuck,
}

impl Stream {
    /// Sends until the caller goes, may no longer ask, or the daemon stops.
    pub(super) async fn run(mut self, token: String) {
        let mut revisions = self.keeper.revisions();
        let mut stopping = self.stopping.clone();
        let pass = self.pass.clone();
        tokio::select! {
            () = self.serve(&token, &mut revisions) => {}
            status = pass.refused(WATCH) => {
                // A caller who is gone already is not to be told.
                drop(self.end.send(status));
            }
            _ = stopping.wait_for(|stop| *stop) => {
                if let Some(revision) = self.closed {
                    // One who has not asked for more has the token of what came before.
                    self.events.send(self.bookmark_event(revision));
                }
            }
        }
        // Whoever is refused for too many streams may come in now.
        drop(self.place);
    }

    async fn serve(&mut self, token: &str, revisions: &mut watch::Receiver<u64>) {
        let (mut held, mut reason) = self.begin(token);
        let mut now = self.now().await;
        loop {
            revisions.mark_unchanged();
            let is_first = self.closed.is_none();
            // What it takes goes when all is sent: most streams wait most of the time.
            match Box::pin(self.send(held.as_ref(), reason, &now, is_first)).await {
                Ok(()) => self.closed = Some(now.revision),
                Err(Cut::End) => return,
                Err(Cut::Stuck) => {
                    // Holds nothing of what was sent, and waits until there is room.
                    held = None;
                    drop(now);
                    reason = Some(pb::ResetReason::Resync);
                    if self.events.asked().await.is_err() {
                        return;
                    }
                    now = self.now().await;
                    continue;
                }
            }
            reason = None;
            let sent = now;
            now = match self.wait(revisions, &sent).await {
                Some(view) => view,
                None => return,
            };
            held = Some(sent);
        }
    }

    /// The roots as they are now, for whoever the caller is now.
    async fn now(&mut self) -> View {
        loop {
            if self.pass.is_old() {
                match self.pass.judge_again().await {
                    Ok(caller) => self.keeper = self.keeper.bound_to(&caller.reach),
                    // Ended elsewhere.
                    Err(_) => return pending().await,
                }
            }
            let is_leased = |lease| self.keeper.is_leased(lease, &self.selection);
            let view = if self.lease.as_ref().is_some_and(is_leased) {
                self.keeper.view_now(&self.selection)
            } else {
                // Whatever the roots' way, they are looked after while this stream lives.
                self.lease = Some(self.keeper.lease(&self.selection));
                let patience = Patience::new(None);
                // Seldom needed, and larger than all the rest of a stream.
                let first = self.keeper.view(&self.selection, Consistency::Cached, patience);
                let first = Box::pin(first).await;
                first.unwrap_or_else(|_| self.keeper.view_now(&self.selection))
            };
            // The rules come before what they are about.
            if !self.pass.is_old() {
                return view;
            }
        }
    }

    /// What the caller holds already, or why it begins anew.
    fn begin(&self, token: &str) -> (Option<View>, Option<pb::ResetReason>) {
        let question = self.question().unordered_bytes();
        let anew = |reason| (None, Some(reason));
        let Some(token) = ResumeToken::parse(token) else {
            return anew(pb::ResetReason::Initial);
        };
        let here = ResumeToken::new(self.keeper.epoch(), token.revision, &question);
        if token.epoch != here.epoch {
            return anew(pb::ResetReason::EpochChanged);
        }
        if token != here {
            return anew(pb::ResetReason::SelectionChanged);
        }
        match self.keeper.view_at(&self.selection, token.revision) {
            None => anew(pb::ResetReason::Compacted),
            Some(view) => (Some(view), None),
        }
    }

    /// Waits until the roots are no longer as they were sent and there is room for an event; sends
    /// bookmarks meanwhile. `None` at the end.
    async fn wait(&mut self, revisions: &mut watch::Receiver<u64>, sent: &View) -> Option<View> {
        loop {
            let is_idle = tokio::select! {
                changed = revisions.changed() => { changed.ok()?; false }
                () = self.pass.renewed() => false,
                () = self.events.gone() => return None,
                () = sleep_until(self.bookmark_at) => true,
            };
            self.events.asked().await.ok()?;
            revisions.mark_unchanged();
            let now = self.now().await;
            if !is_same(sent, &now) {
                return Some(now);
            }
            if is_idle {
                self.events.send(self.bookmark_event(now.revision));
                self.closed = Some(now.revision);
                self.bookmark_at = Instant::now() + self.bookmark;
            }
        }
    }

    /// Sends what leads from one view to the next, closed by `synced`.
    async fn send(
        &mut self,
        held: Option<&View>,
        reason: Option<pb::ResetReason>,
        now: &View,
        is_first: bool,
    ) -> Result<(), Cut> {
        let way = self.way(held, reason, now, is_first);
        let shared = |number| way.as_ref().and_then(|way| self.shared.get(way, number));
        let question = Question {
            reach: self.keeper.reach(),
            selection: &self.selection,
            product: &self.product,
            view: self.view,
            page_size: 0,
        };
        let reset = reason.map(|reason| Event::Reset(pb::Reset { reason: reason.into() }));
        let changes = once_with(|| changes(&question, held, now)).flatten();
        let mut changes = reset.into_iter().chain(changes).peekable();
        // Nothing changed that this caller sees: no event is owed.
        if !is_first && shared(0).is_none() && changes.peek().is_none() {
            return Ok(());
        }
        let synced = once_with(|| {
            let bytes = question.unordered_bytes();
            let token = ResumeToken::new(self.keeper.epoch(), now.revision, &bytes);
            Event::Synced(pb::Synced { resume_token: token.print() })
        });
        let mut events = changes.chain(synced);
        self.closed = None;
        self.bookmark_at = Instant::now() + self.bookmark;
        let stuck = self.keeper.timing().stuck_reader;
        let mut passed_over = 0;
        for number in 0.. {
            match timeout(stuck, self.events.asked()).await {
                Ok(Ok(())) => {}
                Ok(Err(Gone)) => return Err(Cut::End),
                Err(_) => return Err(Cut::Stuck),
            }
            let made = if let Some(made) = shared(number) {
                passed_over += 1;
                Ok(made)
            } else {
                // Made only now, so that for one who is slow no event lies ready.
                let Some(event) = events.nth(passed_over) else { break };
                passed_over = 0;
                let made = made(self.keeper.epoch(), now.revision, event);
                made.map(|made| match &way {
                    Some(way) => self.shared.put(way, number, made),
                    None => Arc::new(made),
                })
            };
            let is_last = made.as_ref().is_ok_and(|made| made.is_last);
            self.events.send(made);
            if is_last {
                break;
            }
        }
        Ok(())
    }

    /// What leads from one view to another, for all who ask the same; `None` where a root is not known,
    /// which may be another one the next time, though no revision lies between.
    fn way(
        &self,
        held: Option<&View>,
        reason: Option<pb::ResetReason>,
        now: &View,
        is_first: bool,
    ) -> Option<Way> {
        let is_known =
            |view: &View| view.roots.iter().all(|root| matches!(root.state, RootState::Held(_)));
        if !is_known(now) || held.is_some_and(|held| !is_known(held)) {
            return None;
        }
        let (from, to) = (held.map(|held| held.revision), now.revision);
        Some(Way::new(&self.question().bytes(), from, to, reason, is_first))
    }

    fn question(&self) -> Question<'_> {
        Question {
            reach: self.keeper.reach(),
            selection: &self.selection,
            product: &self.product,
            view: self.view,
            page_size: 0,
        }
    }

    fn token(&self, revision: u64) -> String {
        let question = self.question().unordered_bytes();
        ResumeToken::new(self.keeper.epoch(), revision, &question).print()
    }

    fn bookmark_event(&self, revision: u64) -> Result<Arc<Made>, Status> {
        let resume_token = self.token(revision);
        let bookmark = Event::Bookmark(pb::Bookmark { resume_token });
        made(self.keeper.epoch(), revision, bookmark).map(Arc::new)
    }
}

fn made(epoch: u64, revision: u64, event: Event) -> Result<Made, Status> {
    let event = Some(event);
    Made::new(&pb::WatchSkillsResponse { epoch: print_epoch(epoch), revision, event })
}

/// Whether every root is the very same in both.
fn is_same(a: &View, b: &View) -> bool {
    a.roots.iter().zip(&b.roots).all(|(a, b)| a.state.is(&b.state))
}
