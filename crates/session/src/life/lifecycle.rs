//! Lifecycle of a session: save, restore, fork, persist and close.

use crate::options::choice::SkillChoice;
use crate::options::session_options::SessionOptions;
use crate::skills::selection::SelectionError;
use crate::skills::skill::mirrored_view;
use crate::skills::skill_source::{SkillSource, SourceState};
use crate::sources::DaemonSource;
use crate::state::{Session, SessionInner};
use crate::storage::saved::{ParsedSession, SavedError, SavedSession};
use crate::storage::session_id::random_id;
use crate::storage::store::{SessionStore, StoreError};
use crate::view::session_view::SessionWatch;
use caproot_client::{ChangesSince, Fleet, ResumePoint};
use caproot_core::sync::Mutex;
use std::sync::Arc;

/// Outcome of [`Session::close`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct CloseOutcome {
    /// Whether the store confirmed that the saved state is deleted. Always false without a store.
    pub deleted: bool,
    /// Error of the store, if the store was called.
    pub error: Option<StoreError>,
}

/// Outcome of [`Session::run_scope`].
#[derive(Debug)]
#[must_use]
pub struct ScopeOutcome<T> {
    /// Output of the scope.
    pub value: T,
    /// Outcome of [`Session::persist`], if the session was to be kept.
    pub persisted: Option<Result<(), PersistError>>,
    /// Outcome of [`Session::close`].
    pub close_outcome: CloseOutcome,
}

/// Error of [`Session::persist`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PersistError {
    /// The session was closed before.
    #[error("the session is closed")]
    Closed,
    /// The session was started without a store.
    #[error("the session has no store")]
    NoStore,
    /// The session cannot be saved.
    #[error(transparent)]
    Saved(#[from] SavedError),
    /// The store did not accept the saved state.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Part of a session that a fork inherits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForkScope<'a> {
    /// All roots and sources.
    All,
    /// Selected roots with these ids, and the other sources that answer for one of the ids.
    Only(&'a [&'a str]),
}

/// Error of [`Session::fork`]. Displays as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForkError {
    /// The session is closed.
    #[error("the session is closed")]
    Closed,
    /// The session does not have these ids.
    #[error("not in the session, so a fork cannot have it: {0:?}")]
    NotSelected(Vec<String>),
    /// The remaining selection is invalid.
    #[error(transparent)]
    Selection(#[from] SelectionError),
}

/// Session that was restored from a saved state.
#[derive(Debug)]
pub struct RestoredSession {
    /// Session with the saved id, product, choice and selection.
    pub session: Session,
    /// Changes of each executor since the save. [`Session::changes_since_save`] returns them again,
    /// with the executors that answered later.
    pub changes_since_save: Vec<ExecutorChanges>,
    /// Watch for all changes after `changes_since_save` was read.
    pub watch: SessionWatch,
    /// Parts of the saved state that could not be restored, one sentence each.
    pub warnings: Vec<String>,
}

/// Changes of one executor between save and restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutorChanges {
    /// Environment of the executor.
    pub environment_id: String,
    /// Changes since the save; `None` until the executor answers.
    pub changes: Option<Arc<ChangesSince>>,
    /// Whether the listed skills are newer than `changes`.
    pub changed_again: bool,
}

/// Error of [`Session::restore`]. Displays as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// The text is not a saved session.
    #[error(transparent)]
    Saved(#[from] SavedError),
    /// The saved selection is invalid.
    #[error("invalid saved selection: {0}")]
    Selection(#[from] SelectionError),
    /// The store returned an error.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store has no session with this id.
    #[error("the store has no session with the id {0:?}")]
    NotStored(String),
}

impl ForkScope<'_> {
    fn includes(self, id: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(ids) => ids.contains(&id),
        }
    }
}

impl Session {
    /// Sets the store of the session and of its forks.
    #[must_use]
    pub fn with_store(mut self, store: Arc<dyn SessionStore>) -> Self {
        self.inner.store = Some(store);
        self
    }

    /// Returns the states of all sources now, in the order of [`Session::sources`].
    #[must_use]
    pub fn source_states(&self) -> Vec<SourceState> {
        self.sources
            .iter()
            .map(|source| {
                SourceState::of_source(
                    &**source,
                    self.inner.options.choice.count_included(&**source),
                )
            })
            .collect()
    }

