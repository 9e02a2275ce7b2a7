//! Approval of skills by a lock: the operator's rules, and the state of each skill.

use caproot_core::lock::{ApprovedSkill, Lock};
use caproot_core::wire::{ContentDigest, RootId};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Effect of the lock on skills that are not approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrustMode {
    /// The skills are listed and readable.
    Warn,
    /// The skills are neither listed nor readable.
    Hide,
}

/// Approved skills, and the roots to which the approval applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustPolicy {
    /// Effect on skills that are not approved.
    pub mode: TrustMode,
    /// Published roots to which the lock applies; `None` for every root.
    pub roots: Option<Box<[RootId]>>,
    /// Lock in force.
    pub lock: Arc<LoadedLock>,
}

/// Lock with the facts of its load.
#[derive(Debug, PartialEq, Eq)]
pub struct LoadedLock {
    /// Approved skills.
    pub lock: Lock,
    /// Path of the file.
    pub path: PathBuf,
    /// File of the keys that may sign the lock.
    pub signers: Option<PathBuf>,
    /// Digest of the file.
    pub digest: ContentDigest,
    /// Principals of the key that signed the lock.
    pub signer: Option<Box<str>>,
    /// Time of the load, since the Unix epoch.
    pub loaded_at: Duration,
}

/// Approval of a skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SkillTrust {
    /// The lock has the name with these files; with the package digest of the approved version.
    Approved(Box<ContentDigest>),
    /// The lock has the name with other files.
    Changed,
    /// The lock does not have the name.
    Unknown,
}

/// Approval of the skills of a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RootTrust {
    /// Effect on skills that are not approved.
    pub mode: TrustMode,
    /// Number of skills in each state, including omitted skills.
    pub counts: TrustCounts,
}

/// Number of skills in each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TrustCounts {
    /// Skills whose files are approved.
    pub approved: usize,
    /// Skills whose name is approved with other files.
    pub changed: usize,
    /// Skills whose name is not approved.
    pub unknown: usize,
}

impl TrustMode {
    /// Names of the modes in the configuration.
    pub const NAMES: [&str; 2] = ["warn", "hide"];

    /// Parses the name of a mode.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        match text {
            "warn" => Ok(Self::Warn),
            "hide" => Ok(Self::Hide),
            _ => Err("expected warn or hide"),
        }
    }
}

impl TrustPolicy {
    /// Returns the state of a skill before its files are compared.
    #[must_use]
    pub fn initial_state(&self, name: &str) -> SkillTrust {
        if self.lock.lock.versions(name).is_empty() {
            SkillTrust::Unknown
        } else {
            SkillTrust::Changed
        }
    }

    /// Returns the approved version of a skill, if the lock still has the version.
    #[must_use]
    pub fn approved_version(&self, name: &str, trust: &SkillTrust) -> Option<&ApprovedSkill> {
        let SkillTrust::Approved(digest) = trust else {
            return None;
        };
        let mut versions = self.lock.lock.versions(name).iter();
        versions.find(|version| version.content_digest == **digest)
    }
}

impl SkillTrust {
    /// Whether the files of the skill are approved.
    #[must_use]
    pub fn is_approved(&self) -> bool {
        matches!(self, Self::Approved(_))
    }
}

impl TrustCounts {
    /// Counts a skill.
    pub fn count_skill(&mut self, trust: &SkillTrust) {
        match trust {
            SkillTrust::Approved(_) => self.approved += 1,
            SkillTrust::Changed => self.changed += 1,
            SkillTrust::Unknown => self.unknown += 1,
        }
    }

    /// Returns the number of skills that are not approved.
    #[must_use]
    pub fn unapproved(&self) -> usize {
        self.changed + self.unknown
    }

    /// Adds the counts of another root.
    pub fn add(&mut self, other: Self) {
        self.approved += other.approved;
        self.changed += other.changed;
        self.unknown += other.unknown;
    }
}
