//! Applies the events of one stream to a copy of the catalog. The events are not trusted: an event
//! of another root, out of order, or over the size limit ends the stream. Has no I/O.

use super::{MirrorCatalog, MirrorSelection};
use crate::client::handle::root_id;
use crate::proto::caproot::v1::watch_skills_response::Event;
use crate::proto::caproot::v1::{
    Bookmark, Diagnostic, DiagnosticList, Marketplace, Plugin, RootStatus, Skill, SkillDelta,
    Synced, WatchSkillsResponse,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Size of an entry in addition to its own bytes.
const ENTRY_OVERHEAD_BYTES: usize = 256;

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
    /// Name of each skill by package. Name and package are the key in `RootReplica::skills`.
    skill_names: HashMap<String, String>,
    bytes: usize,
    max_bytes: usize,
    expected: ExpectedEvent,
    /// Catalog of the last complete state.
    complete: Arc<MirrorCatalog<S>>,
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
    /// By name and package, in list order.
    skills: BTreeMap<(String, String), StoredSkill<S>>,
    /// By package.
    plugins: BTreeMap<String, Arc<Plugin>>,
    marketplaces: Vec<Marketplace>,
    status: Option<RootStatus>,
    diagnostics: Vec<Diagnostic>,
}

#[derive(Debug)]
struct StoredSkill<S> {
    skill: Arc<S>,
    bytes: usize,
}

