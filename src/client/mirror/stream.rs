//! Stream of complete states of one executor's catalog, for a single consumer that reads each event.

use super::MirrorSelection;
use super::replica::{MirrorReplica, MirrorUpdate};
use crate::client::call::{CallError, Client};
use crate::client::watch::{SkillWatch, WatchMessage};
use crate::proto::caproot::v1::{Skill, WatchSkillsRequest, WatchSkillsResponse};

/// Watch that reconnects, and the copy of the catalog to which its events are applied. Dropping it
/// ends the watch.
#[derive(Debug)]
pub(crate) struct MirrorStream<S = Skill> {
    watch: SkillWatch,
    replica: MirrorReplica<S>,
}

impl<S> MirrorStream<S> {
    /// Starts to watch. The copy has each skill as `convert` returns it, for the index of the
    /// skill's root in the selection.
    pub(crate) fn start(
        client: &Client,
        selection: &MirrorSelection,
        convert: fn(usize, Skill) -> S,
    ) -> Self {
        let watch = client.watch_skills(selection.watch_request());
        Self { watch, replica: MirrorReplica::new(selection, convert) }
    }

    /// Returns the next message. An error is final: the daemon rejected the watch. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Result<WatchMessage, CallError> {
        let message = self.watch.next().await?;
        if matches!(message, WatchMessage::Lost { .. }) {
            self.replica.handle_disconnect();
            self.watch.set_known_catalogs(self.replica.offer_catalogs());
        }
        Ok(message)
    }

    /// Applies an event of [`MirrorStream::next`] to the copy. Returns the state that the event
    /// completes. The error is final: the daemon violated the protocol, or the catalog exceeds the
    /// size limit.
    pub(crate) fn apply_event(
        &mut self,
        event: WatchSkillsResponse,
    ) -> Result<Option<MirrorUpdate<S>>, String> {
        self.replica.apply_event(event)
    }

    /// Opens the watch again at the last complete state, so that the daemon sends its current
    /// revision.
    pub fn reopen(&mut self) {
        self.watch.set_known_catalogs(self.replica.offer_catalogs());
        self.watch.reopen();
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
