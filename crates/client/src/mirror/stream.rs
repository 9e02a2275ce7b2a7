//! Stream of complete states of one executor's catalog, for a single consumer that reads each event.

use super::MirrorSelection;
use super::catalog_sharing::has_digest;
use super::replica::{MirrorReplica, MirrorUpdate};
use crate::call::{CallError, Client};
use crate::watch::{SkillWatch, WatchMessage};
use caproot_core::proto::caproot::v1::{WatchSkillsRequest, WatchSkillsResponse};
use std::collections::HashMap;
use std::sync::Arc;
use tonic::{Code, Status};

/// Watch that reconnects, and the copy of the catalog to which its events are applied. Dropping it
/// ends the watch.
#[derive(Debug)]
pub struct MirrorStream {
    client: Client,
    pub(super) watch: SkillWatch,
    pub(super) replica: MirrorReplica,
    /// Epoch of the last complete state.
    epoch: Arc<str>,
}

impl MirrorStream {
    /// Starts to watch.
    #[must_use]
    pub fn start(client: &Client, selection: &MirrorSelection) -> Self {
        Self {
            client: client.clone(),
            watch: client.watch_skills(selection.watch_request()),
            replica: MirrorReplica::new(selection),
            epoch: Arc::default(),
        }
    }

    /// Returns the next message. An error is final: the daemon rejected the watch. Cancel-safe.
    pub async fn next(&mut self) -> Result<WatchMessage, CallError> {
        if self.watch.stream.is_none() && self.replica.sharing.is_some() {
            self.watch.wait_for_retry().await;
            // The box is gone once the stream opens, so that a mirror's future stays small.
            if let Err(status) = Box::pin(self.take_shared_catalogs()).await {
                return self.watch.record_failure(status);
            }
        }

        let message = self.watch.next_metered().await?;
        match &message {
            WatchMessage::Event(_) => {
                if let Some(sharing) = &self.replica.sharing {
                    sharing.record_progress();
                }
            }
            WatchMessage::Lost { .. } => {
                self.replica.handle_disconnect();
                if let Some(sharing) = &mut self.replica.sharing {
                    sharing.end_transfers();
                }
                self.watch.request.known_catalogs = self.replica.offer_catalogs(&HashMap::new());
            }
        }
        Ok(message)
    }

    /// Asks the daemon for the digests of its catalogs, and prepares a stream without the catalogs
    /// that this mirror or another one holds. The error is a loss of the executor.
    async fn take_shared_catalogs(&mut self) -> Result<(), Status> {
        // A dial may wait for its turn. The time limit of the digests begins afterwards.
        self.client.wait_for_connection().await?;
        let request = &self.watch.request;
        let listed = self.client.list_root_states_once(request, request.view());
        let listed = match listed.await {
            Ok(listed) => listed,
            Err(status)
                if status.code() != Code::DeadlineExceeded && self.watch.is_retryable(&status) =>
            {
                return Err(status);
            }
            // The stream has the error, if there is one.
            Err(_) => return Ok(()),
        };

        // The same start of the daemon resumes from the token, and sends only the changes.
        if listed.epoch == *self.epoch && !self.watch.resume_token().is_empty() {
            return Ok(());
        }

        let replica = &mut self.replica;
        let ready = listed.roots.into_iter().filter(has_digest);
        let ready: Vec<_> = ready.collect();
        let missing = ready
            .iter()
            .filter(|root| replica.held_root(root).is_none());
        let missing: Vec<_> = missing.cloned().collect();
        let Some(sharing) = &mut replica.sharing else {
            return Ok(());
        };
        let shared = sharing.obtain(&missing).await;

        let state: Option<Vec<_>> = ready
            .into_iter()
            .map(|root| {
                let held = replica.held_root(&root).or_else(|| shared.get(&root.id));
                let contents = held?.clone();
                Some((root, contents))
            })
            .collect();
        // The token resumes from the listed state.
        if let Some(state) = state.filter(|_| !listed.resume_token.is_empty())
            && replica.adopt_state(state)
        {
            self.watch.request.known_catalogs.clear();
            self.watch.request.resume_token = listed.resume_token;
        } else {
            self.watch.request.resume_token.clear();
            self.watch.request.known_catalogs = replica.offer_catalogs(&shared);
        }
        Ok(())
    }

    /// Applies an event of [`MirrorStream::next`] to the copy. Returns the state that the event
    /// completes. The error is final: the daemon violated the protocol, or the catalog exceeds the
    /// size limit.
    pub fn apply_event(
        &mut self,
        event: WatchSkillsResponse,
    ) -> Result<Option<MirrorUpdate>, String> {
        let outcome = self.replica.apply_event(event);
        self.watch.release_event();
        let update = outcome?;
        if let Some(update) = &update {
            self.epoch = update.epoch.clone();
            if let Some(sharing) = &mut self.replica.sharing {
                sharing.end_transfers();
            }
        }
        Ok(update)
    }
}

impl MirrorSelection {
    pub(super) fn watch_request(&self) -> WatchSkillsRequest {
        WatchSkillsRequest {
            selected_capability_roots: self.roots.clone(),
            product: self.product.clone(),
            view: self.view.into(),
            bookmark_interval: self.bookmark_interval.try_into().ok(),
            ..WatchSkillsRequest::default()
        }
    }
}
