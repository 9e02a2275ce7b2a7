//! A session as a text that can be kept, and a session of such a text: the same selection, with what
//! changed meanwhile. Leaves the form of the text to `saved`, and what changed to the mirrors.

use super::saved::{Saved, SavedError};
use super::source::{DaemonSource, SkillSource};
use super::store::{SessionStore, StoreError};
use super::{Changes, Options, SelectionError, Session};
use crate::client::{Fleet, ResumePoint, Since};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A session that goes on from a saved one.
#[derive(Debug)]
pub struct Restored {
    /// With the id, the product and the selection that were saved.
    pub session: Session,
    /// What changed since, of each executor. [`Session::since`] gives it again, with executors that
    /// answered later.
    pub since: Vec<ExecutorChanges>,
    /// Waits for all that changes after `since` was read.
    pub changes: Changes,
    /// What could not be restored: a sentence each.
    pub warnings: Vec<String>,
}

/// What changed of one executor between save and restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutorChanges {
    /// Its environment.
    pub environment_id: String,
    /// What changed; `None` while it does not answer. It is told as soon as it does.
    pub since: Option<Arc<Since>>,
    /// Whether something changed after that, too: what is listed is newer.
    pub moved: bool,
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
    NotKept(String),
}

impl Session {
    /// What is to be kept of it: a JSON of a few lines with its id, its product, its selection, and where
    /// each executor was. No text of a skill is in it. A session that is closed can still be saved.
    ///
    /// # Errors
    ///
    /// [`SavedError::TooLarge`], where the selection alone is over the bound.
    pub fn save(&self) -> Result<String, SavedError> {
        let life = &self.life;
        Saved::new(&life.id, &life.product, &life.selection, self.points()).print()
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
        options: &Options,
    ) -> Result<Restored, RestoreError> {
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
        options: &Options,
    ) -> Result<Restored, RestoreError> {
        let (saved, mut warnings) = Saved::parse(saved)?;
        let id = Some(saved.id.clone()).filter(|id| !id.is_empty());
        let options = Options { id, product: saved.product.clone(), ..options.clone() };
        let points = saved.points();
        let session = Self::begin(fleet, saved.selection(), others, &options, points).await?;
        // What changes from here on, it waits for; what changed before, the mirrors tell by now.
        let changes = session.changes();
        let since = session.since();
        warnings.extend(session.view().warnings.iter().cloned());
        Ok(Restored { session, since, changes, warnings })
    }

    /// Goes on from what a store keeps by this id, and has the session kept there.
    ///
    /// # Errors
    ///
    /// As `restore`; a store that does not answer, and one that keeps none.
    pub async fn reopen(
        fleet: &Fleet,
        store: Arc<dyn SessionStore>,
        id: &str,
        options: &Options,
    ) -> Result<Restored, RestoreError> {
        let saved = store.get(id).await?.ok_or_else(|| RestoreError::NotKept(id.to_owned()))?;
        let restored = Self::restore(fleet, &saved, options).await?;
        let session = restored.session.stored_in(store);
        Ok(Restored { session, ..restored })
    }

    /// What changed of each executor between save and restore; nothing in a session that was not
    /// restored.
    #[must_use]
    pub fn since(&self) -> Vec<ExecutorChanges> {
        let restored = |executor: &&Arc<DaemonSource>| self.life.points.contains_key(executor.id());
        let told = |executor: &Arc<DaemonSource>| {
            let held = executor.snapshot();
            ExecutorChanges {
                environment_id: executor.id().to_owned(),
                since: held.as_ref().and_then(|held| held.since.clone()),
                moved: held.is_some_and(|held| held.moved),
            }
        };
        self.executors.iter().filter(restored).map(told).collect()
    }

    /// Where each executor is, as far as this session's selection goes.
    pub(super) fn points(&self) -> BTreeMap<String, ResumePoint> {
        let point = |executor: &Arc<DaemonSource>| {
            let held = executor.snapshot().as_ref().and_then(ResumePoint::of);
            let mut point = held.or_else(|| self.life.points.get(executor.id()).cloned())?;
            if executor.is_part() {
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
