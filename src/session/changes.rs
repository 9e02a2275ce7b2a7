//! Waits until what a session shows may be another: an executor's skills or state changed, or one was
//! lost for so long that its skills are no longer shown.

use crate::client::{Mirror, MirrorState};
use futures_util::future::select_all;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Waits for changes of a session's executors.
#[derive(Debug)]
pub struct Changes(Vec<Watched>);

/// One executor.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) environment_id: String,
    pub(super) mirror: Mirror,
    pub(super) grace: Duration,
    /// When it was lost, if it was told that its grace is over.
    pub(super) told: Option<Instant>,
}

impl Changes {
    pub(super) fn new(watched: Vec<Watched>) -> Self {
        Self(watched)
    }

    /// Waits for the next change; the environment of whose it is. May be dropped while it waits, and
    /// called again.
    pub async fn next(&mut self) -> String {
        if self.0.is_empty() {
            return std::future::pending().await;
        }
        select_all(self.0.iter_mut().map(|watched| Box::pin(watched.changed()))).await.0
    }
}

impl Watched {
    async fn changed(&mut self) -> String {
        match self.mirror.snapshot().state {
            MirrorState::Stale { since, .. } if self.told != Some(since) => {
                if timeout_at(since + self.grace, self.mirror.changed()).await.is_err() {
                    self.told = Some(since);
                }
            }
            _ => {
                self.mirror.changed().await;
            }
        }
        self.environment_id.clone()
    }
}