impl<S> Default for RootReplica<S> {
    fn default() -> Self {
        Self {
            skills: BTreeMap::new(),
            plugins: BTreeMap::new(),
            marketplaces: Vec::new(),
            status: None,
            diagnostics: Vec::new(),
        }
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
    /// Whether the daemon sent the whole state. Then `removed` is empty.
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
            skill_names: HashMap::new(),
            bytes: 0,
            max_bytes: selection.max_bytes,
            expected: ExpectedEvent::Reset,
            complete: Arc::default(),
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
                self.roots.iter_mut().for_each(|root| *root = RootReplica::default());
                self.skill_names.clear();
                (self.bytes, self.expected) = (0, ExpectedEvent::Any);
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
                if pending.is_dirty {
                    self.complete = Arc::new(self.catalog());
                }
                return Ok(Some(MirrorUpdate {
                    epoch: message.epoch.into(),
                    revision: message.revision,
                    token: resume_token.into(),
                    catalog: self.complete.clone(),
                    changed: pending.is_dirty,
                    is_reset: pending.is_reset,
                    is_bookmark,
                    removed: pending.removed,
                }));
            }
        }
        if self.bytes + self.pending.removed_bytes > self.max_bytes {
            let most = self.max_bytes;
            return Err(format!("the catalog exceeds the mirror's limit of {most} bytes"));
        }
        Ok(None)
    }

    /// Returns the catalog of the events so far.
    fn catalog(&self) -> MirrorCatalog<S> {
        let skills = self.roots.iter().flat_map(|root| &root.skills);
        let skills = skills.map(|((_, package), stored)| (package.as_str(), stored.skill.clone()));
        let roots = self.roots.iter().filter_map(|root| root.status.clone()).collect();
        let diagnostics = self.roots.iter().flat_map(|root| root.diagnostics.clone()).collect();
        let plugins = self.roots.iter().flat_map(|root| root.plugins.values().cloned()).collect();
        let lists = self.roots.iter().flat_map(|root| root.marketplaces.clone()).collect();
        MirrorCatalog::new(skills, (plugins, lists), roots, diagnostics)
    }

    fn root_mut(&mut self, id: &str) -> Result<&mut RootReplica<S>, String> {
        let index =
            self.root_indexes.get(id).ok_or("the daemon sent a root that was not selected")?;
        Ok(&mut self.roots[*index])
    }

    fn apply_status(&mut self, status: RootStatus) -> Result<(), String> {
        self.pending.is_dirty = true;
        let added = message_bytes(&status);
        let before = self.root_mut(&status.id)?.status.replace(status);
        self.adjust_bytes(added, before.as_ref().map_or(0, message_bytes));
        Ok(())
    }

    fn apply_diagnostics(&mut self, list: DiagnosticList) -> Result<(), String> {
        self.pending.is_dirty = true;
        let added: usize = list.diagnostics.iter().map(message_bytes).sum();
        let root = self.root_mut(&list.root_id)?;
        let mut gone = 0;
        if !list.continued {
            gone = root.diagnostics.iter().map(message_bytes).sum();
            root.diagnostics.clear();
        }
        root.diagnostics.extend(list.diagnostics);
        self.adjust_bytes(added, gone);
        Ok(())
    }

    fn apply_delta(&mut self, delta: SkillDelta) -> Result<(), String> {
        self.pending.is_dirty = true;
        let selected = self.root_indexes.get(&delta.root_id).copied();
        let index = selected.ok_or("the daemon sent a root that was not selected")?;
        for removed in delta.removed {
            if self.remove_skill(&delta.root_id, &removed.package)? {
                let bytes = removed.package.len() + ENTRY_OVERHEAD_BYTES;
                if self.pending.removed.insert(removed.package, removed.reason).is_none() {
                    self.pending.removed_bytes += bytes;
                }
            }
        }
        for skill in delta.upserted {
            let owner = skill.authority.as_ref().map(|authority| authority.id.as_str());
            let is_its_own = owner == Some(delta.root_id.as_str())
                && root_id(&skill.package).as_deref() == owner
                && root_id(&skill.main_resource).as_deref() == owner;
            if !is_its_own {
                return Err("the daemon lists a skill below another root".to_owned());
            }
            self.remove_skill(&delta.root_id, &skill.package)?;
            let bytes = message_bytes(&skill);
            self.bytes += bytes;
            self.skill_names.insert(skill.package.clone(), skill.name.clone());
            let key = (skill.name.clone(), skill.package.clone());
            let skill = Arc::new((self.convert)(index, skill));
            self.roots[index].skills.insert(key, StoredSkill { skill, bytes });
        }
        self.apply_plugins(&delta.root_id, delta.upserted_plugins, &delta.removed_plugins)?;
        if let Some(list) = delta.marketplaces {
            let added: usize = list.marketplaces.iter().map(message_bytes).sum();
            let gone = &mut self.root_mut(&delta.root_id)?.marketplaces;
            let gone = std::mem::replace(gone, list.marketplaces);
            self.adjust_bytes(added, gone.iter().map(message_bytes).sum());
        }
        Ok(())
    }

    fn apply_plugins(
        &mut self,
        root_id: &str,
        upserted: Vec<Plugin>,
        removed: &[String],
    ) -> Result<(), String> {
        for package in removed {
            let gone = self.root_mut(root_id)?.plugins.remove(package);
            self.adjust_bytes(0, gone.map_or(0, |gone| message_bytes(&*gone)));
        }
        for plugin in upserted {
            if self::root_id(&plugin.package).as_deref() != Some(root_id) {
                return Err("the daemon lists a plugin below another root".to_owned());
            }
            let added = message_bytes(&plugin);
            let before =
                self.root_mut(root_id)?.plugins.insert(plugin.package.clone(), plugin.into());
            self.adjust_bytes(added, before.map_or(0, |before| message_bytes(&*before)));
        }
        Ok(())
    }

    fn adjust_bytes(&mut self, added: usize, gone: usize) {
        self.bytes = (self.bytes + added).saturating_sub(gone);
    }

    /// Removes a skill. Returns whether the copy had the skill.
    fn remove_skill(&mut self, root: &str, package: &str) -> Result<bool, String> {
        let Some((package, name)) = self.skill_names.remove_entry(package) else {
            return Ok(false);
        };
        let gone = self.root_mut(root)?.skills.remove(&(name, package));
        let gone = gone.ok_or("the daemon removes a skill of another root")?;
        self.adjust_bytes(0, gone.bytes);
        Ok(true)
    }
}

fn message_bytes(message: &impl prost::Message) -> usize {
    message.encoded_len() + ENTRY_OVERHEAD_BYTES
}

#[cfg(test)]
mod tests;
