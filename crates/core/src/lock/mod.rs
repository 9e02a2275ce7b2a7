//! Lock of approved skills and plugins: the file in which an operator records the packages that a model may
//! read and a host may start. Each entry has a name, the digest of the package, and the digest, size and
//! mode of each file.
//!
//! ```
//! use caproot_core::lock::{ApprovedFiles, ApprovedSkill, Lock, SkillDescription};
//! use caproot_core::wire::{ContentDigest, FileChecksum, RelPath};
//!
//! let path = RelPath::new(b"SKILL.md").ok_or("no path")?;
//! let checksum = FileChecksum { digest: ContentDigest([7; 32]), bytes: 12, executable: false };
//! let files = ApprovedFiles::new(vec![(path, checksum)])?;
//! let mut lock = Lock::default();
//! lock.approve(ApprovedSkill::new("triage-logs", SkillDescription::default(), files));
//!
//! let text = lock.to_text()?;
//! assert_eq!(Lock::parse(text.as_bytes())?, lock);
//! assert_eq!(lock.versions("triage-logs").len(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod allowed_signers;
mod approved_files;
mod difference;
mod reader;
mod signature;
mod text_list;
mod writer;

pub use crate::document::ConfigError as LockError;
pub use allowed_signers::AllowedSigners;
pub use approved_files::{ApprovedFiles, FilesError, MAX_PACKAGE_FILES, UnapprovedContent};
pub use difference::{
    EntryChange, EntryDifference, FileChange, FileDifference, LockDifference, VersionChange,
};
pub use signature::{SIGNATURE_NAMESPACE, signature_path};
pub use text_list::TextList;

use crate::bounded_file;
use crate::document::{ConfigError, FileResult as _};
use crate::wire::{ContentDigest, RelPath};
use allowed_signers::MAX_SIGNERS_BYTES;
use signature::MAX_SIGNATURE_BYTES;
use std::error::Error;
use std::path::Path;

/// Maximum size of a lock in bytes.
pub const MAX_LOCK_BYTES: u64 = 64 << 20;
/// Maximum number of skills of a lock.
pub const MAX_LOCK_SKILLS: usize = 100_000;
/// Maximum number of plugins of a lock.
pub const MAX_LOCK_PLUGINS: usize = 10_000;
/// Maximum number of approved versions of one skill or plugin.
pub const MAX_VERSIONS: usize = 8;
/// Version of the format that this version of caproot reads and writes.
const FORMAT_VERSION: u64 = 1;

/// Approved skills and plugins, each sorted by name and digest. A skill and a plugin may have one name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lock {
    skills: Vec<ApprovedSkill>,
    plugins: Vec<ApprovedPlugin>,
}

/// Kind of an entry of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntryKind {
    /// Skill.
    Skill,
    /// Plugin.
    Plugin,
}

/// Lock of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockFile {
    /// Approved skills and plugins.
    pub lock: Lock,
    /// Digest of the file.
    pub digest: ContentDigest,
    /// Principals of the key that signed the lock. `None` if no signature was required.
    pub signer: Option<Box<str>>,
}

/// Approved version of a skill. Serializes as an entry of the file.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovedSkill {
    /// Qualified name, such as `deploy` or `kit:deploy`.
    pub name: Box<str>,
    /// Texts and rules that a model or a router gets without reading a file.
    #[serde(flatten)]
    pub description: SkillDescription,
    /// Digest of the paths and contents of all files.
    pub content_digest: ContentDigest,
    /// Files of the package.
    pub files: ApprovedFiles,
}

/// Approved version of a plugin. Serializes as an entry of the file. Only [`Lock::parse`] compares the
/// digest with the files.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct ApprovedPlugin {
    /// Name in the manifest.
    #[serde(deserialize_with = "reader::read_name")]
    pub name: Box<str>,
    /// Version in the manifest; empty if not set.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub version: Box<str>,
    /// Digest of the paths and contents of all files.
    pub content_digest: ContentDigest,
    /// Digest of the servers, components and other declarations that a daemon reports of these files. A
    /// client that believes no executor compares a reported plugin with the digest.
    pub declaration_digest: ContentDigest,
    /// Files of the plugin and of its skills.
    #[serde(deserialize_with = "reader::read_plugin_files")]
    pub files: ApprovedFiles,
    /// Files whose contents the daemon withheld, because a value may be a secret, sorted. Each is also one
    /// of `files`, with the digest that the executor computed.
    #[serde(
        default,
        skip_serializing_if = "<[_]>::is_empty",
        serialize_with = "writer::write_file_names",
        deserialize_with = "reader::read_file_names"
    )]
    pub withheld: Box<[RelPath]>,
}

