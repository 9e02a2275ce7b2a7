//! Applies the events of one stream to a copy, and trusts none of them: what is not of the selection,
//! comes out of turn or is too much ends it. Pure: leaves streams and waiting to the mirror.

use super::{Catalog, Selection};
use crate::client::handle::root_id;
use crate::proto::caproot::v1::watch_skills_response::Event;
use crate::proto::caproot::v1::{
    Bookmark, Diagnostic, DiagnosticList, Marketplace, Plugin, RootStatus, Skill, SkillDelta,
    Synced, WatchSkillsResponse,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// What each thing takes beside its own bytes.
const OVERHEAD: usize = 256;

/// A copy under work.
pub(super) struct Held {
    /// Of the roots' ids, where each was selected.
    places: HashMap<String, usize>,
    /// One a root that was selected.
    roots: Vec<Root>,
    /// By package, the place in `Root::skills` of its root.
    names: HashMap<String, String>,
    bytes: usize,
    max_bytes: usize,
    turn: Turn,
    /// Whether anything came since the last whole state.
    touched: bool,
}

/// What may come next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// Only a `reset`: nothing whole is held.
    Reset,
    /// Anything.
    Any,
}

#[derive(Default)]
struct Root {
    /// By name and package, the order of a list.
    skills: BTreeMap<(String, String), Arc<Skill>>,
    /// By package.
    plugins: BTreeMap<String, Arc<Plugin>>,
    marketplaces: Vec<Marketplace>,
    status: Option<RootStatus>,
    diagnostics: Vec<Diagnostic>,
}

/// What an event came to.
#[derive(Debug, PartialEq)]
pub(super) enum Told {
    /// A part of a state.
    Nothing,
    /// The copy is whole, of this revision.
    State {
        /// The daemon's start.
        epoch: Arc<str>,
        /// Of that start.
        revision: u64,
        /// To go on from here.
        token: Arc<str>,
        /// Whether the copy is another than at the last whole state.
        changed: bool,
    },
}

impl Held {
    pub(super) fn new(selection: &Selection) -> Self {
        let mut places = HashMap::new();
        for root in &selection.roots {
            let next = places.len();
            places.entry(root.id.clone()).or_insert(next);
        }
        let roots = places.iter().map(|_| Root::default()).collect();
        Self {
            places,
            roots,
            names: HashMap::new(),
            bytes: 0,
            max_bytes: selection.max_bytes,
            turn: Turn::Reset,
            touched: false,
        }
    }

    /// The stream was lost; the next one goes on from the last whole state, or begins anew.
    pub(super) fn lose(&mut self) {
        if self.touched {
            self.turn = Turn::Reset;
        }
    }

    /// Applies an event; why it cannot be.
    pub(super) fn hear(&mut self, message: WatchSkillsResponse) -> Result<Told, String> {
        let event = message.event.ok_or("the daemon sent an event that says nothing")?;
        let begins = matches!(event, Event::Reset(_));
        if self.turn == Turn::Reset && !begins {
            return Err("the daemon goes on from a state that was never whole".to_owned());
        }
        match event {
            Event::Reset(_) => {
                self.roots.iter_mut().for_each(|root| *root = Root::default());
                self.names.clear();
                (self.bytes, self.turn, self.touched) = (0, Turn::Any, true);
            }
            Event::RootStatus(status) => self.status(status)?,
            Event::Delta(delta) => self.delta(delta)?,
            Event::Diagnostics(list) => self.diagnostics(list)?,
            Event::Synced(Synced { resume_token }) | Event::Bookmark(Bookmark { resume_token }) => {
                let changed = std::mem::take(&mut self.touched);
                let (epoch, token) = (message.epoch.into(), resume_token.into());
                return Ok(Told::State { epoch, revision: message.revision, token, changed });
            }
        }
        if self.bytes > self.max_bytes {
            let most = self.max_bytes;
            return Err(format!("the catalog is over the {most} bytes that this mirror may take"));
        }
        Ok(Told::Nothing)
    }

