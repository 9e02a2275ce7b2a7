//! A session as a text that can be kept, and a session of such a text: the same selection, with what
//! changed meanwhile. Leaves the form of the text to `saved`, and what changed to the mirrors.

use super::saved::{SavedError, SavedSession};
use super::source::{DaemonSource, SkillSource};
use super::store::{SessionStore, StoreError};
use super::{SelectionError, Session, SessionOptions, SessionWatch};
use crate::client::{ChangesSince, Fleet, ResumePoint};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A session that goes on from a saved one.
#[derive(Debug)]
pub struct RestoredSession {
    /// With the id, the product and the selection that were saved.
    pub session: Session,
    /// What changed since, of each executor. [`Session::since`] gives it again, with executors that
    /// answered later.
    pub changes_since_save: Vec<ExecutorChanges>,
    /// Waits for all that changes after `since` was read.
    pub watch: SessionWatch,
    /// What could not be restored: a sentence each.
    pub warnings: Vec<String>,
}

/// What changed of one executor between save and restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutorChanges {
    /// Its environment.
    pub environment_id: String,
    /// What changed; `None` while it does not answer. It is told as soon as it does.
    pub changes: Option<Arc<ChangesSince>>,
    /// Whether something changed after that, too: what is listed is newer.
    pub changed_again: bool,
}

/// Why a session cannot be restored. Displays as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// The text is no saved session.
    #[error(transparent)]
    Saved(#[from] SavedError),
    /// Its selection is none.
    #[error("the saved selection is none: {0}")]
    Selection(#[from] SelectionError),
    /// The store cannot be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store has none by this id.
    #[error("no session is kept by the id {0:?}")]
    NotStored(String),
}

impl Session {
    /// What is to be kept of it: a JSON of a few lines with its id, its product, its selection, and where
    /// each executor was. No text of a skill is in it. A session that is closed can still be saved.
    ///
    /// # Errors
    ///
    /// [`SavedError::TooLarge`], where the selection alone is over the bound.
    pub fn save(&self) -> Result<String, SavedError> {
        let life = &self.inner;
        SavedSession::new(&life.id, &life.product, &life.selection, self.resume_points()).to_json()
    }

    /// Goes on from a saved session: its id, its product and its selection, and of each executor what
    /// changed since. Waits for executors as `start` does. An executor that is gone, a root that is no
    /// longer there and a state of another version are warnings; the text stays the caller's.
    ///
    /// # Errors
    ///
    /// A text that `save` did not write, with the place of what is wrong.
    pub async fn restore(
        fleet: &Fleet,
        saved: &str,
        options: &SessionOptions,
    ) -> Result<RestoredSession, RestoreError> {
        Self::restore_with(fleet, saved, Vec::new(), options).await
    }

    /// The same with other sources beside the executors: what is saved says nothing of them.
    ///
    /// # Errors
    ///
    /// As `restore` and `start_with`.
    pub async fn restore_with(
        fleet: &Fleet,
        saved: &str,
        others: Vec<Arc<dyn SkillSource>>,
        options: &SessionOptions,
    ) -> Result<RestoredSession, RestoreError> {
        let (saved, mut warnings) = SavedSession::parse(saved)?;
        let id = Some(saved.id.clone()).filter(|id| !id.is_empty());
        let options = SessionOptions { id, product: saved.product.clone(), ..options.clone() };
        let points = saved.resume_points();
        let session =
            Self::start_resumed(fleet, saved.selection(), others, &options, points).await?;
        // What changes from here on, it waits for; what changed before, the mirrors tell by now.
        let changes = session.watch();
        let since = session.changes_since_save();
        warnings.extend(session.current_view().warnings.iter().cloned());
        Ok(RestoredSession { session, changes_since_save: since, watch: changes, warnings })
    }

    /// Goes on from what a store keeps by this id, and has the session kept there.
    ///
    /// # Errors
    ///
    /// As `restore`; a store that does not answer, and one that keeps none.
    pub async fn restore_from_store(
        fleet: &Fleet,
        store: Arc<dyn SessionStore>,
        id: &str,
        options: &SessionOptions,
    ) -> Result<RestoredSession, RestoreError> {
        let saved = store.get(id).await?.ok_or_else(|| RestoreError::NotStored(id.to_owned()))?;
        let restored = Self::restore(fleet, &saved, options).await?;
        let session = restored.session.with_store(store);
        Ok(RestoredSession { session, ..restored })
    }

    /// What changed of each executor between save and restore; nothing in a session that was not
    /// restored.
    #[must_use]
    pub fn changes_since_save(&self) -> Vec<ExecutorChanges> {
        let restored =
            |executor: &&Arc<DaemonSource>| self.inner.resume_points.contains_key(executor.id());
        let told = |executor: &Arc<DaemonSource>| {
            let held = executor.mirror_snapshot();
            ExecutorChanges {
                environment_id: executor.id().to_owned(),
                changes: held.as_ref().and_then(|held| held.changes_since.clone()),
                changed_again: held.is_some_and(|held| held.changed_since_resume),
            }
        };
        self.executors.iter().filter(restored).map(told).collect()
    }

    /// Where each executor is, as far as this session's selection goes.
    pub(super) fn resume_points(&self) -> BTreeMap<String, ResumePoint> {
        let point = |executor: &Arc<DaemonSource>| {
            let held = executor.mirror_snapshot().as_ref().and_then(ResumePoint::from_snapshot);
            let mut point =
                held.or_else(|| self.inner.resume_points.get(executor.id()).cloned())?;
            if executor.is_partial() {
                // A token is of all roots of a mirror, and this session has fewer.
                let own = executor.authorities();
                point.token.clear();
                point.fingerprints.retain(|id, _| own.contains(id));
            }
            Some((executor.id().to_owned(), point))
        };
        self.executors.iter().filter_map(point).collect()
    }
}
