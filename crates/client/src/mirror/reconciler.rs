//! Reconciles a mirror with an earlier state. If the digests of the catalogs are those of the earlier
//! state, nothing changed. Otherwise a stream from the resume token has the changes. They belong to
//! the state of the mirror if both have the same digests. If that fails, digests tell which roots
//! changed.

use super::follow::SnapshotPublisher;
use super::resume::catalog_digests;
use super::root_contents::ENTRY_OVERHEAD_BYTES;
use super::{ChangesSince, Mirror, MirrorSelection, MirrorSnapshot, MirrorState, ResumePoint};
use crate::call::Client;
use crate::watch::WatchMessage;
use caproot_core::proto::caproot::v1::watch_skills_response::Event;
use caproot_core::proto::caproot::v1::{
    ResetReason, RootStatus, SkillDelta, SkillView, WatchSkillsRequest,
};
use caproot_core::wire::handle::is_canonical_of_root;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// How long the first state of a mirror waits for the changes.
pub(super) const RECONCILE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an attempt waits for the next state of the mirror.
pub(super) const STATE_WAIT: Duration = Duration::from_millis(200);
/// Reason of unknown changes without a token.
pub(super) const NO_TOKEN: &str = "the resume point has no token";
/// Maximum number of attempts.
pub(super) const MAX_ROUNDS: usize = 64;

/// Reconciler of a mirror that has no state with changes yet.
pub struct ResumeReconciler {
    pub(super) client: Client,
    /// Request for the changes since the resume point, in the view of the resume point.
    pub(super) request: WatchSkillsRequest,
    pub(super) resume_point: ResumePoint,
    /// View of the mirror.
    pub(super) view: SkillView,
    max_bytes: usize,
}

/// Response to a request for the changes since the resume point.
pub(super) enum ResumeAnswer {
    /// All changes up to a revision.
    Complete(ChangedIds),
    /// The daemon cannot tell the changes, or sent an invalid response. Has the reason.
    Unavailable(String),
    /// The stream ended early. The next attempt may succeed.
    Interrupted,
}

/// Changed skills and roots so far.
#[derive(Debug, Default)]
pub(super) struct ChangedIds {
    /// Start of the daemon.
    epoch: String,
    /// Last state of each root that the daemon sent.
    statuses: BTreeMap<String, RootStatus>,
    upserted: BTreeSet<String>,
    removed: BTreeSet<String>,
    roots: BTreeSet<String>,
}

/// Publishes the states of a mirror from its first live state on, with the changes since the resume
/// point of the reconciler. Never returns.
pub async fn follow_mirror(
    mut mirror: Mirror,
    reconciler: ResumeReconciler,
    publisher: SnapshotPublisher,
) {
    let (first, since) = loop {
        let snapshot = mirror.snapshot();
        if snapshot.state == MirrorState::Live {
            break reconciler.reconcile(&mut mirror).await;
        }
        // An executor that was lost again has no state with changes yet.
        let state = match snapshot.state {
            MirrorState::Stale { why, .. } => MirrorState::Connecting(Some(why)),
            state => state,
        };
        publisher.publish_snapshot(&MirrorSnapshot::without_catalog(state));
        mirror.any_change().await;
    };

    let since = Arc::new(since);
    let mut snapshot = first.clone();
    loop {
        publisher.publish_snapshot(&MirrorSnapshot {
            changes_since: Some(since.clone()),
            changed_since_resume: !Arc::ptr_eq(&snapshot.catalog, &first.catalog),
            ..snapshot
        });
        mirror.any_change().await;
        snapshot = mirror.snapshot();
    }
}

impl ChangedIds {
    /// Whether the changes lead from the resume point to the state of a mirror.
    fn lead_to(&self, snapshot: &MirrorSnapshot, from: &ResumePoint) -> bool {
        let MirrorSnapshot { catalog, epoch, .. } = snapshot;
        self.lead_to_roots(epoch, catalog.roots(), &catalog_digests(catalog), from)
    }

    /// Whether the changes lead from the resume point to roots with these digests by root id.
    pub(super) fn lead_to_roots(
        &self,
        epoch: &str,
        roots: &[RootStatus],
        digests: &BTreeMap<String, String>,
        from: &ResumePoint,
    ) -> bool {
        let has_same_roots = roots.iter().all(|root| match self.statuses.get(&root.id) {
            Some(sent) => sent.catalog_digest == root.catalog_digest && sent.state == root.state,
            None => from.catalog_digests.get(&root.id) == digests.get(&root.id),
        });
        self.epoch == epoch && has_same_roots
    }

    pub(super) fn into_changes_since(self, revision: u64) -> ChangesSince {
        ChangesSince::Known {
            revision,
            upserted: self.upserted.into_iter().collect(),
            removed: self.removed.into_iter().collect(),
            roots: self.roots.into_iter().collect(),
        }
    }
}

impl ResumeReconciler {
    pub fn new(client: &Client, selection: &MirrorSelection, from: ResumePoint) -> Self {
        let view = selection.view;
        let earlier_view = match from.view {
            SkillView::Unspecified => view,
            earlier => earlier,
        };
        let request = WatchSkillsRequest {
            resume_token: from.token.clone(),
            view: earlier_view.into(),
            ..selection.watch_request()
        };

        Self {
            client: client.clone(),
            request,
            resume_point: from,
            view,
            max_bytes: selection.max_bytes,
        }
    }