    /// Tries again to use the MCP servers that cannot be used, of plugins and of sources, such as after a
    /// user logged in. A server that answers 401 again makes the program be asked for `Authorization` again.
    /// Waits for the connections to servers of plugins, but not for the program.
    #[cfg_attr(not(feature = "mcp"), expect(clippy::unused_async))]
    pub async fn retry_servers(&self) {
        for source in &self.sources {
            source.retry();
        }
        #[cfg(feature = "mcp")]
        self.plugin_servers.retry().await;
    }

    /// Saves the session in its store, in place of the state that was saved before.
    pub async fn persist(&self) -> Result<(), PersistError> {
        let store = self.inner.store.as_ref().ok_or(PersistError::NoStore)?;
        let _guard = self.inner.is_deleted.lock().await;
        if self.is_closed() {
            return Err(PersistError::Closed);
        }
        Ok(store.put(&self.inner.id, &self.save()?).await?)
    }

    /// Closes the session. Every call from now on, and every call in flight, fails with
    /// `SESSION_CLOSED`, and no skill is listed. With `delete`, the store deletes the saved state;
    /// without it, the store is not called. Forks stay open. If the session is closed already, the
    /// store is called again. A mirror ends once no session shares it.
    pub async fn close(&self, delete: bool) -> CloseOutcome {
        self.inner.closed.cancel();

        // A running `persist` ends first, and a later one fails: none follows the deletion.
        let mut deleted = self.inner.is_deleted.lock().await;
        let mut error = None;
        if let Some(store) = self.inner.store.as_ref().filter(|_| delete) {
            error = store.delete(&self.inner.id).await.err();
            *deleted = error.is_none();
        }
        CloseOutcome {
            deleted: *deleted,
            error,
        }
    }

    /// Runs a scope with the session and closes the session afterwards. With `keep_session`, the
    /// session is persisted; without it, the saved state is deleted. If the scope panics or this
    /// future is dropped, the session is closed and the store is not called.
    pub async fn run_scope<F, W, T>(self, keep_session: bool, scope: F) -> ScopeOutcome<T>
    where
        F: FnOnce(Arc<Self>) -> W,
        W: Future<Output = T>,
    {
        let session = Arc::new(self);
        let guard = session.inner.closed.clone().drop_guard();
        let value = scope(session.clone()).await;

        let persisted = if keep_session {
            Some(session.persist().await)
        } else {
            None
        };
        let close_outcome = session.close(!keep_session).await;
        drop(guard);

        ScopeOutcome {
            value,
            persisted,
            close_outcome,
        }
    }

    /// Forks the session for a thread or a subagent, with all of the selection or a part of it. A
    /// fork has the choice of this session, and never a skill that this session does not have: a name
    /// that a skill of this session masks stays masked, although the fork may not have that skill. A
    /// fork shares the mirrors and their call permits, so a fork is cheap and lists the same skills at
    /// once. A fork has its own id and the same store, and stays open if this session is
    /// closed.
    pub fn fork(&self, scope: ForkScope<'_>) -> Result<Self, ForkError> {
        if self.is_closed() {
            return Err(ForkError::Closed);
        }
        if let ForkScope::Only(ids) = scope {
            let mut unknown: Vec<_> = ids.iter().map(|id| (*id).to_owned()).collect();
            unknown.retain(|id| {
                let mut known = self.authorities.iter();
                known.all(|authority| authority.id != *id)
            });
            if !unknown.is_empty() {
                return Err(ForkError::NotSelected(unknown));
            }
        }

        let executors = self.executors.iter().filter_map(|executor| match scope {
            ForkScope::All => Some(executor.clone()),
            ForkScope::Only(_) => {
                let restricted = executor.restricted_to(&|id| scope.includes(id));
                restricted.map(Arc::new)
            }
        });
        let mut others = self.sources[self.executors.len()..].to_vec();
        others.retain(|source| {
            let authorities = source.authorities();
            scope == ForkScope::All || authorities.iter().any(|id| scope.includes(id))
        });

        let mut selection = self.inner.selection.clone();
        selection.retain(|root| scope.includes(&root.id));
        let inner = SessionInner {
            id: random_id(),
            options: self.inner.options.clone(),
            masking: self.masking_sources(scope, &others),
            selection,
            resume_points: self.inner.resume_points.clone(),
            // The model of a fork may know the texts of this session.
            short_names: Mutex::new(self.inner.short_names.lock().clone()),
            store: self.inner.store.clone(),
            ..SessionInner::default()
        };

        let mut fork = Self::from_sources(executors.collect(), others, inner)?;
        fork.custom_tools = self.custom_tools.clone();
        #[cfg(feature = "mcp")]
        {
            let servers = &self.plugin_servers;
            fork.plugin_servers =
                servers.restricted_to(|declared| scope.includes(declared.authority()));
        }
        Ok(fork)
    }

