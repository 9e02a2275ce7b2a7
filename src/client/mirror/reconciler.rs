//! Reconciles a resumed mirror with its earlier state. One stream has the whole state, another
//! stream has the changes since the resume token. Both are opened in turn until they are at the
//! same revision. If that fails, digests tell which roots changed.

use super::{ChangesSince, MirrorCatalog, MirrorSelection, ResumePoint};
use crate::client::call::Client;
use crate::client::watch::WatchMessage;
use crate::model::handle::is_of_root;
use crate::proto::caproot::v1::watch_skills_response::Event;
use crate::proto::caproot::v1::{ResetReason, SkillDelta, WatchSkillsRequest};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long the first state of a mirror waits for the changes.
const RECONCILE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of attempts.
const MAX_ROUNDS: usize = 64;

/// Reconciler of a mirror that was resumed and has no first state yet.
pub struct ResumeReconciler {
    client: Client,
    request: WatchSkillsRequest,
    resume_point: ResumePoint,
    max_bytes: usize,
    rounds: usize,
    /// Set at the first state.
    deadline: Option<Instant>,
}

/// Response to a request for the changes since the resume point.
enum ResumeAnswer {
    /// All changes up to this revision.
    Complete { epoch: String, revision: u64, changed: ChangedIds },
    /// The daemon cannot tell the changes, or sent an invalid response. Has the reason.
    Unavailable(String),
    /// The stream ended early. The next attempt may succeed.
    Interrupted,
}

/// Changed skills and roots so far.
#[derive(Debug, Default)]
struct ChangedIds {
    upserted: BTreeSet<String>,
    removed: BTreeSet<String>,
    roots: BTreeSet<String>,
}

impl ChangedIds {
    fn into_changes_since(self, revision: u64) -> ChangesSince {
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
        let request =
            WatchSkillsRequest { resume_token: from.token.clone(), ..selection.watch_request() };
        Self {
            client: client.clone(),
            request,
            resume_point: from,
            max_bytes: selection.max_bytes,
            rounds: 0,
            deadline: None,
        }
    }

    /// Returns the changes up to `revision`, or `None` if the daemon is at another revision by now.
    /// The caller then retries with its new revision.
    pub async fn reconcile(
        &mut self,
        epoch: &str,
        revision: u64,
        catalog: Option<&MirrorCatalog>,
    ) -> Option<ChangesSince> {
        let empty = MirrorCatalog::default();
        let from = self.resume_point.clone();
        let by_digests =
            |why: String| Some(from.compare_digests(catalog.unwrap_or(&empty), revision, why));
        if from.token.is_empty() {
            let why = "the resume point has no token";
            return by_digests(why.to_owned());
        }
        self.rounds += 1;
        let until = *self.deadline.get_or_insert_with(|| Instant::now() + RECONCILE_TIMEOUT);
        match timeout_at(until, self.request_changes()).await {
            Ok(ResumeAnswer::Complete { epoch: its_epoch, revision: its_revision, changed })
                if its_epoch == epoch && its_revision == revision =>
            {
                Some(changed.into_changes_since(revision))
            }
            Ok(ResumeAnswer::Unavailable(why)) => by_digests(why),
            Ok(ResumeAnswer::Complete { .. } | ResumeAnswer::Interrupted)
                if self.rounds < MAX_ROUNDS =>
            {
                None
            }
            Ok(_) => by_digests("the catalog changes too fast".to_owned()),
            Err(_) => by_digests("the daemon did not send the changes in time".to_owned()),
        }
    }

    /// Opens one stream from the token, and reads it up to its first complete state.
    async fn request_changes(&self) -> ResumeAnswer {
        let mut watch = self.client.watch_skills(self.request.clone());
        let (mut changed, mut bytes) = (ChangedIds::default(), 0);
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
                    let (epoch, revision) = (message.epoch, message.revision);
                    return ResumeAnswer::Complete { epoch, revision, changed };
                }
                Some(Event::RootStatus(status)) => self.record_root(&mut changed, status.id),
                Some(Event::Diagnostics(list)) => self.record_root(&mut changed, list.root_id),
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
        let len = id.len();
        self.is_selected(&id).then(|| changed.roots.insert(id)).map(|_| len)
    }

    /// Records skills. Returns their size, or `None` if a skill belongs to another root.
    fn record_delta(&self, changed: &mut ChangedIds, delta: SkillDelta) -> Option<usize> {
        let is_its = |package: &str| is_of_root(package, &delta.root_id);
        let packages = || {
            let removed = delta.removed.iter().map(|removed| &removed.package);
            removed.chain(delta.upserted.iter().map(|skill| &skill.package))
        };
        if !self.is_selected(&delta.root_id) || !packages().all(|package| is_its(package)) {
            return None;
        }
        let len = packages().map(String::len).sum();
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
        self.request.selected_capability_roots.iter().any(|root| root.id == id)
    }
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