    /// Returns a state of a live mirror, with the changes up to this state.
    async fn reconcile(&self, mirror: &mut Mirror) -> (MirrorSnapshot, ChangesSince) {
        if self.request.view() != self.view {
            return self.reconcile_views(mirror).await;
        }

        let deadline = Instant::now() + RECONCILE_TIMEOUT;
        let from = &self.resume_point;
        let mut reason = "the catalog changes too fast";
        for _ in 0..MAX_ROUNDS {
            let snapshot = mirror.snapshot();
            if from.token.is_empty() {
                return compare(from, snapshot, NO_TOKEN);
            }
            // Without a difference, no stream is needed.
            if let (snapshot, known @ ChangesSince::Known { .. }) = compare(from, snapshot, "") {
                return (snapshot, known);
            }

            match timeout_at(deadline, self.request_changes()).await {
                Ok(ResumeAnswer::Complete(changed)) => {
                    let mut snapshot = mirror.snapshot();
                    if !changed.lead_to(&snapshot, from) {
                        // Either the mirror or the stream of changes is ahead.
                        drop(timeout(STATE_WAIT, mirror.changed()).await);
                        snapshot = mirror.snapshot();
                    }

                    if changed.lead_to(&snapshot, from) {
                        let since = changed.into_changes_since(snapshot.revision);
                        return (snapshot, since);
                    }
                }
                Ok(ResumeAnswer::Unavailable(why)) => {
                    return compare(from, mirror.snapshot(), &why);
                }
                Ok(ResumeAnswer::Interrupted) => {}
                Err(_) => {
                    reason = "the daemon did not send the changes in time";
                    break;
                }
            }
        }

        compare(from, mirror.snapshot(), reason)
    }

    /// Opens one stream from the token, and reads it up to its first complete state.
    pub(super) async fn request_changes(&self) -> ResumeAnswer {
        let mut watch = self.client.watch_skills(self.request.clone());
        let mut changed = ChangedIds::default();
        let mut bytes = 0;
        loop {
            let message = match watch.next().await {
                Ok(WatchMessage::Event(message)) => message,
                Ok(WatchMessage::Lost { wait, .. }) => {
                    tokio::time::sleep(wait).await;
                    return ResumeAnswer::Interrupted;
                }
                Err(cause) => return ResumeAnswer::Unavailable(cause.to_string()),
            };

            let new = match message.event {
                Some(Event::Reset(reset)) => {
                    return ResumeAnswer::Unavailable(
                        reset_reason_sentence(reset.reason()).to_owned(),
                    );
                }
                Some(Event::Synced(_) | Event::Bookmark(_)) => {
                    changed.epoch = message.epoch;
                    return ResumeAnswer::Complete(changed);
                }
                Some(Event::RootStatus(status)) => {
                    let new = self.record_root(&mut changed, status.id.clone());
                    changed.statuses.insert(status.id.clone(), status);
                    new
                }
                Some(Event::Diagnostics(list)) => self.record_root(&mut changed, list.root_id),
                // The readiness is no change of a skill.
                Some(Event::Readiness(list)) => self.is_selected(&list.root_id).then_some(0),
                Some(Event::Delta(delta)) => self.record_delta(&mut changed, delta),
                None => None,
            };

            let Some(new) = new else {
                let why = "the daemon sent a root that was not selected, or an empty event";
                return ResumeAnswer::Unavailable(why.to_owned());
            };

            bytes += new;
            if bytes > self.max_bytes {
                return ResumeAnswer::Unavailable(
                    "the changes exceed the size limit of the mirror".to_owned(),
                );
            }
        }
    }

    /// Records a root. Returns its size, or `None` if the root was not selected.
    fn record_root(&self, changed: &mut ChangedIds, id: String) -> Option<usize> {
        let len = id.len() + ENTRY_OVERHEAD_BYTES;
        self.is_selected(&id).then(|| {
            changed.roots.insert(id);
            len
        })
    }

    /// Records skills. Returns their size, or `None` if a skill belongs to another root.
    fn record_delta(&self, changed: &mut ChangedIds, delta: SkillDelta) -> Option<usize> {
        if !self.is_selected(&delta.root_id) {
            return None;
        }

        let mut len = 0;
        let removed = delta.removed.iter().map(|removed| &removed.package);
        let upserted = delta.upserted.iter().map(|skill| &skill.package);
        for package in removed.chain(upserted) {
            if !is_canonical_of_root(package, &delta.root_id) {
                return None;
            }
            len += package.len() + ENTRY_OVERHEAD_BYTES;
        }

        for removed in delta.removed {
            changed.upserted.remove(&removed.package);
            changed.removed.insert(removed.package);
        }
        for skill in delta.upserted {
            changed.removed.remove(&skill.package);
            changed.upserted.insert(skill.package);
        }
        Some(len)
    }

    fn is_selected(&self, id: &str) -> bool {
        self.request
            .selected_capability_roots
            .iter()
            .any(|root| root.id == id)
    }
}

/// Returns a state with the changes that its digests show.
fn compare(
    from: &ResumePoint,
    snapshot: MirrorSnapshot,
    reason: &str,
) -> (MirrorSnapshot, ChangesSince) {
    let now = catalog_digests(&snapshot.catalog);
    let since = from.compare_digests(&snapshot, &now, reason.to_owned());
    (snapshot, since)
}

fn reset_reason_sentence(reason: ResetReason) -> &'static str {
    match reason {
        ResetReason::EpochChanged => "the daemon was restarted",
        ResetReason::Compacted => "the daemon no longer has the changes",
        ResetReason::SelectionChanged => "the token is of another selection",
        ResetReason::Initial | ResetReason::Resync | ResetReason::Unspecified => {
            "the daemon does not know the token"
        }
    }
}
