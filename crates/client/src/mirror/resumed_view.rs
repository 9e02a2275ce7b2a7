//! Changes since the position of a mirror that had another view. The digests of two views cannot be
//! compared. So the daemon lists the digests of the earlier view before and after all other calls: if
//! they are equal, all answers are of one state.

use super::reconciler::{
    ChangedIds, MAX_ROUNDS, NO_TOKEN, RECONCILE_TIMEOUT, ResumeAnswer, ResumeReconciler, STATE_WAIT,
};
use super::{ChangesSince, Mirror, MirrorSnapshot};
use caproot_core::proto::caproot::v1::{ListSkillsRequest, RootStatus, SkillView};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// How long one list of digests may take.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// Roots of a selection in one view.
#[derive(Debug, PartialEq, Eq)]
struct ViewRoots {
    /// Start of the daemon.
    epoch: String,
    /// Roots by id.
    roots: BTreeMap<String, RootMark>,
}

/// State of a root and digest of its catalog, which is empty unless the root is ready.
#[derive(Debug, PartialEq, Eq)]
struct RootMark {
    state: i32,
    digest: String,
}

impl RootMark {
    fn of_status(status: &RootStatus) -> Self {
        Self {
            state: status.state,
            digest: status.catalog_digest.clone(),
        }
    }
}

impl ViewRoots {
    fn new(epoch: &str, statuses: &[RootStatus]) -> Self {
        let marks = statuses
            .iter()
            .map(|status| (status.id.clone(), RootMark::of_status(status)));
        Self {
            epoch: epoch.to_owned(),
            roots: marks.collect(),
        }
    }

    fn of_snapshot(snapshot: &MirrorSnapshot) -> Self {
        Self::new(&snapshot.epoch, snapshot.catalog.roots())
    }

    /// Returns the digests of the ready roots.
    fn digests(&self) -> BTreeMap<String, String> {
        let ready = self
            .roots
            .iter()
            .filter(|(_, mark)| !mark.digest.is_empty());
        ready
            .map(|(id, mark)| (id.clone(), mark.digest.clone()))
            .collect()
    }
}

impl ResumeReconciler {
    /// Returns a state of a live mirror, with the changes up to this state since a position of another
    /// view.
    pub(super) async fn reconcile_views(
        &self,
        mirror: &mut Mirror,
    ) -> (MirrorSnapshot, ChangesSince) {
        let deadline = Instant::now() + RECONCILE_TIMEOUT;
        for _ in 0..MAX_ROUNDS {
            let Ok(reconciled) = timeout_at(deadline, self.compare_views(mirror)).await else {
                break;
            };
            if let Some(reconciled) = reconciled {
                return reconciled;
            }
            sleep(STATE_WAIT).await;
        }

        let snapshot = mirror.snapshot();
        let reason = "the daemon did not send the changes in time".to_owned();
        let since = self.compare_with(&snapshot, &BTreeMap::new(), reason);
        (snapshot, since)
    }

    /// Returns a state of the mirror with its changes, or `None` if the answers of the daemon are of
    /// different states.
    async fn compare_views(&self, mirror: &Mirror) -> Option<(MirrorSnapshot, ChangesSince)> {
        let earlier_view = self.request.view();
        let before = self.list_roots(earlier_view).await?;
        let current = self.list_roots(self.view).await?;
        let answer = if self.resume_point.token.is_empty() {
            ResumeAnswer::Unavailable(NO_TOKEN.to_owned())
        } else {
            self.request_changes().await
        };
        let after = self.list_roots(earlier_view).await?;

        let snapshot = mirror.snapshot();
        let is_one_state = before == after
            && before.epoch == current.epoch
            && current == ViewRoots::of_snapshot(&snapshot);
        if !is_one_state {
            return None;
        }

        let now = before.digests();
        if let known @ ChangesSince::Known { .. } =
            self.compare_with(&snapshot, &now, String::new())
        {
            return Some((snapshot, known));
        }

        let since = match answer {
            ResumeAnswer::Unavailable(reason) => self.compare_with(&snapshot, &now, reason),
            ResumeAnswer::Complete(changed) if self.leads_to(&changed, &before) => {
                changed.into_changes_since(snapshot.revision)
            }
            ResumeAnswer::Complete(_) | ResumeAnswer::Interrupted => return None,
        };
        Some((snapshot, since))
    }

    fn compare_with(
        &self,
        snapshot: &MirrorSnapshot,
        now: &BTreeMap<String, String>,
        reason: String,
    ) -> ChangesSince {
        let ids = snapshot.catalog.roots().iter().map(|root| root.id.as_str());
        self.resume_point
            .compare_roots(ids, now, snapshot.revision, reason)
    }

    /// Whether the changes lead from the resume point to these roots of the same view.
    fn leads_to(&self, changed: &ChangedIds, now: &ViewRoots) -> bool {
        let from = &self.resume_point.catalog_digests;
        let has_same_roots = now
            .roots
            .iter()
            .all(|(id, mark)| match changed.statuses.get(id) {
                Some(sent) => RootMark::of_status(sent) == *mark,
                None => from.get(id).map_or("", String::as_str) == mark.digest,
            });
        changed.epoch == now.epoch && has_same_roots
    }

    /// Lists the selected roots in a view. Returns `None` if the daemon does not answer.
    async fn list_roots(&self, view: SkillView) -> Option<ViewRoots> {
        let request = ListSkillsRequest {
            selected_capability_roots: self.request.selected_capability_roots.clone(),
            product: self.request.product.clone(),
            view: view.into(),
            roots_only: true,
            ..ListSkillsRequest::default()
        };
        let listed = self
            .client
            .list_root_states_once(request, LIST_TIMEOUT)
            .await;
        let listed = listed.ok()?;
        Some(ViewRoots::new(&listed.epoch, &listed.roots))
    }
}
