//! Connects to the daemon, follows the session on it, and publishes each complete state of its skills.

use super::call_error::is_temporary;
use super::catalog::{CatalogContent, McpCatalog};
use super::texts::ServerTexts;
use super::{ConnectFailure, ServedDaemon};
use caproot_client::session::{ExecutorState, ExecutorStatus};
use caproot_client::{CallError, published_selection};
use caproot_core::backoff::Backoff;
use caproot_core::proto::caproot::v1::{ResolveRootsRequest, SelectedCapabilityRoot};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Delays between attempts to connect to a daemon that never answered.
const CONNECT_BACKOFF: Backoff = Backoff::new(Duration::from_millis(400), Duration::from_secs(10));
/// How long a daemon without published roots is left alone before its roots are read again.
const NO_ROOTS_DELAY: Duration = Duration::from_secs(10);

/// Daemon, its catalog, and the state of the connection.
#[derive(Debug, Clone, Default)]
pub struct FeedState {
    /// Daemon with the session of the catalog; `None` before the first connection.
    pub daemon: Option<Arc<ServedDaemon>>,
    /// Catalog of the last complete revision; empty before the first one.
    pub catalog: Arc<McpCatalog>,
    /// State of the connection.
    pub sync: SyncState,
}

/// State of the connection to the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SyncState {
    /// The first state has not come yet, and no attempt has failed.
    #[default]
    Connecting,
    /// The catalog is current.
    Synced,
    /// The daemon is lost, or was never reached. Has the cause.
    Lost(String),
}

/// Publisher of the state of the feed.
pub struct FeedPublisher<F> {
    state: watch::Sender<FeedState>,
    texts: Arc<ServerTexts>,
    /// Receives a message if the daemon is lost or connected again.
    say: F,
}

/// Connects to the daemon and follows its session. Connects again if the published roots change. Returns
/// only a final failure of `connect`, or the error of a daemon that rejects the first request.
pub async fn follow_daemon<E: From<CallError>>(
    connect: impl AsyncFn() -> Result<ServedDaemon, ConnectFailure<E>>,
    publisher: FeedPublisher<impl Fn(String)>,
) -> Result<(), E> {
    loop {
        let daemon = connect_to_daemon(&connect, &publisher).await?;
        publisher.follow_session(Arc::new(daemon)).await?;
    }
}

/// Calls `connect` until a daemon answers or the failure is final.
async fn connect_to_daemon<E>(
    connect: &impl AsyncFn() -> Result<ServedDaemon, ConnectFailure<E>>,
    publisher: &FeedPublisher<impl Fn(String)>,
) -> Result<ServedDaemon, E> {
    let mut backoff = CONNECT_BACKOFF;

    loop {
        match connect().await {
            Ok(daemon) => return Ok(daemon),
            Err(ConnectFailure::Final(error)) => return Err(error),
            Err(ConnectFailure::Unavailable(cause)) => publisher.publish_lost(cause),
        }
        tokio::time::sleep(backoff.next_delay()).await;
    }
}

impl<F: Fn(String)> FeedPublisher<F> {
    pub fn new(state: watch::Sender<FeedState>, texts: Arc<ServerTexts>, say: F) -> Self {
        Self { state, texts, say }
    }

    /// Publishes the states of a session until the published roots of the daemon change.
    async fn follow_session(&self, daemon: Arc<ServedDaemon>) -> Result<(), CallError> {
        if daemon.roots.is_empty() {
            self.publish_catalog(&daemon);
            tokio::time::sleep(NO_ROOTS_DELAY).await;
            return Ok(());
        }

        let mut watch = daemon.session.watch();
        let mut epoch = String::new();
        loop {
            let executors = daemon.session.executors();
            let live = executors
                .iter()
                .find(|executor| executor.state == ExecutorStatus::Live);
            if let Some(live) = live {
                let has_restarted = !epoch.is_empty() && epoch != live.epoch;
                epoch.clone_from(&live.epoch);
                if has_restarted && daemon.have_roots_changed().await {
                    (self.say)("the published roots of the daemon have changed".to_owned());
                    return Ok(());
                }
                self.publish_catalog(&daemon);
            } else {
                if self.state.borrow().daemon.is_none() {
                    daemon.check_rejected(&executors).await?;
                }
                let causes = executors.into_iter().find_map(|executor| executor.reason);
                if let Some(cause) = causes {
                    self.publish_lost(cause);
                }
            }
            watch.next().await;
        }
    }

    /// Publishes the skills that the session has now.
    fn publish_catalog(&self, daemon: &Arc<ServedDaemon>) {
        let catalog = McpCatalog::new(daemon.catalog_content(&self.texts));
        let mut was_lost = false;
        self.state.send_modify(|state| {
            was_lost = matches!(state.sync, SyncState::Lost(_));
            *state = FeedState {
                daemon: Some(daemon.clone()),
                catalog: Arc::new(catalog),
                sync: SyncState::Synced,
            };
        });
        if was_lost {
            (self.say)("reconnected".to_owned());
        }
    }

    /// Publishes that the daemon is lost. The first cause stays until the daemon is back.
    fn publish_lost(&self, cause: String) {
        let sentence = format!("{cause}; reconnecting");
        let cause = if self.texts.has_lock {
            "the executor does not answer".to_owned()
        } else {
            cause
        };
        let is_news = self.state.send_if_modified(|state| {
            let is_news = !matches!(state.sync, SyncState::Lost(_));
            if is_news {
                state.sync = SyncState::Lost(cause);
            }
            is_news
        });
        if is_news {
            (self.say)(sentence);
        }
    }
}

impl ServedDaemon {
    /// Returns the skills and roots that the session has now.
    fn catalog_content(&self, texts: &ServerTexts) -> CatalogContent {
        let sources = self.session.sources().iter();
        let listings = sources.map(|source| source.snapshot().listing);
        CatalogContent {
            roots: self.roots.clone(),
            lock: self.lock.clone(),
            skills: listings
                .flat_map(|listing| listing.skills.clone())
                .collect(),
            statuses: self.session.root_statuses(),
            names: self.session.skill_names(texts.names),
        }
    }

    /// Reads the published roots again. Returns whether they changed.
    async fn have_roots_changed(&self) -> bool {
        if !self.follows_published {
            return false;
        }
        // If the daemon does not respond, the session reports the failure.
        let Ok(published) = self.client.clone().list_roots().await else {
            return false;
        };
        let roots = published_selection(published, self.environment_id.as_deref());
        roots[..] != self.roots[..]
    }

    /// Returns the error of the daemon, if the daemon rejects the selection of the session. A session only
    /// has the reason as text.
    async fn check_rejected(&self, executors: &[ExecutorState]) -> Result<(), CallError> {
        let mut states = executors.iter();
        if !states.all(|executor| executor.state == ExecutorStatus::Failed) {
            return Ok(());
        }
        let roots: Vec<SelectedCapabilityRoot> = self.roots.to_vec();
        let request = ResolveRootsRequest {
            selected_capability_roots: roots,
            ..ResolveRootsRequest::default()
        };
        match self.client.clone().resolve_roots(request).await {
            Err(error) if !is_temporary(&error) => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}
