//! Applies the events of one stream to a copy of the catalog. The events are not trusted: an event
//! of another root, out of order, or over the size limit ends the stream. Has no I/O.
//!
//! The copy offers its catalogs to the next stream, so that the daemon need not send them again. It
//! computes their digests itself: another daemon may serve the next stream.

use super::root_contents::{ENTRY_OVERHEAD_BYTES, RootContents, message_bytes};
use super::{MirrorCatalog, MirrorSelection};
use crate::model::handle::is_of_root;
use crate::proto::caproot::v1::watch_skills_response::Event;
use crate::proto::caproot::v1::{
    Bookmark, DiagnosticList, KnownCatalog, RootStatus, Skill, SkillDelta, Synced,
    WatchSkillsResponse,
};
use std::collections::HashMap;
use std::sync::Arc;

/// Copy of the catalog to which events are applied. Keeps each skill as an `S`.
#[derive(Debug)]
pub(crate) struct MirrorReplica<S> {
    /// Index of each selected root in the selection, by id.
    root_indexes: HashMap<String, usize>,
    /// State of each selected root. The state of a root that is selected twice is at its first
    /// index.
    roots: Vec<RootReplica<S>>,
    /// Converts a skill. The number is the index of its root in the selection.
    convert: fn(usize, Skill) -> S,
    max_bytes: usize,
    expected: ExpectedEvent,
    /// Catalog of the last complete state.
    complete: Arc<MirrorCatalog<S>>,
    /// Whether there was a complete state.
    has_state: bool,
    /// Changes since the last complete state.
    pending: IncompleteState,
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

/// Next event that is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExpectedEvent {
    /// Only a `reset`: there is no complete state.
    Reset,
    /// Every event.
    Any,
}

#[derive(Debug)]
struct RootReplica<S> {
    status: Option<RootStatus>,
    contents: RootContents<S>,
    /// Whether `contents` are those of the last complete state.
    is_complete: bool,
    /// Contents of the last complete state, after a `reset` and until `synced`. `None` if
    /// `contents` has them, or if an event changed them before the `reset`.
    earlier: Option<RootContents<S>>,
    /// Digest of the contents of the last complete state, if the current stream may refer to them.
    offered: Option<String>,
}

impl<S> Default for RootReplica<S> {
    fn default() -> Self {
        Self {
            status: None,
            contents: RootContents::default(),
            is_complete: true,
            earlier: None,
            offered: None,
        }
    }
}

impl<S> RootReplica<S> {
    /// Discards the contents for a `reset`, and keeps those of the last complete state.
    fn reset(&mut self) {
        let contents = std::mem::take(&mut self.contents);
        if std::mem::take(&mut self.is_complete) {
            self.earlier = Some(contents);
        }
        self.status = None;
    }

    /// Takes the contents of the last complete state, whose digest the daemon sent.
    fn restore(&mut self, digest: &str) -> Result<(), String> {
        let is_offered = self.offered.take().is_some_and(|offered| offered == digest);
        let earlier = self.earlier.take().filter(|_| is_offered);
        self.contents = earlier.ok_or(
            "the daemon says that a root is unchanged, but the mirror does not hold its catalog",
        )?;
        self.is_complete = true;
        Ok(())
    }

    /// Returns the contents to change them.
    fn contents_mut(&mut self) -> &mut RootContents<S> {
        self.is_complete = false;
        &mut self.contents
    }

    /// Offers the contents of the last complete state, if the root has them. Returns their digest.
    fn offer(&mut self) -> Option<String> {
        let complete = if self.is_complete { Some(&self.contents) } else { self.earlier.as_ref() };
        let offered = self.offered.take();
        self.offered = complete.map(|complete| offered.unwrap_or_else(|| complete.digest()));
        self.offered.clone()
    }

    /// Ends a state. Returns whether the contents are those of the last complete state.
    fn complete(&mut self) -> bool {
        let earlier = self.earlier.take();
        let was_empty = earlier.is_some_and(|earlier| earlier.is_empty());
        std::mem::replace(&mut self.is_complete, true) || (was_empty && self.contents.is_empty())
    }