    /// Returns the sources that a fork of this scope has not or only in part, and whose names its
    /// other sources must not use. `others` are its sources that are no executors. A fork keeps no
    /// mirror that can mask no name.
    fn masking_sources(
        &self,
        scope: ForkScope<'_>,
        others: &[Arc<dyn SkillSource>],
    ) -> Vec<Arc<dyn SkillSource>> {
        let last_kind = others.iter().map(|source| source.kind()).max();
        let lost = self.sources.iter().filter(|source| {
            let authorities = source.authorities();
            !authorities.iter().all(|id| scope.includes(id))
        });

        self.inner
            .masking
            .iter()
            .chain(lost)
            .filter(|source| last_kind > Some(source.kind()))
            .cloned()
            .collect()
    }

    /// Restricts a new fork to the skills that `narrower` includes, too. A fork never has a skill that
    /// the choice of its session excludes.
    ///
    /// # Errors
    ///
    /// The choices of the fork have more than 256 rules together.
    pub fn with_narrower_choice(mut self, narrower: &SkillChoice) -> Result<Self, SelectionError> {
        let choice = self.inner.options.choice.narrowed_to(narrower);
        choice.check()?;
        self.inner.options.choice = choice;
        self.views = Mutex::default();
        #[cfg(feature = "mcp")]
        {
            let choice = &self.inner.options.choice;
            let servers = &self.plugin_servers;
            self.plugin_servers = servers.restricted_to(|declared| declared.is_included(choice));
        }
        Ok(self)
    }

    /// Returns the session as JSON: its id, product, choice and selection, the resume point of each
    /// executor, the files that the model read, and the short names of skills. The JSON contains no other text
    /// of a skill. A closed session can be saved, too.
    ///
    /// # Errors
    ///
    /// [`SavedError::TooLarge`], if the selection alone exceeds the limit.
    pub fn save(&self) -> Result<String, SavedError> {
        let inner = &self.inner;
        let SessionOptions {
            product, choice, ..
        } = &inner.options;
        let points = self.executors.iter().filter_map(|executor| {
            let point = self.resume_point(executor)?;
            Some((executor.id().to_owned(), point))
        });
        let saved = SavedSession::new(
            &inner.id,
            product,
            choice,
            &inner.selection,
            points.collect(),
        );
        #[cfg(feature = "mcp")]
        let saved = saved.with_mcp_servers(self.plugin_servers.to_saved());
        saved
            .with_used_files(&inner.used.lock())
            .with_short_names(&inner.short_names.lock())
            .to_json()
    }

    /// Restores a saved session with its id, product, choice and selection, and the changes of each
    /// executor since the save. Waits for executors as [`Session::start`]. A missing executor, a
    /// missing root and a state of another version are warnings.
    ///
    /// If the daemon still knows the saved token, the changes are exact. If the daemon was restarted
    /// or the token is too old, the saved digests of catalogs tell whether a root changed. The
    /// changes of an executor that does not answer yet come later, by
    /// [`Session::changes_since_save`]. The options may differ from those of the saved session, also
    /// [`SessionOptions::plugins`].
    ///
    /// ```
    /// use caproot_client::{ChangesSince, Fleet};
    /// use caproot_session::{ForkScope, Session, SessionOptions};
    /// # mod demo { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/support/demo_session.rs")); }
    ///
    /// async fn resume(fleet: &Fleet, saved: &str) -> Result<Session, Box<dyn std::error::Error>> {
    ///     let restored = Session::restore(fleet, saved, &SessionOptions::default()).await?;
    ///     for executor in &restored.changes_since_save {
    ///         match executor.changes.as_deref() {
    ///             Some(ChangesSince::Known { upserted, removed, .. }) => println!("{upserted:?} {removed:?}"),
    ///             Some(ChangesSince::Unknown { reason, roots }) => println!("read {roots:?} again: {reason}"),
    ///             None => println!("{} does not answer yet", executor.environment_id),
    ///         }
    ///     }
    ///     // A subagent gets one of the roots.
    ///     Ok(restored.session.fork(ForkScope::Only(&["demo"]))?)
    /// }
    /// #
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let fleet = demo::start_demo_fleet().await;
    /// # let selected = r#"[{"id": "demo", "location":
    /// #     {"type": "environment", "environmentId": "local", "path": "published:demo"}}]"#;
    /// # let roots = caproot_client::parse_selected_roots(selected)?;
    /// # let saved = Session::start(&fleet, roots, &SessionOptions::default()).await?.save()?;
    /// # let fork = resume(&fleet, &saved).await?;
    /// # assert!(fork.call("skills.list", &serde_json::json!({})).await.json.contains("triage-logs"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// A text that [`Session::save`] did not write, with the line and column of the error.
    pub async fn restore(
        fleet: &Fleet,
        saved: &str,
        options: &SessionOptions,
    ) -> Result<RestoredSession, RestoreError> {
        Self::restore_with(fleet, saved, Vec::new(), options).await
    }

