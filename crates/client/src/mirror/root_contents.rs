//! Skills, plugins, marketplaces and diagnostics of one root in a mirror.

use crate::message_cost::{encoded_memory, message_memory};
use caproot_core::proto::NamedMessage;
use caproot_core::proto::caproot::v1::{Diagnostic, Marketplace, Plugin, Skill};
use caproot_core::wire::{CatalogMessage, MessageDigest, digest_catalog};
use prost::Message;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

/// Size of an entry in addition to its message.
pub const ENTRY_OVERHEAD_BYTES: usize = 256;
/// Size of a skill in memory in addition to its message: two texts of its key, its places in two
/// maps, and its digest.
const SKILL_OVERHEAD_BYTES: usize = 384;

/// Contents of one root. Has each skill as an `S`. Mirrors with equal contents share them by an
/// `Arc`, and copy them before a change.
#[derive(Debug)]
pub struct RootContents<S> {
    /// By name and package, in list order.
    skills: BTreeMap<(Arc<str>, Arc<str>), StoredSkill<S>>,
    /// Name of each skill by package. Name and package are the key in `skills`.
    names: HashMap<Arc<str>, Arc<str>>,
    /// By package.
    plugins: BTreeMap<String, Arc<Plugin>>,
    marketplaces: Vec<Marketplace>,
    diagnostics: Vec<Diagnostic>,
    bytes: usize,
    /// Digest of the contents, once it was asked for.
    digest: OnceLock<String>,
}

#[derive(Debug)]
struct StoredSkill<S> {
    skill: Arc<S>,
    bytes: usize,
    /// Digest of the received message.
    digest: MessageDigest,
}

impl<S> Clone for StoredSkill<S> {
    fn clone(&self) -> Self {
        Self {
            skill: self.skill.clone(),
            bytes: self.bytes,
            digest: self.digest,
        }
    }
}

impl<S> Clone for RootContents<S> {
    fn clone(&self) -> Self {
        Self {
            skills: self.skills.clone(),
            names: self.names.clone(),
            plugins: self.plugins.clone(),
            marketplaces: self.marketplaces.clone(),
            diagnostics: self.diagnostics.clone(),
            bytes: self.bytes,
            digest: self.digest.clone(),
        }
    }
}

/// Contents are equal if they have equal messages.
impl<S> PartialEq for RootContents<S> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || self.digest() == other.digest()
    }
}

impl<S> Default for RootContents<S> {
    fn default() -> Self {
        Self {
            skills: BTreeMap::new(),
            names: HashMap::new(),
            plugins: BTreeMap::new(),
            marketplaces: Vec::new(),
            diagnostics: Vec::new(),
            bytes: 0,
            digest: OnceLock::new(),
        }
    }
}

impl<S> RootContents<S> {
    /// Returns shared contents to change them. Other users keep the contents of before.
    pub fn make_mut(shared: &mut Arc<Self>) -> &mut Self {
        let contents = Arc::make_mut(shared);
        contents.digest = OnceLock::new();
        contents
    }

    /// Returns the skills in list order.
    pub fn skills(&self) -> impl DoubleEndedIterator<Item = &Arc<S>> + Clone {
        self.skills.values().map(|stored| &stored.skill)
    }

    /// Returns the number of skills.
    pub fn skill_count(&self) -> usize {
        self.skills.len()
    }

    /// Returns the skill with this package.
    pub fn skill(&self, package: &str) -> Option<&Arc<S>> {
        let (package, name) = self.names.get_key_value(package)?;
        Some(&self.skills.get(&(name.clone(), package.clone()))?.skill)
    }

    /// Returns the plugins by package.
    pub fn plugins(&self) -> impl DoubleEndedIterator<Item = &Arc<Plugin>> + Clone {
        self.plugins.values()
    }

    /// Returns the marketplaces.
    pub fn marketplaces(&self) -> &[Marketplace] {
        &self.marketplaces
    }