/// Texts and rules of a skill that a model or a router gets without reading a file. A text or rule with
/// its default is not serialized.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SkillDescription {
    /// Purpose of the skill and when to use it.
    pub description: Box<str>,
    /// Short description; empty if not set.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub short_description: Box<str>,
    /// Whether a model may choose the skill by itself.
    #[serde(skip_serializing_if = "bool::clone")]
    pub model_invocable: bool,
    /// Whether a person may choose the skill.
    #[serde(skip_serializing_if = "bool::clone")]
    pub user_invocable: bool,
    /// Products of the skill; empty for all products.
    #[serde(skip_serializing_if = "TextList::is_empty")]
    pub products: TextList,
}

impl Default for SkillDescription {
    fn default() -> Self {
        Self {
            description: Box::default(),
            short_description: Box::default(),
            model_invocable: true,
            user_invocable: true,
            products: TextList::default(),
        }
    }
}

impl Lock {
    /// Parses the text of a lock. Checks that each package digest is the digest of the files. Memory is
    /// less than three times the text.
    pub fn parse(text: &[u8]) -> Result<Self, ConfigError> {
        if text.len() as u64 > MAX_LOCK_BYTES {
            return Err(ConfigError::key("", "is over 64 MiB, the limit of a lock"));
        }
        reader::read_lock(text)
    }

    /// Reads and parses a lock file. Blocks on the disk.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        Ok(LockFile::read(path, None)?.lock)
    }

    /// Returns the text of the lock. Equal locks have equal texts. Fails if [`Lock::parse`] would reject
    /// the text.
    pub fn to_text(&self) -> Result<String, ConfigError> {
        let text = writer::lock_text(self)?;
        Self::parse(text.as_bytes()).map(|_| text)
    }

    /// Returns all skills.
    #[must_use]
    pub fn skills(&self) -> &[ApprovedSkill] {
        &self.skills
    }

    /// Returns all plugins.
    #[must_use]
    pub fn plugins(&self) -> &[ApprovedPlugin] {
        &self.plugins
    }

    /// Returns the approved versions of a skill by its qualified name, sorted by digest.
    #[must_use]
    pub fn versions(&self, name: &str) -> &[ApprovedSkill] {
        entries_named(&self.skills, name)
    }

    /// Returns the approved versions of a plugin by its name, sorted by digest.
    #[must_use]
    pub fn plugin_versions(&self, name: &str) -> &[ApprovedPlugin] {
        entries_named(&self.plugins, name)
    }

    /// Returns the files of each approved version of a skill or plugin.
    pub fn approved_files(
        &self,
        kind: EntryKind,
        name: &str,
    ) -> impl Iterator<Item = (ContentDigest, &ApprovedFiles)> {
        let skills = self.versions(name).iter();
        let skills = skills.map(|skill| (EntryKind::Skill, skill.content_digest, &skill.files));
        let plugins = self.plugin_versions(name).iter();
        let plugins = plugins.map(|entry| (EntryKind::Plugin, entry.content_digest, &entry.files));
        let of_kind = skills.chain(plugins).filter(move |entry| entry.0 == kind);
        of_kind.map(|(_, digest, files)| (digest, files))
    }

    /// Returns the size of the files of all entries in bytes.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        let skills = self.skills.iter().map(|skill| &skill.files);
        let plugins = self.plugins.iter().map(|plugin| &plugin.files);
        let sizes = skills.chain(plugins).map(ApprovedFiles::total_bytes);
        sizes.fold(0, u64::saturating_add)
    }

    /// Adds a skill. Replaces an entry with the same name and digest.
    pub fn approve(&mut self, skill: ApprovedSkill) {
        let skills = &mut self.skills;
        match skills.binary_search_by(|known| known.sort_key().cmp(&skill.sort_key())) {
            Ok(at) => skills[at] = skill,
            Err(at) => skills.insert(at, skill),
        }
    }

    /// Removes all entries of a kind with a name. Returns whether there was one.
    pub fn remove(&mut self, kind: EntryKind, name: &str) -> bool {
        let before = self.skills.len() + self.plugins.len();
        match kind {
            EntryKind::Skill => self.skills.retain(|skill| *skill.name != *name),
            EntryKind::Plugin => self.plugins.retain(|plugin| *plugin.name != *name),
        }
        self.skills.len() + self.plugins.len() < before
    }
}