    fn bytes(&self) -> usize {
        self.contents.bytes() + self.status.as_ref().map_or(0, message_bytes)
    }
}

/// Complete state of a stream.
// Only `caproot watch` reads all fields.
#[cfg_attr(not(feature = "cli"), allow(dead_code))]
#[derive(Debug)]
pub(crate) struct MirrorUpdate<S = Skill> {
    /// Start of the daemon.
    pub(crate) epoch: Arc<str>,
    /// Revision of that start.
    pub(crate) revision: u64,
    /// Resume token of this state.
    pub(crate) token: Arc<str>,
    /// Catalog of this state. If nothing changed, the same `Arc` as in the last state.
    pub(crate) catalog: Arc<MirrorCatalog<S>>,
    /// Whether the daemon sent changes since the last state.
    pub(crate) changed: bool,
    /// Whether the state began with a `reset`. Then `removed` is empty.
    pub(crate) is_reset: bool,
    /// Whether the state is a bookmark.
    pub(crate) is_bookmark: bool,
    /// Reason of each removal since the last state, by package.
    pub(crate) removed: HashMap<String, i32>,
}

impl<S> MirrorReplica<S> {
    pub(crate) fn new(selection: &MirrorSelection, convert: fn(usize, Skill) -> S) -> Self {
        let mut root_indexes = HashMap::new();
        for (index, root) in selection.roots.iter().enumerate() {
            root_indexes.entry(root.id.clone()).or_insert(index);
        }
        Self {
            root_indexes,
            roots: selection.roots.iter().map(|_| RootReplica::default()).collect(),
            convert,
            max_bytes: selection.max_bytes,
            expected: ExpectedEvent::Reset,
            complete: Arc::default(),
            has_state: false,
            pending: IncompleteState::default(),
        }
    }

    /// Records that the stream was lost. The next stream resumes from the last complete state or
    /// starts with a `reset`.
    pub fn handle_disconnect(&mut self) {
        if self.pending.is_dirty {
            self.expected = ExpectedEvent::Reset;
        }
    }

    /// Returns the catalogs of the last complete state, for the request of the next stream. The next
    /// stream may refer to them until its first `synced`.
    pub fn offer_catalogs(&mut self) -> Vec<KnownCatalog> {
        let mut known = Vec::new();
        for (root_id, index) in self.root_indexes.iter().filter(|_| self.has_state) {
            let digest = self.roots[*index].offer();
            known.extend(
                digest.map(|catalog_digest| KnownCatalog {
                    root_id: root_id.clone(),
                    catalog_digest,
                }),
            );
        }
        known
    }

