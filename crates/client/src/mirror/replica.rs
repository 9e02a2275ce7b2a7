//! Applies the events of one stream to a copy of the catalog. The events are not trusted: an event
//! of another root, out of order, or over the size limit ends the stream. Has no I/O.
//!
//! The copy offers its catalogs to the next stream, so that the daemon need not send them again. It
//! computes their digests itself: another daemon may serve the next stream.

use super::catalog::CatalogRoot;
use super::catalog_sharing::CatalogSharing;
use super::root_contents::{ENTRY_OVERHEAD_BYTES, RootContents, message_bytes};
use super::root_readiness::RootReadiness;
use super::{MirrorCatalog, MirrorSelection};
use crate::pages::{is_plugin_of_root, is_skill_of_root};
use caproot_core::proto::caproot::v1::watch_skills_response::Event;
use caproot_core::proto::caproot::v1::{
    Bookmark, DiagnosticList, KnownCatalog, RootState, RootStatus, SkillDelta, Synced,
    WatchSkillsResponse,
};
use std::collections::HashMap;
use std::sync::Arc;

/// Copy of the catalog to which events are applied.
#[derive(Debug)]
pub struct MirrorReplica {
    /// Index of each selected root in the selection, by id.
    root_indexes: HashMap<String, usize>,
    /// State of each selected root. The state of a root that is selected twice is at its first
    /// index.
    roots: Vec<RootReplica>,
    max_bytes: usize,
    /// Whether only a `reset` is allowed next, because there is no complete state.
    needs_reset: bool,
    /// Catalog of the last complete state.
    complete: Arc<MirrorCatalog>,
    /// Whether there was a complete state.
    has_state: bool,
    /// Changes since the last complete state.
    pending: IncompleteState,
    /// Catalogs of other mirrors, if the mirror shares them.
    pub(super) sharing: Option<CatalogSharing>,
}

/// Changes since the last complete state.
#[derive(Debug, Default)]
struct IncompleteState {
    /// Whether an event was applied.
    is_dirty: bool,
    /// Whether the changes replace the whole state.
    is_reset: bool,
    /// Reason of each removal since the last reset, by package.
    removed: HashMap<String, i32>,
    /// Size of `removed`.
    removed_bytes: usize,
}

#[derive(Debug, Default)]
struct RootReplica {
    id: Arc<str>,
    status: Option<RootStatus>,
    contents: Arc<RootContents>,
    /// Contents of the last complete state.
    completed: Arc<RootContents>,
    /// Contents of the last complete state in which the root was ready.
    last_ready: Option<Arc<RootContents>>,
    /// Contents to which the current stream may refer until the root is first ready.
    offered: Option<Arc<RootContents>>,
    /// Readiness that the current stream sent.
    readiness: Arc<RootReadiness>,
    /// Readiness of the last complete state.
    completed_readiness: Arc<RootReadiness>,
}

impl RootReplica {
    /// Discards the contents for a `reset`.
    fn reset(&mut self) {
        self.contents = Arc::default();
        self.status = None;
        self.readiness = Arc::default();
    }

    /// Takes the offered contents, whose digest the daemon sent.
    fn restore(&mut self, digest: &str) -> Result<(), &'static str> {
        let offered = self
            .offered
            .take()
            .filter(|offered| offered.digest() == digest);
        self.contents = offered.ok_or(
            "the daemon says that a root is unchanged, but the mirror does not hold its catalog",
        )?;
        Ok(())
    }

    /// Offers contents to the next stream: the given ones, or those of the last complete state in
    /// which the root was ready.
    fn offer(&mut self, contents: Option<Arc<RootContents>>) -> Option<KnownCatalog> {
        self.offered = contents.or_else(|| self.last_ready.clone());
        let catalog_digest = self.offered.as_ref()?.digest().to_owned();
        Some(KnownCatalog {
            root_id: self.id.to_string(),
            catalog_digest,
        })
    }

    fn is_ready(&self) -> bool {
        self.status
            .as_ref()
            .is_none_or(|status| status.state() == RootState::Ready)
    }

    /// Ends a state. Returns whether the contents are those of the last complete state.
    fn complete(&mut self, is_reset: bool) -> bool {
        let mut is_same = Arc::ptr_eq(&self.contents, &self.completed);
        // A reset sends everything again, and users take another `Arc` for a change.
        if !is_same && is_reset && self.contents == self.completed {
            self.contents = self.completed.clone();
            is_same = true;
        }
        self.completed = self.contents.clone();
        is_same &= !self.has_new_readiness();
        self.completed_readiness = self.readiness.clone();
        if self.is_ready() {
            self.last_ready = Some(self.contents.clone());
        }
        is_same
    }

    fn has_new_readiness(&self) -> bool {
        self.readiness != self.completed_readiness
    }

    fn bytes(&self) -> usize {
        self.contents.bytes()
            + self.readiness.bytes()
            + self.status.as_ref().map_or(0, message_bytes)
    }
}

