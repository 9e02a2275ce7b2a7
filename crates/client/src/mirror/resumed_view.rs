//! Changes since the position of a mirror that had another view. The digests of two views cannot be
//! compared. So the daemon lists the digests of the earlier view before and after all other calls: if
//! they are equal, all answers are of one state.

use super::reconciler::{
    MAX_ROUNDS, NO_TOKEN, RECONCILE_TIMEOUT, ResumeAnswer, ResumeReconciler, STATE_WAIT,
};
use super::{ChangesSince, Mirror, MirrorSnapshot};
use caproot_core::proto::caproot::v1::{ListSkillsResponse, RootStatus, SkillView};
use std::collections::BTreeMap;
use tokio::time::{Instant, sleep, timeout_at};

/// Returns the state of each root and the digest of its catalog, which is empty unless the root is
/// ready.
fn root_marks(roots: &[RootStatus]) -> BTreeMap<&str, (i32, &str)> {
    let marks = roots
        .iter()
        .map(|root| (&*root.id, (root.state, &*root.catalog_digest)));
    marks.collect()
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
        let reason = "the daemon did not send the changes in time";
        let from = &self.resume_point;
        let since = from.compare_digests(&snapshot, &BTreeMap::new(), reason.to_owned());
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
        let epochs = [&*current.epoch, &*after.epoch, &*snapshot.epoch];
        let is_one_state = epochs.iter().all(|epoch| **epoch == *before.epoch)
            && root_marks(&before.roots) == root_marks(&after.roots)
            && root_marks(&current.roots) == root_marks(snapshot.catalog.roots());
        if !is_one_state {
            return None;
        }

        let from = &self.resume_point;
        let roots = before.roots.iter();
        let ready = roots.filter(|root| !root.catalog_digest.is_empty());
        let now = ready
            .map(|root| (root.id.clone(), root.catalog_digest.clone()))
            .collect();
        let compared = from.compare_digests(&snapshot, &now, String::new());
        if matches!(compared, ChangesSince::Known { .. }) {
            return Some((snapshot, compared));
        }

        let since = match answer {
            ResumeAnswer::Unavailable(reason) => from.compare_digests(&snapshot, &now, reason),
            ResumeAnswer::Complete(changed)
                if changed.lead_to_roots(&before.epoch, &before.roots, &now, from) =>
            {
                changed.into_changes_since(snapshot.revision)
            }
            ResumeAnswer::Complete(_) | ResumeAnswer::Interrupted => return None,
        };
        Some((snapshot, since))
    }

    /// Lists the selected roots in a view. Returns `None` if the daemon does not answer.
    async fn list_roots(&self, view: SkillView) -> Option<ListSkillsResponse> {
        let listed = self.client.list_root_states_once(&self.request, view);
        listed.await.ok()
    }
}
