//! Approval of skills and plugins by a lock: the operator's rules, and the state of each package.

use caproot_core::lock::{ApprovedFiles, EntryKind, Lock};
use caproot_core::wire::{ContentDigest, RootId};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Effect of the lock on skills and plugins that are not approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrustMode {
    /// They are listed and readable.
    Warn,
    /// They are neither listed nor readable.
    Hide,
}

/// Approved skills and plugins, and the roots to which the approval applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustPolicy {
    /// Effect on skills and plugins that are not approved.
    pub mode: TrustMode,
    /// Published roots to which the lock applies; `None` for every root.
    pub roots: Option<Box<[RootId]>>,
    /// Lock in force.
    pub lock: Arc<LoadedLock>,
}

/// Lock with the facts of its load.
#[derive(Debug, PartialEq, Eq)]
pub struct LoadedLock {
    /// Approved skills and plugins.
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

/// Approval of a skill or plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PackageTrust {
    /// The lock has the name with these files; with the package digest of the approved version.
    Approved(Box<ContentDigest>),
    /// The lock has the name with other files or another version.
    Changed,
    /// The lock does not have the name.
    Unknown,
}

/// Approval of the skills and plugins of a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RootTrust {
    /// Effect on skills and plugins that are not approved.
    pub mode: TrustMode,
    /// Number of skills and plugins in each state, including omitted ones.
    pub counts: TrustCounts,
}

/// Number of skills and of plugins in each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TrustCounts {
    /// Skills.
    pub skills: StateCounts,
    /// Plugins.
    pub plugins: StateCounts,
}

/// Number of packages in each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StateCounts {
    /// Packages whose files are approved.
    pub approved: usize,
    /// Packages whose name is approved with other files or another version.
    pub changed: usize,
    /// Packages whose name is not approved.
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
    /// Returns the state of a package before its files are compared.
    #[must_use]
    pub fn initial_state(&self, kind: EntryKind, name: &str) -> PackageTrust {
        if self.lock.lock.approved_files(kind, name).next().is_none() {
            PackageTrust::Unknown
        } else {
            PackageTrust::Changed
        }
    }

    /// Returns the files of the approved version of a package, if the lock still has the version.
    #[must_use]
    pub fn approved_files(
        &self,
        kind: EntryKind,
        name: &str,
        trust: &PackageTrust,
    ) -> Option<&ApprovedFiles> {
        let PackageTrust::Approved(digest) = trust else {
            return None;
        };
        let mut versions = self.lock.lock.approved_files(kind, name);
        let version = versions.find(|(content_digest, _)| *content_digest == **digest);
        Some(version?.1)
    }
}

impl PackageTrust {
    /// Whether the files of the package are approved.
    #[must_use]
    pub fn is_approved(&self) -> bool {
        matches!(self, Self::Approved(_))
    }
}

impl TrustCounts {
    /// Adds the counts of another root.
    pub fn add(&mut self, other: Self) {
        self.skills.add(other.skills);
        self.plugins.add(other.plugins);
    }
}

impl StateCounts {
    /// Counts a package.
    pub fn count(&mut self, trust: &PackageTrust) {
        match trust {
            PackageTrust::Approved(_) => self.approved += 1,
            PackageTrust::Changed => self.changed += 1,
            PackageTrust::Unknown => self.unknown += 1,
        }
    }

    fn add(&mut self, other: Self) {
        self.approved += other.approved;
        self.changed += other.changed;
        self.unknown += other.unknown;
    }
}