    /// Applies an event. Returns the state that the event completes. The error is the reason to end
    /// the stream.
    pub(crate) fn apply_event(
        &mut self,
        message: WatchSkillsResponse,
    ) -> Result<Option<MirrorUpdate<S>>, String> {
        let begins = matches!(message.event, Some(Event::Reset(_)));
        let is_bookmark = matches!(message.event, Some(Event::Bookmark(_)));
        if self.expected == ExpectedEvent::Reset && !begins {
            return Err("the daemon resumed from an incomplete state".to_owned());
        }
        // An event that a newer daemon defines has no meaning here.
        let Some(event) = message.event else { return Ok(None) };
        match event {
            Event::Reset(_) => {
                self.roots.iter_mut().for_each(RootReplica::reset);
                self.expected = ExpectedEvent::Any;
                self.pending = IncompleteState {
                    is_dirty: true,
                    is_reset: true,
                    ..IncompleteState::default()
                };
            }
            Event::RootStatus(status) => self.apply_status(status)?,
            Event::Delta(delta) => self.apply_delta(delta)?,
            Event::Diagnostics(list) => self.apply_diagnostics(list)?,
            Event::Synced(Synced { resume_token }) | Event::Bookmark(Bookmark { resume_token }) => {
                let pending = std::mem::take(&mut self.pending);
                let changed = pending.is_dirty && self.complete_state(pending.is_reset);
                self.roots.iter_mut().for_each(|root| root.offered = None);
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
            return Err(format!("the catalog exceeds the mirror's limit of {most} bytes"));
        }
        Ok(None)
    }

    /// Completes the state of the events so far. Returns whether the daemon sent changes, or after a
    /// `reset` whether the state differs from the last complete state.
    fn complete_state(&mut self, is_reset: bool) -> bool {
        let had_state = std::mem::replace(&mut self.has_state, true);
        let mut is_same = had_state && is_reset && self.statuses().eq(self.complete.roots());
        for root in &mut self.roots {
            is_same &= root.complete();
        }
        if !is_same {
            self.complete = Arc::new(self.catalog());
        }
        !is_same
    }

    /// Returns the catalog of the events so far.
    fn catalog(&self) -> MirrorCatalog<S> {
        let contents = || self.roots.iter().map(|root| &root.contents);
        let skills = contents().flat_map(RootContents::skills);
        let plugins = contents().flat_map(RootContents::plugins).cloned().collect();
        let lists = contents().flat_map(|root| root.marketplaces().to_vec()).collect();
        let diagnostics = contents().flat_map(|root| root.diagnostics().to_vec()).collect();
        MirrorCatalog::new(
            skills,
            (plugins, lists),
            self.statuses().cloned().collect(),
            diagnostics,
        )
    }

    fn bytes(&self) -> usize {
        self.roots.iter().map(RootReplica::bytes).sum()
    }

    fn statuses(&self) -> impl Iterator<Item = &RootStatus> {
        self.roots.iter().filter_map(|root| root.status.as_ref())
    }

    fn root_mut(&mut self, id: &str) -> Result<&mut RootReplica<S>, String> {
        let index =
            self.root_indexes.get(id).ok_or("the daemon sent a root that was not selected")?;
        Ok(&mut self.roots[*index])
    }

    fn apply_status(&mut self, mut status: RootStatus) -> Result<(), String> {
        self.pending.is_dirty = true;
        let root = self.root_mut(&status.id)?;
        if std::mem::take(&mut status.unchanged) {
            root.restore(&status.catalog_digest)?;
        }
        root.status = Some(status);
        Ok(())
    }

    fn apply_diagnostics(&mut self, list: DiagnosticList) -> Result<(), String> {
        self.pending.is_dirty = true;
        self.root_mut(&list.root_id)?
            .contents_mut()
            .add_diagnostics(list.diagnostics, list.continued);
        Ok(())
    }

    fn apply_delta(&mut self, delta: SkillDelta) -> Result<(), String> {
        self.pending.is_dirty = true;
        let selected = self.root_indexes.get(&delta.root_id).copied();
        let index = selected.ok_or("the daemon sent a root that was not selected")?;
        let contents = self.roots[index].contents_mut();
        for removed in delta.removed {
            if contents.remove_skill(&removed.package) {
                let bytes = removed.package.len() + ENTRY_OVERHEAD_BYTES;
                if self.pending.removed.insert(removed.package, removed.reason).is_none() {
                    self.pending.removed_bytes += bytes;
                }
            }
        }
        for skill in delta.upserted {
            let owner = skill.authority.as_ref().map(|authority| authority.id.as_str());
            let is_its_own = owner == Some(delta.root_id.as_str())
                && is_of_root(&skill.package, &delta.root_id)
                && is_of_root(&skill.main_resource, &delta.root_id);
            if !is_its_own {
                return Err("the daemon lists a skill below another root".to_owned());
            }
            let convert = self.convert;
            contents.insert_skill(skill, |skill| convert(index, skill));
        }
        for package in &delta.removed_plugins {
            contents.remove_plugin(package);
        }
        for plugin in delta.upserted_plugins {
            if !is_of_root(&plugin.package, &delta.root_id) {
                return Err("the daemon lists a plugin below another root".to_owned());
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
