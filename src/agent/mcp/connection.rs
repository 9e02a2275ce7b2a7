//! Connects to the daemon, and publishes a view of its session after each change. Connects again if the
//! published roots change, because the roots of a session never change.

use super::texts::ServerTexts;
use super::view::ServedView;
use super::{ConnectFailure, ServedDaemon};
use caproot_client::{CallError, published_selection};
use caproot_core::backoff::Backoff;
use caproot_core::proto::caproot::v1::ResolveRootsRequest;
use caproot_session::{ExecutorState, ExecutorStatus};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tonic::Code;

/// Delays between attempts to connect to a daemon that never answered.
const CONNECT_BACKOFF: Backoff = Backoff::new(Duration::from_millis(400), Duration::from_secs(10));
/// How long a daemon without published roots is left alone before its roots are read again.
const NO_ROOTS_DELAY: Duration = Duration::from_secs(10);

/// Daemon, the view of its session, and the state of the connection.
#[derive(Debug, Clone, Default)]
pub struct ServedState {
    /// Daemon with the session of the view; `None` before the first connection.
    pub daemon: Option<Arc<ServedDaemon>>,
    /// View of the last complete revision; empty before the first one.
    pub view: Arc<ServedView>,
    /// State of the connection.
    pub sync: SyncState,
}

/// State of the connection to the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SyncState {
    /// The first state has not come yet, and no attempt has failed.
    #[default]
    Connecting,
    /// The view is current.
    Synced,
    /// The daemon is lost, or was never reached. Has the cause.
    Lost(String),
}

/// Publisher of the state of the server.
pub struct StatePublisher<F> {
    state: watch::Sender<ServedState>,
    texts: Arc<ServerTexts>,
    /// Receives a message if the daemon is lost or connected again.
    say: F,
}

/// Connects to the daemon and follows its session. Connects again if the published roots change. Returns
/// only a final failure of `connect`, or the error of a daemon that rejects the first request.
pub async fn follow_daemon<E: From<CallError>>(
    connect: impl AsyncFn() -> Result<ServedDaemon, ConnectFailure<E>>,
    publisher: StatePublisher<impl Fn(String)>,
) -> Result<(), E> {
    let mut backoff = CONNECT_BACKOFF;
    loop {
        match connect().await {
            Ok(daemon) => {
                publisher.follow_session(Arc::new(daemon)).await?;
                backoff = CONNECT_BACKOFF;
                continue;
            }
            Err(ConnectFailure::Final(error)) => return Err(error),
            Err(ConnectFailure::Unavailable(cause)) => publisher.publish_lost(cause),
        }
        tokio::time::sleep(backoff.next_delay()).await;
    }
}

impl<F: Fn(String)> StatePublisher<F> {
    pub fn new(state: watch::Sender<ServedState>, texts: Arc<ServerTexts>, say: F) -> Self {
        Self { state, texts, say }
    }

    /// Publishes the states of a session until the published roots of the daemon change.
    async fn follow_session(&self, daemon: Arc<ServedDaemon>) -> Result<(), CallError> {
        if daemon.session.roots().is_empty() {
            self.publish_view(&daemon);
            // The roots of a session never change, so that only a new session can have some.
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
                self.publish_view(&daemon);
            } else {
                if self.state.borrow().daemon.is_none() {
                    daemon.check_rejected(&executors).await?;
                }
                if let Some(cause) = executors.into_iter().find_map(|executor| executor.reason) {
                    self.publish_lost(cause);
                }
            }
            watch.next().await;
        }
    }

    /// Publishes the skills that the session has now.
    fn publish_view(&self, daemon: &Arc<ServedDaemon>) {
        let before = self.state.send_replace(ServedState {
            daemon: Some(daemon.clone()),
            view: Arc::new(ServedView::of_session(&daemon.session, self.texts.names)),
            sync: SyncState::Synced,
        });
        if matches!(before.sync, SyncState::Lost(_)) {
            (self.say)("reconnected".to_owned());
        }
    }

    /// Publishes that the daemon is lost. The first cause stays until the daemon is back.
    fn publish_lost(&self, cause: String) {
        let sentence = format!("{cause}; reconnecting");
        // With a lock, hosts get no text of the daemon. The operator still gets the cause.
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
        // With a lock, a root of the session may have another id, but the same location.
        let served = self.session.roots().iter().map(|root| &root.location);
        !roots.iter().map(|root| &root.location).eq(served)
    }

    /// Returns the error of the daemon, if the daemon rejects the selection of the session. A session only
    /// has the reason as text.
    async fn check_rejected(&self, executors: &[ExecutorState]) -> Result<(), CallError> {
        let mut states = executors.iter();
        if !states.all(|executor| executor.state == ExecutorStatus::Failed) {
            return Ok(());
        }
        let request = ResolveRootsRequest {
            selected_capability_roots: self.session.roots().to_vec(),
            ..ResolveRootsRequest::default()
        };
        match self.client.clone().resolve_roots(request).await {
            Err(error) if !is_temporary(&error) => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

/// Whether the same call may succeed later.
fn is_temporary(error: &CallError) -> bool {
    let CallError::Status(status) = error else {
        return false;
    };
    matches!(
        status.code(),
        Code::Unavailable | Code::ResourceExhausted | Code::Aborted | Code::DeadlineExceeded
    )
}
