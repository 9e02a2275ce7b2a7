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

/// Copy of the catalog to which events are applied.
pub(super) struct MirrorReplica {
    /// Index of each selected root, by id.
    root_indexes: HashMap<String, usize>,
    /// State of each selected root.
    roots: Vec<RootReplica>,
    /// Name of each skill by package. Name and package are the key in `RootReplica::skills`.
    skill_names: HashMap<String, String>,
    bytes: usize,
    max_bytes: usize,
    expected: ExpectedEvent,
    /// Whether an event was applied since the last complete state.
    is_dirty: bool,
}

/// Next event that is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExpectedEvent {
    /// Only a `reset`: there is no complete state.
    Reset,
    /// Every event.
    Any,
}

#[derive(Default)]
struct RootReplica {
    /// By name and package, in list order.
    skills: BTreeMap<(String, String), Arc<Skill>>,
    /// By package.
    plugins: BTreeMap<String, Arc<Plugin>>,
    marketplaces: Vec<Marketplace>,
    status: Option<RootStatus>,
    diagnostics: Vec<Diagnostic>,
}

/// Effect of an event.
#[derive(Debug, PartialEq)]
pub(super) enum ReplicaUpdate {
    /// The state is incomplete.
    Partial,
    /// The state is complete at this revision.
    Complete {
        /// Start of the daemon.
        epoch: Arc<str>,
        /// Revision of that start.
        revision: u64,
        /// Resume token of this state.
        token: Arc<str>,
        /// Whether the copy differs from the last complete state.
        changed: bool,
    },
}

impl MirrorReplica {
    pub(super) fn new(selection: &MirrorSelection) -> Self {
        let mut root_indexes = HashMap::new();
        for root in &selection.roots {
            let next = root_indexes.len();
            root_indexes.entry(root.id.clone()).or_insert(next);
        }
        let roots = root_indexes.iter().map(|_| RootReplica::default()).collect();
        Self {
            root_indexes,
            roots,
            skill_names: HashMap::new(),
            bytes: 0,
            max_bytes: selection.max_bytes,
            expected: ExpectedEvent::Reset,
            is_dirty: false,
        }
    }

    /// Records that the stream was lost. The next stream resumes from the last complete state or
    /// starts with a `reset`.
    pub(super) fn handle_disconnect(&mut self) {
        if self.is_dirty {
            self.expected = ExpectedEvent::Reset;
        }
    }

    /// Applies an event. The error is the reason to end the stream.
    pub(super) fn apply_event(
        &mut self,
        message: WatchSkillsResponse,
    ) -> Result<ReplicaUpdate, String> {
        let event = message.event.ok_or("the daemon sent an empty event")?;
        let begins = matches!(event, Event::Reset(_));
        if self.expected == ExpectedEvent::Reset && !begins {
            return Err("the daemon resumed from an incomplete state".to_owned());
        }
        match event {
            Event::Reset(_) => {
                self.roots.iter_mut().for_each(|root| *root = RootReplica::default());
                self.skill_names.clear();
                (self.bytes, self.expected, self.is_dirty) = (0, ExpectedEvent::Any, true);
            }
            Event::RootStatus(status) => self.apply_status(status)?,
            Event::Delta(delta) => self.apply_delta(delta)?,
            Event::Diagnostics(list) => self.apply_diagnostics(list)?,
            Event::Synced(Synced { resume_token }) | Event::Bookmark(Bookmark { resume_token }) => {
                let changed = std::mem::take(&mut self.is_dirty);
                let (epoch, token) = (message.epoch.into(), resume_token.into());
                return Ok(ReplicaUpdate::Complete {
                    epoch,
                    revision: message.revision,
                    token,
                    changed,
                });
            }
        }
        if self.bytes > self.max_bytes {
            let most = self.max_bytes;
            return Err(format!("the catalog exceeds the mirror's limit of {most} bytes"));
        }
        Ok(ReplicaUpdate::Partial)
    }

    /// Returns the catalog of the events so far.
    pub(super) fn catalog(&self) -> MirrorCatalog {
        let skills = self.roots.iter().flat_map(|root| root.skills.values().cloned()).collect();
        let roots = self.roots.iter().filter_map(|root| root.status.clone()).collect();
        let diagnostics = self.roots.iter().flat_map(|root| root.diagnostics.clone()).collect();
        let plugins = self.roots.iter().flat_map(|root| root.plugins.values().cloned()).collect();
        let lists = self.roots.iter().flat_map(|root| root.marketplaces.clone()).collect();
        MirrorCatalog::new(skills, (plugins, lists), roots, diagnostics)
    }

    fn root_mut(&mut self, id: &str) -> Result<&mut RootReplica, String> {
        let index =
            self.root_indexes.get(id).ok_or("the daemon sent a root that was not selected")?;
        Ok(&mut self.roots[*index])
    }

    fn apply_status(&mut self, status: RootStatus) -> Result<(), String> {
        self.is_dirty = true;
        let added = message_bytes(&status);
        let before = self.root_mut(&status.id)?.status.replace(status);
        self.adjust_bytes(added, before.as_ref().map_or(0, message_bytes));
        Ok(())
    }

    fn apply_diagnostics(&mut self, list: DiagnosticList) -> Result<(), String> {
        self.is_dirty = true;
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
        self.is_dirty = true;
        self.root_mut(&delta.root_id)?;
        for removed in delta.removed {
            self.remove_skill(&delta.root_id, &removed.package)?;
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
            self.bytes += message_bytes(&skill);
            self.skill_names.insert(skill.package.clone(), skill.name.clone());
            let key = (skill.name.clone(), skill.package.clone());
            self.root_mut(&delta.root_id)?.skills.insert(key, Arc::new(skill));
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

    fn remove_skill(&mut self, root: &str, package: &str) -> Result<(), String> {
        let Some((package, name)) = self.skill_names.remove_entry(package) else { return Ok(()) };
        let gone = self.root_mut(root)?.skills.remove(&(name, package));
        let gone = gone.ok_or("the daemon removes a skill of another root")?;
        self.adjust_bytes(0, message_bytes(&*gone));
        Ok(())
    }
}

fn message_bytes(message: &impl prost::Message) -> usize {
    message.encoded_len() + ENTRY_OVERHEAD_BYTES
}

#[cfg(test)]
mod tests;