/// Complete state of a stream.
// Only `caproot watch` reads all fields.
#[derive(Debug)]
pub struct MirrorUpdate {
    /// Start of the daemon.
    pub epoch: Arc<str>,
    /// Revision of that start.
    pub revision: u64,
    /// Resume token of this state.
    pub token: Arc<str>,
    /// Catalog of this state. If nothing changed, the same `Arc` as in the last state.
    pub catalog: Arc<MirrorCatalog>,
    /// Whether the daemon sent changes since the last state.
    pub changed: bool,
    /// Whether the state began with a `reset`. Then `removed` is empty.
    pub is_reset: bool,
    /// Whether the state is a bookmark.
    pub is_bookmark: bool,
    /// Reason of each removal since the last state, by package.
    pub removed: HashMap<String, i32>,
}

impl MirrorReplica {
    /// Creates an empty copy of the selected roots.
    #[must_use]
    pub fn new(selection: &MirrorSelection) -> Self {
        let mut root_indexes = HashMap::new();
        let mut roots = Vec::new();
        for (index, root) in selection.roots.iter().enumerate() {
            root_indexes.entry(root.id.clone()).or_insert(index);
            roots.push(RootReplica {
                id: root.id.as_str().into(),
                ..RootReplica::default()
            });
        }

        Self {
            root_indexes,
            roots,
            max_bytes: selection.max_bytes,
            needs_reset: true,
            complete: Arc::default(),
            has_state: false,
            pending: IncompleteState::default(),
            sharing: None,
        }
    }

    /// Records that the stream was lost. The next stream resumes from the last complete state or
    /// starts with a `reset`.
    pub(super) fn handle_disconnect(&mut self) {
        self.needs_reset |= self.pending.is_dirty;
        // The next stream sends the readiness again.
        for root in &mut self.roots {
            root.readiness = Arc::default();
        }
    }

    /// Returns the catalogs for the request of the next stream: these contents by root id, or else
    /// those of the last complete state in which each root was ready. The next stream may refer to them
    /// until each root is first ready.
    pub(super) fn offer_catalogs(
        &mut self,
        contents: &HashMap<String, Arc<RootContents>>,
    ) -> Vec<KnownCatalog> {
        let root_indexes = self.root_indexes.iter();
        root_indexes
            .filter_map(|(id, at)| self.roots[*at].offer(contents.get(id).cloned()))
            .collect()
    }

    /// Returns the contents of the last complete state, if the root was ready and they have the
    /// digest of this status.
    pub(super) fn held_root(&self, status: &RootStatus) -> Option<&Arc<RootContents>> {
        let root = &self.roots[*self.root_indexes.get(&status.id)?];
        root.last_ready
            .as_ref()
            .filter(|contents| contents.digest() == status.catalog_digest)
    }

    /// Takes a state that was listed: the status of each root, in the order of the selection, with
    /// its contents. The next `synced` completes the state. Returns whether the state was taken: its
    /// roots must be the selected roots, and its size within the limit.
    pub(super) fn adopt_state(&mut self, state: Vec<(RootStatus, Arc<RootContents>)>) -> bool {
        let bytes: usize = state
            .iter()
            .map(|(s, c)| c.bytes() + message_bytes(s))
            .sum();
        let ids = state.iter().map(|(status, _)| status.id.as_str());
        if bytes > self.max_bytes || !ids.eq(self.roots.iter().map(|root| &*root.id)) {
            return false;
        }

        for (root, (status, contents)) in self.roots.iter_mut().zip(state) {
            (root.status, root.contents, root.offered) = (Some(status), contents, None);
        }
        self.begin_state();
        true
    }

    /// Begins a state that replaces the whole state before.
    fn begin_state(&mut self) {
        self.needs_reset = false;
        self.pending = IncompleteState {
            is_dirty: true,
            is_reset: true,
            ..IncompleteState::default()
        };
    }

