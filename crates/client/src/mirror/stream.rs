//! Stream of complete states of one executor's catalog, for a single consumer that reads each event.

use super::MirrorSelection;
use super::catalog_sharing::{SharingExecutor, has_digest};
use super::replica::{MirrorReplica, MirrorUpdate};
use super::retry_requests::RetryRequests;
use crate::call::{CallError, Client};
use crate::watch::{SkillWatch, WatchMessage};
use caproot_core::proto::caproot::v1::{
    ListSkillsRequest, ListSkillsResponse, Skill, WatchSkillsRequest, WatchSkillsResponse,
};
use std::sync::Arc;
use std::time::Duration;
use tonic::{Code, Status};

/// Deadline of the call for the digests. A root whose first scan takes longer is transferred without
/// a look at the shared catalogs.
const DIGESTS_TIMEOUT: Duration = Duration::from_secs(5);

/// Watch that reconnects, and the copy of the catalog to which its events are applied. Dropping it
/// ends the watch.
#[derive(Debug)]
pub struct MirrorStream<S = Skill> {
    client: Client,
    watch: SkillWatch,
    replica: MirrorReplica<S>,
    /// Epoch of the last complete state.
    epoch: Arc<str>,
}

impl MirrorStream {
    /// Starts to watch, and shares the catalogs with other mirrors.
    pub(super) fn start_sharing(
        client: &Client,
        selection: &MirrorSelection,
        executor: &SharingExecutor,
    ) -> Self {
        let stream = Self::start(client, selection, |_, skill| skill);
        let sharing = executor.start_stream(&selection.product, selection.view);
        Self {
            replica: stream.replica.with_sharing(sharing),
            ..stream
        }
    }
}

impl<S> MirrorStream<S> {
    /// Sets the requests that end a delay before a retry early.
    pub(super) fn set_retry_requests(&mut self, requests: Arc<RetryRequests>) {
        self.watch.set_retry_requests(requests);
    }

    /// Starts to watch. The copy has each skill as `convert` returns it, for the index of the
    /// skill's root in the selection.
    pub fn start(
        client: &Client,
        selection: &MirrorSelection,
        convert: fn(usize, Skill) -> S,
    ) -> Self {
        let watch = client.watch_skills(selection.watch_request());
        let replica = MirrorReplica::new(selection, convert);
        Self {
            client: client.clone(),
            watch,
            replica,
            epoch: Arc::from(""),
        }
    }

    /// Returns the next message. An error is final: the daemon rejected the watch. Cancel-safe.
    pub async fn next(&mut self) -> Result<WatchMessage, CallError> {
        if self.watch.is_closed() && self.replica.sharing_mut().is_some() {
            self.watch.wait_for_retry().await;
            // The box is gone once the stream opens, so that a mirror's future stays small.
            if let Err(status) = Box::pin(self.take_shared_catalogs()).await {
                return self.watch.record_failure(status);
            }
        }

        let message = self.watch.next_metered().await?;
        match &message {
            WatchMessage::Event(_) => {
                if let Some(sharing) = self.replica.sharing_mut() {
                    sharing.record_progress();
                }
            }
            WatchMessage::Lost { .. } => {
                self.replica.handle_disconnect();
                if let Some(sharing) = self.replica.sharing_mut() {
                    sharing.end_transfers();
                }
                let known = self.replica.offer_catalogs();
                self.watch.set_known_catalogs(known);
            }
        }
        Ok(message)
    }

    /// Asks the daemon for the digests of its catalogs, and prepares a stream without the catalogs
    /// that this mirror or another one holds. The error is a loss of the executor.
    async fn take_shared_catalogs(&mut self) -> Result<(), Status> {
        // A dial may wait for its turn. The time limit of the digests begins afterwards.
        self.client.wait_for_connection().await?;
        let listed = match self.list_digests().await {
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
        let missing: Vec<_> = listed
            .roots
            .iter()
            .filter(|root| has_digest(root) && replica.held_root(root).is_none())
            .cloned()
            .collect();
        let Some(sharing) = replica.sharing_mut() else {
            return Ok(());
        };
        let shared = sharing.obtain(missing.iter()).await;

        let state: Option<Vec<_>> = listed
            .roots
            .iter()
            .filter(|root| has_digest(root))
            .map(|root| {
                let contents = replica.held_root(root).or_else(|| shared.get(&root.id))?;
                Some((root.clone(), contents.clone()))
            })
            .collect();
        // The token resumes from the listed state.
        if let Some(state) = state.filter(|_| !listed.resume_token.is_empty())
            && replica.adopt_state(state)
        {
            self.watch.set_known_catalogs(Vec::new());
            self.watch.set_resume_token(listed.resume_token);
            return Ok(());
        }

        self.watch.set_resume_token(String::new());
        self.watch
            .set_known_catalogs(replica.offer_contents(&shared));
        Ok(())
    }

    async fn list_digests(&self) -> Result<ListSkillsResponse, Status> {
        let request = self.watch.request();
        let request = ListSkillsRequest {
            selected_capability_roots: request.selected_capability_roots.clone(),
            product: request.product.clone(),
            view: request.view,
            roots_only: true,
            ..ListSkillsRequest::default()
        };
        let states = self.client.list_root_states_once(request, DIGESTS_TIMEOUT);
        states.await
    }

    /// Applies an event of [`MirrorStream::next`] to the copy. Returns the state that the event
    /// completes. The error is final: the daemon violated the protocol, or the catalog exceeds the
    /// size limit.
    pub fn apply_event(
        &mut self,
        event: WatchSkillsResponse,
    ) -> Result<Option<MirrorUpdate<S>>, String> {
        let outcome = self.replica.apply_event(event);
        self.watch.release_event();
        let update = outcome?;
        if let Some(update) = &update {
            self.epoch = update.epoch.clone();
            if let Some(sharing) = self.replica.sharing_mut() {
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
