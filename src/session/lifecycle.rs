//! How a session ends, and what then becomes of its saved state. Leaves what is saved to `saved`, and
//! where to a `SessionStore`.

use super::metrics::{InvocationCounters, InvocationMetrics};
use super::result::{ToolError, ToolErrorCode};
use super::saved::{SavedError, check_session_id};
use super::store::{SessionStore, StoreError};
use super::{SelectionError, Session, SessionOptions, ToolNames};
use crate::client::ResumePoint;
use crate::proto::caproot::v1::SelectedCapabilityRoot;
use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use tokio::sync::{Mutex, watch};

/// What a session is beside what it shows.
#[derive(Debug)]
pub(super) struct SessionInner {
    pub(super) id: String,
    pub(super) product: String,
    /// As selected.
    pub(super) selection: Vec<SelectedCapabilityRoot>,
    /// Of a session that was restored, where its executors were: kept for those that did not come yet.
    pub(super) resume_points: BTreeMap<String, ResumePoint>,
    pub(super) counters: InvocationCounters,
    pub(super) tool_names: ToolNames,
    closed: watch::Sender<bool>,
    store: Option<Arc<dyn SessionStore>>,
    /// Whether the saved state was deleted. Held while the store is asked, so that nothing is kept after
    /// it was deleted.
    is_deleted: Mutex<bool>,
}

/// How a session was closed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct CloseOutcome {
    /// Whether its saved state is deleted: the store said so. A session without a store knows of none.
    pub deleted: bool,
    /// Why the store did not delete it, where it was asked to.
    pub error: Option<StoreError>,
}

/// What is left of a session whose scope is over.
#[derive(Debug)]
#[must_use]
pub struct ScopeOutcome<T> {
    /// What the scope came to.
    pub value: T,
    /// Where it was to be kept, whether it is.
    pub persisted: Option<Result<(), PersistError>>,
    /// How it was closed.
    pub close_outcome: CloseOutcome,
}

/// Why a session is not kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PersistError {
    /// It was closed before.
    #[error("the session is closed")]
    Closed,
    /// It was made without a store.
    #[error("the session has no store")]
    NoStore,
    /// It cannot be saved.
    #[error(transparent)]
    Saved(#[from] SavedError),
    /// The store did not keep it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl SessionInner {
    /// With the given id, or one at random.
    pub(super) fn new(
        options: &SessionOptions,
        selection: Vec<SelectedCapabilityRoot>,
        points: BTreeMap<String, ResumePoint>,
    ) -> Result<Self, SelectionError> {
        if let Some(id) = &options.id {
            check_session_id(id).map_err(|why| SelectionError(vec![why]))?;
        }
        Ok(Self {
            id: options.id.clone().unwrap_or_else(random_id),
            product: options.product.clone(),
            selection,
            resume_points: points,
            counters: InvocationCounters::default(),
            tool_names: options.tool_names.clone(),
            closed: watch::Sender::new(false),
            store: None,
            is_deleted: Mutex::new(false),
        })
    }

    /// Of a fork.
    pub(super) fn fork(parent: &Self, selection: Vec<SelectedCapabilityRoot>) -> Self {
        Self {
            id: random_id(),
            product: parent.product.clone(),
            selection,
            resume_points: parent.resume_points.clone(),
            counters: InvocationCounters::default(),
            tool_names: parent.tool_names.clone(),
            closed: watch::Sender::new(false),
            store: parent.store.clone(),
            is_deleted: Mutex::new(false),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// What `work` comes to, unless the session is closed before.
    pub(super) async fn run_until_closed<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut closed = self.closed.subscribe();
        tokio::select! {
            biased;
            _ = closed.wait_for(|closed| *closed) => None,
            done = work => Some(done),
        }
    }
}

/// That a session is closed, to a model.
pub(super) fn session_closed_error() -> ToolError {
    ToolError::from_code(ToolErrorCode::SessionClosed, "the session is closed")
}

impl Session {
    /// Its id: the given one, or one at random.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.inner.id
    }

    /// Has it kept in this store, and its forks.
    #[must_use]
    pub fn with_store(mut self, store: Arc<dyn SessionStore>) -> Self {
        self.inner.store = Some(store);
        self
    }

    /// What was invoked so far.
    #[must_use]
    pub fn metrics(&self) -> InvocationMetrics {
        self.inner.counters.snapshot()
    }

    /// Whether it is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.inner.is_closed()
    }

    /// Saves it in its store, in place of what was saved before.
    pub async fn persist(&self) -> Result<(), PersistError> {
        let store = self.inner.store.as_ref().ok_or(PersistError::NoStore)?;
        let _turn = self.inner.is_deleted.lock().await;
        if self.is_closed() {
            return Err(PersistError::Closed);
        }
        let saved = self.save()?;
        Ok(store.put(&self.inner.id, &saved).await?)
    }

    /// Closes it: from now on every call is refused with `SESSION_CLOSED`, those under way too, and it
    /// shows nothing. With `delete` its saved state is deleted from its store; without, the store is left
    /// as it is. Forks go on. Closing it again asks the store again, and is as true. Its mirrors end when
    /// the last that shares them is dropped.
    pub async fn close(&self, delete: bool) -> CloseOutcome {
        self.inner.closed.send_replace(true);
        let mut deleted = self.inner.is_deleted.lock().await;
        let Some(store) = self.inner.store.as_ref().filter(|_| delete) else {
            return CloseOutcome { deleted: *deleted, error: None };
        };
        let why = store.delete(&self.inner.id).await.err();
        *deleted = why.is_none();
        CloseOutcome { deleted: *deleted, error: why }
    }

    /// Runs a scope with the session, and closes it behind: kept in its store where it is to be, else with
    /// its saved state deleted, whatever the scope came to. A scope that panics, or whose future is
    /// dropped, closes it and leaves the store as it is.
    pub async fn run_scope<F, W, T>(self, keep_session: bool, scope: F) -> ScopeOutcome<T>
    where
        F: FnOnce(Arc<Self>) -> W,
        W: Future<Output = T>,
    {
        let session = Arc::new(self);
        let guard = CloseOnDrop(session.clone());
        let value = scope(session.clone()).await;
        let kept = if keep_session { Some(session.persist().await) } else { None };
        let closed = session.close(!keep_session).await;
        drop(guard);
        ScopeOutcome { value, persisted: kept, close_outcome: closed }
    }
}

/// Closes a session when it is dropped.
struct CloseOnDrop(Arc<Session>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.inner.closed.send_replace(true);
    }
}

fn random_id() -> String {
    let random = || RandomState::new().hash_one(0_u8);
    format!("s-{:016x}{:016x}", random(), random())
}