    /// Returns the diagnostics, most severe first.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    /// Returns the approximate size in memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the digest of the received messages, as [`caproot_core::wire::catalog_digest`] defines it.
    pub fn digest(&self) -> &str {
        self.digest.get_or_init(|| self.compute_digest())
    }

    fn compute_digest(&self) -> String {
        let mut messages: Vec<_> = self.skills.values().map(|stored| stored.digest).collect();
        for plugin in self.plugins.values() {
            messages.push(digest(CatalogMessage::Plugin, &**plugin));
        }
        for list in &self.marketplaces {
            messages.push(digest(CatalogMessage::Marketplace, list));
        }
        for diagnostic in &self.diagnostics {
            messages.push(digest(CatalogMessage::Diagnostic, diagnostic));
        }
        digest_catalog(messages).to_string()
    }

    /// Adds a skill, or replaces the skill with the same package.
    pub fn insert_skill(&mut self, mut skill: Skill, convert: impl FnOnce(Skill) -> S) {
        self.remove_skill(&skill.package);
        // Belongs to one executor, and other executors share the contents.
        skill.readiness = None;
        let encoded = skill.encode_to_vec();
        let bytes = encoded_memory::<Skill>(&encoded) + SKILL_OVERHEAD_BYTES;
        let digest = MessageDigest::new(CatalogMessage::Skill, &encoded);
        self.bytes += bytes;
        let key: (Arc<str>, Arc<str>) = (skill.name.as_str().into(), skill.package.as_str().into());
        self.names.insert(key.1.clone(), key.0.clone());
        let skill = Arc::new(convert(skill));
        self.skills.insert(
            key,
            StoredSkill {
                skill,
                bytes,
                digest,
            },
        );
    }

    /// Removes a skill. Returns whether the root had the skill.
    pub fn remove_skill(&mut self, package: &str) -> bool {
        let Some((package, name)) = self.names.remove_entry(package) else {
            return false;
        };
        let removed = self.skills.remove(&(name, package));
        self.adjust_bytes(0, removed.map_or(0, |stored| stored.bytes));
        true
    }

    /// Adds a plugin, or replaces the plugin with the same package.
    pub fn insert_plugin(&mut self, plugin: Plugin) {
        let added = message_bytes(&plugin);
        let before = self.plugins.insert(plugin.package.clone(), plugin.into());
        self.adjust_bytes(added, before.map_or(0, |before| message_bytes(&*before)));
    }

    /// Removes a plugin, if the root has it.
    pub fn remove_plugin(&mut self, package: &str) {
        let removed = self.plugins.remove(package);
        self.adjust_bytes(0, removed.map_or(0, |removed| message_bytes(&*removed)));
    }

    /// Replaces all marketplaces.
    pub fn set_marketplaces(&mut self, marketplaces: Vec<Marketplace>) {
        let before = std::mem::replace(&mut self.marketplaces, marketplaces);
        let added = self.marketplaces.iter().map(message_bytes).sum();
        self.adjust_bytes(added, before.iter().map(message_bytes).sum());
    }

    /// Appends diagnostics. Unless they continue the previous ones, removes those before.
    pub fn add_diagnostics(&mut self, diagnostics: Vec<Diagnostic>, continued: bool) {
        if !continued {
            let before = std::mem::take(&mut self.diagnostics);
            self.adjust_bytes(0, before.iter().map(message_bytes).sum());
        }
        self.adjust_bytes(diagnostics.iter().map(message_bytes).sum(), 0);
        self.diagnostics.extend(diagnostics);
    }

    fn adjust_bytes(&mut self, added: usize, removed: usize) {
        self.bytes = (self.bytes + added).saturating_sub(removed);
    }
}

/// Returns the size of a message in a mirror.
pub fn message_bytes(message: &impl NamedMessage) -> usize {
    message_memory(message) + ENTRY_OVERHEAD_BYTES
}

fn digest(kind: CatalogMessage, message: &impl Message) -> MessageDigest {
    MessageDigest::new(kind, &message.encode_to_vec())
}