    /// Applies an event. Returns the state that the event completes. The error is the reason to end
    /// the stream.
    pub fn apply_event(
        &mut self,
        message: WatchSkillsResponse,
    ) -> Result<Option<MirrorUpdate>, String> {
        if self.needs_reset && !matches!(message.event, Some(Event::Reset(_))) {
            return Err("the daemon resumed from an incomplete state".to_owned());
        }

        // An event that a newer daemon defines has no meaning here.
        let Some(event) = message.event else {
            return Ok(None);
        };
        let is_bookmark = matches!(event, Event::Bookmark(_));
        match event {
            Event::Reset(_) => {
                self.roots.iter_mut().for_each(RootReplica::reset);
                self.begin_state();
            }
            Event::RootStatus(status) => self.apply_status(status)?,
            Event::Delta(delta) => self.apply_delta(delta)?,
            Event::Diagnostics(list) => self.apply_diagnostics(list)?,
            Event::Readiness(list) => {
                let index = self.root_index(&list.root_id)?;
                Arc::make_mut(&mut self.roots[index].readiness).apply(list)?;
            }
            Event::Synced(Synced { resume_token }) | Event::Bookmark(Bookmark { resume_token }) => {
                let pending = std::mem::take(&mut self.pending);
                let is_changed = pending.is_dirty
                    || self.has_state && self.roots.iter().any(RootReplica::has_new_readiness);
                let changed = is_changed && self.complete_state(pending.is_reset);

                return Ok(Some(MirrorUpdate {
                    epoch: message.epoch.into(),
                    revision: message.revision,
                    token: resume_token.into(),
                    catalog: self.complete.clone(),
                    changed,
                    is_reset: pending.is_reset,
                    is_bookmark,
                    removed: pending.removed,
                }));
            }
        }

        if self.bytes() + self.pending.removed_bytes > self.max_bytes {
            let most = self.max_bytes;
            return Err(format!(
                "the catalog exceeds the mirror's limit of {most} bytes of memory; select fewer roots, \
                 or raise `max_bytes`"
            ));
        }
        Ok(None)
    }

    /// Completes the state of the events so far. Returns whether the daemon sent changes, or after a
    /// `reset` whether the state differs from the last complete state.
    fn complete_state(&mut self, is_reset: bool) -> bool {
        let had_state = std::mem::replace(&mut self.has_state, true);
        let mut is_same = had_state && is_reset && self.statuses().eq(self.complete.roots());
        for root in &mut self.roots {
            is_same &= root.complete(is_reset);
            if let Some((sharing, status)) = self.sharing.as_mut().zip(root.status.as_ref()) {
                sharing.share(status, &mut root.contents);
                // These references must not keep contents in memory that sharing has replaced.
                root.completed = root.contents.clone();
                root.last_ready = root.last_ready.take().map(|_| root.contents.clone());
            }
        }
        if !is_same {
            self.complete = Arc::new(self.catalog());
        }
        !is_same
    }

    /// Returns the catalog of the events so far.
    fn catalog(&self) -> MirrorCatalog {
        let roots = self.roots.iter().map(|root| CatalogRoot {
            id: root.id.clone(),
            contents: root.contents.clone(),
            readiness: root.readiness.clone(),
        });
        MirrorCatalog {
            statuses: self.statuses().cloned().collect(),
            roots: roots.collect(),
        }
    }

    fn bytes(&self) -> usize {
        self.roots.iter().map(RootReplica::bytes).sum()
    }

    fn statuses(&self) -> impl Iterator<Item = &RootStatus> {
        self.roots.iter().filter_map(|root| root.status.as_ref())
    }

    fn root_index(&self, id: &str) -> Result<usize, &'static str> {
        let index = self.root_indexes.get(id).copied();
        index.ok_or("the daemon sent a root that was not selected")
    }

    fn apply_status(&mut self, mut status: RootStatus) -> Result<(), &'static str> {
        self.pending.is_dirty = true;
        let index = self.root_index(&status.id)?;
        let root = &mut self.roots[index];
        // The flag is about this stream only, and must not make equal states differ.
        if std::mem::take(&mut status.unchanged) {
            root.restore(&status.catalog_digest)?;
        }
        if status.state() == RootState::Ready {
            root.offered = None;
        }
        root.status = Some(status);
        Ok(())
    }

    fn apply_diagnostics(&mut self, list: DiagnosticList) -> Result<(), &'static str> {
        self.pending.is_dirty = true;
        let index = self.root_index(&list.root_id)?;
        let contents = RootContents::make_mut(&mut self.roots[index].contents);
        contents.add_diagnostics(list.diagnostics, list.continued);
        Ok(())
    }

    fn apply_delta(&mut self, delta: SkillDelta) -> Result<(), &'static str> {
        self.pending.is_dirty = true;
        let index = self.root_index(&delta.root_id)?;
        let contents = RootContents::make_mut(&mut self.roots[index].contents);

        for removed in delta.removed {
            if contents.remove_skill(&removed.package) {
                let bytes = removed.package.len() + ENTRY_OVERHEAD_BYTES;
                let known = self.pending.removed.insert(removed.package, removed.reason);
                if known.is_none() {
                    self.pending.removed_bytes += bytes;
                }
            }
        }

        for skill in delta.upserted {
            if !is_skill_of_root(&skill, &delta.root_id) {
                return Err(
                    "the daemon lists a skill below another root, or with an invalid handle",
                );
            }
            contents.insert_skill(skill);
        }

        for package in &delta.removed_plugins {
            contents.remove_plugin(package);
        }
        for plugin in delta.upserted_plugins {
            if !is_plugin_of_root(&plugin, &delta.root_id) {
                return Err(
                    "the daemon lists a plugin below another root, or with an invalid name or handle",
                );
            }
            contents.insert_plugin(plugin);
        }

        if let Some(list) = delta.marketplaces {
            contents.set_marketplaces(list.marketplaces);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