/// Entry of a lock, which has its place by name and package digest.
trait LockEntry {
    fn sort_key(&self) -> (&str, ContentDigest);
}

impl LockEntry for ApprovedSkill {
    fn sort_key(&self) -> (&str, ContentDigest) {
        (&self.name, self.content_digest)
    }
}

impl LockEntry for ApprovedPlugin {
    fn sort_key(&self) -> (&str, ContentDigest) {
        (&self.name, self.content_digest)
    }
}

fn entries_named<'a, T: LockEntry>(sorted: &'a [T], name: &str) -> &'a [T] {
    let start = sorted.partition_point(|entry| entry.sort_key().0 < name);
    let rest = &sorted[start..];
    &rest[..rest.partition_point(|entry| entry.sort_key().0 == name)]
}

/// Sorts entries. The first of the entries with the same name and digest stays.
fn sort_entries<T: LockEntry>(entries: &mut Vec<T>) {
    entries.sort_by(|a, b| a.sort_key().cmp(&b.sort_key()));
    entries.dedup_by(|a, b| a.sort_key() == b.sort_key());
}

impl LockFile {
    /// Reads and parses a lock file. With `signers`, the lock needs a signature by one of the keys of this
    /// file: see [`signature_path`]. Blocks on the disk.
    pub fn read(path: &Path, signers: Option<&Path>) -> Result<Self, ConfigError> {
        Self::read_by(path, signers, |path, max_bytes| {
            Ok(bounded_file::read(path, max_bytes)?)
        })
    }

    /// Reads like [`Self::read`]. `read_file` reads the lock and the file of signers, with at most this number of
    /// bytes, or returns the reason why it does not.
    pub fn read_by(
        path: &Path,
        signers: Option<&Path>,
        read_file: impl Fn(&Path, u64) -> Result<Vec<u8>, Box<dyn Error>>,
    ) -> Result<Self, ConfigError> {
        let read = |path: &Path, max_bytes| read_file(path, max_bytes).in_file(path);
        let text = read(path, MAX_LOCK_BYTES)?;
        let Some(signers) = signers else {
            return Ok(Self {
                lock: Lock::parse(&text).in_file(path)?,
                digest: ContentDigest::of(&text),
                signer: None,
            });
        };

        let signers = AllowedSigners::parse_file(signers, read(signers, MAX_SIGNERS_BYTES)?)?;
        let signature_path = signature_path(path);
        let signature =
            bounded_file::read(&signature_path, MAX_SIGNATURE_BYTES).in_file(&signature_path)?;
        Lock::parse_signed(&text, &signature, &signers).in_file(path)
    }
}

impl FromIterator<ApprovedSkill> for Lock {
    /// Collects the skills of a lock. The first of the entries with the same name and digest stays.
    fn from_iter<I: IntoIterator<Item = ApprovedSkill>>(skills: I) -> Self {
        let mut lock = Self::default();
        lock.extend(skills);
        lock
    }
}

impl Extend<ApprovedSkill> for Lock {
    fn extend<I: IntoIterator<Item = ApprovedSkill>>(&mut self, skills: I) {
        self.skills.extend(skills);
        sort_entries(&mut self.skills);
    }
}

impl Extend<ApprovedPlugin> for Lock {
    fn extend<I: IntoIterator<Item = ApprovedPlugin>>(&mut self, plugins: I) {
        self.plugins.extend(plugins);
        sort_entries(&mut self.plugins);
    }
}

impl ApprovedSkill {
    /// Creates an entry, and computes the digest of the package.
    #[must_use]
    pub fn new(name: &str, description: SkillDescription, files: ApprovedFiles) -> Self {
        Self {
            name: name.into(),
            description,
            content_digest: files.content_digest(),
            files,
        }
    }
}

impl EntryKind {
    /// Returns the word for an entry in a message.
    #[must_use]
    pub fn noun(self) -> &'static str {
        match self {
            Self::Skill => "skill",
            Self::Plugin => "plugin",
        }
    }
}

#[cfg(test)]
mod tests;
