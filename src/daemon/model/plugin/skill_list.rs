//! Skills that a plugin offers, if its manifest lists them.

use super::{ComponentKind, ManifestDetails, ManifestProduct};
use crate::daemon::model::ResolvedPath;
use caproot_core::wire::RelPath;

/// Directories of the skills that a plugin offers. Sources: "Plugin manifest reference" of Claude Code,
/// and `plugin_skill_roots` of Codex.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginSkillList {
    plugin: ResolvedPath,
    directories: Box<[RelPath]>,
    /// Whether skills further below the directories are offered too.
    is_recursive: bool,
}

impl PluginSkillList {
    /// Returns the list of a manifest in the directory `plugin`; `None` if the manifest has no list.
    #[must_use]
    pub fn new(
        plugin: &ResolvedPath,
        details: &ManifestDetails,
        product: ManifestProduct,
    ) -> Option<Self> {
        let listed = details.sources.named_paths(ComponentKind::Skills);
        let mut directories: Vec<_> = listed.cloned().collect();
        if directories.is_empty() {
            return None;
        }

        // The list of Codex replaces the default directory, and that of Claude Code adds to it.
        let is_recursive = match product {
            ManifestProduct::Codex => true,
            ManifestProduct::Claude => {
                directories.extend(RelPath::new(b"skills"));
                false
            }
            ManifestProduct::Cursor => return None,
        };
        Some(Self {
            plugin: plugin.clone(),
            directories: directories.into(),
            is_recursive,
        })
    }

    /// Whether the plugin offers the skill in this directory. A directory outside the plugin is a link's
    /// target, which no list can name.
    #[must_use]
    pub fn covers(&self, skill: &ResolvedPath) -> bool {
        let Some(path) = skill.strip_prefix(&self.plugin) else {
            return true;
        };
        self.directories.iter().any(|listed| {
            let below = path.strip_prefix(listed);
            below.is_some_and(|below| self.is_recursive || below.segments().count() <= 1)
        })
    }
}
