//! Skills, plugins, marketplaces and diagnostics of one root in a mirror.

use crate::message_cost::encoded_memory;
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

/// Contents of one root. Mirrors with equal contents share them by an `Arc`, and copy them before a
/// change.
#[derive(Debug, Clone, Default)]
pub struct RootContents {
    /// By name and package, in list order.
    skills: BTreeMap<(Arc<str>, Arc<str>), StoredSkill>,
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

#[derive(Debug, Clone)]
struct StoredSkill {
    skill: Arc<Skill>,
    bytes: usize,
    /// Digest of the received message.
    digest: MessageDigest,
}

/// Contents are equal if they have equal messages.
impl PartialEq for RootContents {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || self.digest() == other.digest()
    }
}

impl RootContents {
    /// Returns shared contents to change them. Other users keep the contents of before.
    pub fn make_mut(shared: &mut Arc<Self>) -> &mut Self {
        let contents = Arc::make_mut(shared);
        contents.digest = OnceLock::new();
        contents
    }

    /// Returns the skills in list order.
    pub fn skills(&self) -> impl DoubleEndedIterator<Item = &Arc<Skill>> + Clone {
        self.skills.values().map(|stored| &stored.skill)
    }

    /// Returns the number of skills.
    pub fn skill_count(&self) -> usize {
        self.skills.len()
    }

    /// Returns the skill with this package.
    pub fn skill(&self, package: &str) -> Option<&Arc<Skill>> {
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
    pub fn insert_skill(&mut self, mut skill: Skill) {
        self.remove_skill(&skill.package);
        // Belongs to one executor, and other executors share the contents.
        skill.readiness = None;
        let encoded = skill.encode_to_vec();
        let bytes = encoded_memory::<Skill>(&encoded) + SKILL_OVERHEAD_BYTES;
        self.bytes += bytes;

        let name = Arc::<str>::from(&*skill.name);
        let package = Arc::<str>::from(&*skill.package);
        self.names.insert(package.clone(), name.clone());
        let stored = StoredSkill {
            skill: skill.into(),
            bytes,
            digest: MessageDigest::new(CatalogMessage::Skill, &encoded),
        };
        self.skills.insert((name, package), stored);
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
pub fn message_bytes<M: NamedMessage>(message: &M) -> usize {
    encoded_memory::<M>(&message.encode_to_vec()) + ENTRY_OVERHEAD_BYTES
}

fn digest(kind: CatalogMessage, message: &impl Message) -> MessageDigest {
    MessageDigest::new(kind, &message.encode_to_vec())
}
