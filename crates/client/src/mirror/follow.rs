//! Task of a mirror: follows one stream and publishes each complete state.

use super::catalog_sharing::SharingExecutor;
use super::retry_requests::RetryRequests;
use super::stream::MirrorStream;
use super::{MirrorSelection, MirrorSnapshot, MirrorState, MirrorUpdate};
use crate::call::Client;
use crate::watch::WatchMessage;
use caproot_core::backoff::full_jitter;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Shortest delay after the daemon rejected the watch or violated the protocol, and the random part
/// in addition. The cause may be fixed meanwhile, and a hostile daemon must not keep the mirror busy.
const REJECTED_DELAY: Duration = Duration::from_secs(5);
const MAX_RANDOM_DELAY: Duration = Duration::from_secs(25);

/// Kind of a loss of the executor.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LossKind {
    /// The connection was lost. The next attempt may succeed.
    Connection,
    /// No daemon listens at the endpoint.
    Refused,
    /// The daemon rejected the watch or violated the protocol.
    Rejected,
}

/// Publisher of the mirror's snapshots.
pub struct SnapshotPublisher {
    pub snapshots: watch::Sender<MirrorSnapshot>,
    pub message_count: watch::Sender<u64>,
}

/// Keeps the mirror current. Never returns.
pub async fn follow_executor(
    client: Client,
    selection: MirrorSelection,
    sharing: Option<SharingExecutor>,
    retry_requests: Arc<RetryRequests>,
    publisher: SnapshotPublisher,
) {
    loop {
        let mut stream = MirrorStream::start(&client, &selection);
        stream.watch.retry_requests = retry_requests.clone();
        let executor = sharing.as_ref();
        stream.replica.sharing = executor.map(|executor| executor.start_stream(&selection));
        let why = publish_stream(&mut stream, &publisher).await;
        // The stream ends before the delay: other mirrors may wait for its transfers.
        drop(stream);
        publisher.publish_lost(&why, LossKind::Rejected);

        tokio::select! {
            () = retry_requests.wait_for_request() => {}
            () = tokio::time::sleep(REJECTED_DELAY + full_jitter(MAX_RANDOM_DELAY)) => {}
        }
    }
}

/// Publishes the states of a stream until the stream cannot go on. Returns the reason.
async fn publish_stream(stream: &mut MirrorStream, publisher: &SnapshotPublisher) -> String {
    loop {
        match stream.next().await {
            Ok(WatchMessage::Event(event)) => match stream.apply_event(*event) {
                Ok(None) => {}
                Ok(Some(update)) => publisher.publish_state(update),
                Err(why) => return why,
            },
            Ok(WatchMessage::Lost { cause, .. }) => {
                let kind = if cause.is_connection_refused() {
                    LossKind::Refused
                } else {
                    LossKind::Connection
                };
                publisher.publish_lost(&cause.to_string(), kind);
            }
            Err(cause) => return cause.to_string(),
        }
    }
}

impl SnapshotPublisher {
    /// Publishes the snapshot of another mirror.
    pub fn publish_snapshot(&self, now: &MirrorSnapshot) {
        self.snapshots.send_if_modified(|snapshot| {
            let news = !Arc::ptr_eq(&snapshot.catalog, &now.catalog)
                || snapshot.state != now.state
                || snapshot.changes_since != now.changes_since;
            *snapshot = now.clone();
            news
        });
        self.message_count.send_modify(|count| *count += 1);
    }

    /// Publishes a complete state.
    fn publish_state(&self, update: MirrorUpdate) {
        self.snapshots.send_if_modified(|snapshot| {
            let news = update.changed || snapshot.state != MirrorState::Live;
            if update.changed {
                snapshot.catalog = update.catalog;
            }
            snapshot.epoch = update.epoch;
            snapshot.revision = update.revision;
            snapshot.resume_token = update.token;
            snapshot.state = MirrorState::Live;
            news
        });
        self.message_count.send_modify(|count| *count += 1);
    }

    /// Publishes that the executor is lost. The first reason stays until the executor is back, unless
    /// the daemon rejects the watch. Then, or if no daemon listens, a mirror that had no state yet
    /// becomes [`MirrorState::Failed`].
    fn publish_lost(&self, why: &str, kind: LossKind) {
        self.snapshots.send_if_modified(|snapshot| {
            let why = why.into();
            let lost = match snapshot.state {
                MirrorState::Stale { since, .. } if kind == LossKind::Rejected => {
                    MirrorState::Stale { since, why }
                }
                MirrorState::Stale { .. } => return false,
                MirrorState::Live => MirrorState::Stale {
                    since: Instant::now(),
                    why,
                },
                MirrorState::Connecting(_) | MirrorState::Failed(_)
                    if kind != LossKind::Connection =>
                {
                    MirrorState::Failed(why)
                }
                MirrorState::Connecting(_) | MirrorState::Failed(_) => {
                    MirrorState::Connecting(Some(why))
                }
            };

            let news = snapshot.state != lost;
            snapshot.state = lost;
            news
        });
    }
}