    /// Restores a saved session with other sources next to the executors. Other sources are not
    /// part of the saved state.
    ///
    /// # Errors
    ///
    /// As [`Session::restore`] and [`Session::start_with`].
    pub async fn restore_with(
        fleet: &Fleet,
        saved: &str,
        others: Vec<Arc<dyn SkillSource>>,
        options: &SessionOptions,
    ) -> Result<RestoredSession, RestoreError> {
        let ParsedSession {
            session: saved,
            mut warnings,
        } = SavedSession::parse(saved)?;
        let saved_options = SessionOptions {
            id: Some(saved.id().to_owned()).filter(|id| !id.is_empty()),
            product: saved.product().to_owned(),
            choice: saved.choice().clone(),
            ..options.clone()
        };

        let selection = saved.selection();
        let points = saved.resume_points();
        let session = Self::start_resumed(fleet, selection, others, &saved_options, points).await?;
        *session.inner.used.lock() = saved.used_files()?;
        *session.inner.short_names.lock() = saved.short_names();

        // The watch starts first: no change is lost between the watch and the read.
        let watch = session.watch();
        let changes_since_save = session.changes_since_save();
        warnings.extend(session.current_view().warnings.iter().cloned());
        #[cfg(feature = "mcp")]
        {
            warnings.extend(session.plugin_servers.warnings());
            warnings.extend(session.plugin_servers.changes_since(saved.mcp_servers()));
        }

        Ok(RestoredSession {
            session,
            changes_since_save,
            watch,
            warnings,
        })
    }

    /// Restores the session that a store has under this id, and sets the store of the session.
    ///
    /// # Errors
    ///
    /// As [`Session::restore`], an error of the store, or no session with this id.
    pub async fn restore_from_store(
        fleet: &Fleet,
        store: Arc<dyn SessionStore>,
        id: &str,
        options: &SessionOptions,
    ) -> Result<RestoredSession, RestoreError> {
        let saved = store.get(id).await?;
        let saved = saved.ok_or_else(|| RestoreError::NotStored(id.to_owned()))?;
        let mut restored = Self::restore(fleet, &saved, options).await?;
        restored.session.inner.store = Some(store);
        Ok(restored)
    }

    /// Returns the changes of each executor between save and restore; empty if the session was not
    /// restored.
    #[must_use]
    pub fn changes_since_save(&self) -> Vec<ExecutorChanges> {
        let points = &self.inner.resume_points;
        let changes = self
            .executors
            .iter()
            .filter(|executor| points.contains_key(executor.id()))
            .map(|executor| {
                let snapshot = executor.mirror_snapshot();
                ExecutorChanges {
                    environment_id: executor.id().to_owned(),
                    changes: snapshot.changes_since,
                    changed_again: snapshot.changed_since_resume,
                }
            });
        changes.collect()
    }

    /// Returns the current resume point of an executor, or the saved one if the executor has not
    /// answered yet, restricted to the selection of the session.
    fn resume_point(&self, executor: &DaemonSource) -> Option<ResumePoint> {
        let current = ResumePoint::from_snapshot(&executor.mirror_snapshot());
        let mut point = match current {
            Some(point) => ResumePoint {
                view: mirrored_view(self.inner.options.has_plugins()),
                ..point
            },
            None => self.inner.resume_points.get(executor.id())?.clone(),
        };

        if executor.is_partial() {
            // A token covers all roots of a mirror, and the session has fewer.
            let ids = executor.authorities();
            point.token.clear();
            point.catalog_digests.retain(|id, _| ids.contains(id));
        }
        Some(point)
    }
}

#[cfg(test)]
mod tests;
