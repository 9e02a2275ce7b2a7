//! Readiness of the skills of one root. Not part of the contents of the root: executors with equal files
//! share contents, and differ in their programs.

use super::root_contents::ENTRY_OVERHEAD_BYTES;
use caproot_core::proto::caproot::v1::{ReadinessList, SkillReadiness};
use caproot_core::wire::handle::is_canonical_of_root;
use prost::Message as _;
use std::collections::BTreeMap;

/// Readiness of the skills of one root that declare requirements, by package.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RootReadiness {
    skills: BTreeMap<String, SkillReadiness>,
    bytes: usize,
}

impl RootReadiness {
    /// Returns the readiness of a skill.
    pub fn get(&self, package: &str) -> Option<&SkillReadiness> {
        self.skills.get(package)
    }

    /// Returns the approximate size in memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Applies an event. The error is the reason to end the stream.
    pub fn apply(&mut self, list: ReadinessList) -> Result<(), &'static str> {
        for skill in list.skills {
            if !is_canonical_of_root(&skill.package, &list.root_id) {
                return Err("the daemon sent the readiness of a skill of another root");
            }
            let removed = self.skills.remove_entry(&skill.package);
            let removed = removed.map_or(0, |(package, old)| entry_bytes(&package, &old));
            self.bytes = self.bytes.saturating_sub(removed);
            if let Some(readiness) = skill.readiness {
                self.bytes += entry_bytes(&skill.package, &readiness);
                self.skills.insert(skill.package, readiness);
            }
        }
        Ok(())
    }
}

fn entry_bytes(package: &str, readiness: &SkillReadiness) -> usize {
    // A name of a missing requirement takes about as many bytes as a text and its pointer.
    package.len() + 4 * readiness.encoded_len() + ENTRY_OVERHEAD_BYTES
}