    /// The copy, as far as it was applied.
    pub(super) fn catalog(&self) -> Catalog {
        let skills = self.roots.iter().flat_map(|root| root.skills.values().cloned()).collect();
        let roots = self.roots.iter().filter_map(|root| root.status.clone()).collect();
        let diagnostics = self.roots.iter().flat_map(|root| root.diagnostics.clone()).collect();
        let plugins = self.roots.iter().flat_map(|root| root.plugins.values().cloned()).collect();
        let lists = self.roots.iter().flat_map(|root| root.marketplaces.clone()).collect();
        Catalog::new(skills, (plugins, lists), roots, diagnostics)
    }

    fn root(&mut self, id: &str) -> Result<&mut Root, String> {
        let place =
            self.places.get(id).ok_or("the daemon speaks of a root that was not selected")?;
        Ok(&mut self.roots[*place])
    }

    fn status(&mut self, status: RootStatus) -> Result<(), String> {
        self.touched = true;
        let added = cost(&status);
        let before = self.root(&status.id)?.status.replace(status);
        self.exchange(added, before.as_ref().map_or(0, cost));
        Ok(())
    }

    fn diagnostics(&mut self, list: DiagnosticList) -> Result<(), String> {
        self.touched = true;
        let added: usize = list.diagnostics.iter().map(cost).sum();
        let root = self.root(&list.root_id)?;
        let mut gone = 0;
        if !list.continued {
            gone = root.diagnostics.iter().map(cost).sum();
            root.diagnostics.clear();
        }
        root.diagnostics.extend(list.diagnostics);
        self.exchange(added, gone);
        Ok(())
    }

    fn delta(&mut self, delta: SkillDelta) -> Result<(), String> {
        self.touched = true;
        self.root(&delta.root_id)?;
        for removed in delta.removed {
            self.remove(&delta.root_id, &removed.package)?;
        }
        for skill in delta.upserted {
            let owner = skill.authority.as_ref().map(|authority| authority.id.as_str());
            let is_its_own = owner == Some(delta.root_id.as_str())
                && root_id(&skill.package).as_deref() == owner
                && root_id(&skill.main_resource).as_deref() == owner;
            if !is_its_own {
                return Err("the daemon lists a skill for a root that is not its own".to_owned());
            }
            self.remove(&delta.root_id, &skill.package)?;
            self.bytes += cost(&skill);
            self.names.insert(skill.package.clone(), skill.name.clone());
            let key = (skill.name.clone(), skill.package.clone());
            self.root(&delta.root_id)?.skills.insert(key, Arc::new(skill));
        }
        self.plugins(&delta.root_id, delta.upserted_plugins, &delta.removed_plugins)?;
        if let Some(list) = delta.marketplaces {
            let added: usize = list.marketplaces.iter().map(cost).sum();
            let gone = &mut self.root(&delta.root_id)?.marketplaces;
            let gone = std::mem::replace(gone, list.marketplaces);
            self.exchange(added, gone.iter().map(cost).sum());
        }
        Ok(())
    }

    fn plugins(
        &mut self,
        root_id: &str,
        upserted: Vec<Plugin>,
        removed: &[String],
    ) -> Result<(), String> {
        for package in removed {
            let gone = self.root(root_id)?.plugins.remove(package);
            self.exchange(0, gone.map_or(0, |gone| cost(&*gone)));
        }
        for plugin in upserted {
            if self::root_id(&plugin.package).as_deref() != Some(root_id) {
                return Err("the daemon lists a plugin for a root that is not its own".to_owned());
            }
            let added = cost(&plugin);
            let before = self.root(root_id)?.plugins.insert(plugin.package.clone(), plugin.into());
            self.exchange(added, before.map_or(0, |before| cost(&*before)));
        }
        Ok(())
    }

    fn exchange(&mut self, added: usize, gone: usize) {
        self.bytes = (self.bytes + added).saturating_sub(gone);
    }

    fn remove(&mut self, root: &str, package: &str) -> Result<(), String> {
        let Some((package, name)) = self.names.remove_entry(package) else { return Ok(()) };
        let gone = self.root(root)?.skills.remove(&(name, package));
        let gone = gone.ok_or("the daemon removes a skill of another root")?;
        self.exchange(0, cost(&*gone));
        Ok(())
    }
}

fn cost(message: &impl prost::Message) -> usize {
    message.encoded_len() + OVERHEAD
}

#[cfg(test)]
mod tests;
