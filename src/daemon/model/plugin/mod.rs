//! Plugins: the content of their manifests and the components that they declare. Components are
//! reported; a host starts them.

mod component_limits;
mod components;
mod info;
mod marketplace;
mod skill_list;
mod sources;

use super::skill::check_handle_len;
use super::{DiagnosticCode, DynamicValue, FileProblem, PackageTrust};
use caproot_core::wire::{RelPath, RootId, handle};
use std::sync::Arc;

pub use component_limits::{
    MAX_COMPONENTS, MAX_PLUGIN_BYTES, MAX_ROOT_PLUGIN_BYTES, MAX_ROOT_PLUGINS, value_size,
};
pub use components::{McpServer, McpTransport, NamedValue, PluginComponent, PluginComponents};
pub use info::{PluginAuthor, PluginInfo, PluginInterface};
pub use marketplace::{MARKETPLACE_PATHS, MarketplaceEntry, PluginMarketplace};
pub use skill_list::PluginSkillList;
pub use sources::{ComponentKind, ComponentSources, ManifestProduct};

/// Paths of the manifest below its plugin. The first path that exists is used.
pub const MANIFEST_PATHS: [&str; 3] = [
    ".codex-plugin/plugin.json",
    ".claude-plugin/plugin.json",
    ".cursor-plugin/plugin.json",
];

/// Parsed manifest. The content is untrusted.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginManifest {
    /// Name of 1 to 64 characters, with collapsed white space and without control characters. The
    /// plugin's skills have the name as their namespace.
    pub name: Box<str>,
    /// Version of at most 64 characters, or empty.
    pub version: Box<str>,
    /// Other fields of the manifest.
    pub declarations: Arc<ManifestDetails>,
}

/// Content of a manifest except the plugin's name and version. Untrusted.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ManifestDetails {
    /// Description of the plugin for people.
    pub info: PluginInfo,
    /// Files and directories that declare components.
    pub sources: ComponentSources,
    /// Whether the skills of the plugin are switched off unless a session switches them on.
    pub is_switched_off: bool,
    /// Components in the manifest itself. Their file is empty until [`PluginComponents::with_file`]
    /// sets it.
    pub inline_components: PluginComponents,
    /// Mapping of the other keys, without possible secrets; null if there are none.
    pub more: DynamicValue,
}

/// One plugin below a root.
#[derive(Debug, Clone, PartialEq)]
pub struct Plugin {
    /// Directory of the plugin below the root, with links not resolved.
    pub package: RelPath,
    /// Content of the manifest.
    pub manifest: PluginManifest,
    /// Path of the manifest below the plugin.
    pub manifest_file: RelPath,
    /// Other manifests of the plugin. Only the first manifest is read.
    pub other_manifests: Box<[RelPath]>,
    /// Composer icon, logo and dark logo, if the files exist.
    pub images: [Option<RelPath>; 3],
    /// Screenshots that exist.
    pub screenshots: Box<[RelPath]>,
    /// Components that the plugin declares.
    pub components: PluginComponents,
    /// Whether a component file no longer parses, so that its last valid content is reported.
    pub stale: bool,
    /// Whether components were omitted because of a limit.
    pub truncated: bool,
    /// Approval by the lock; `None` if no lock applies to the root.
    pub trust: Option<PackageTrust>,
}

impl Plugin {
    /// Returns the length of the plugin's part of its handle, without the root's part.
    #[must_use]
    pub fn handle_len(&self) -> usize {
        handle::encoded_path_len(&self.package)
    }

    /// Checks the length of the plugin's handle below a root with this id. A plugin with too long a
    /// handle is omitted.
    pub fn check_handle(&self, root: &RootId) -> Result<(), FileProblem> {
        check_handle_len("plugin", root, self.handle_len())
    }

    /// Omits the components that exceed the limits of one plugin, or `left`, the bytes that remain
    /// for all plugins below the root. Subtracts the bytes of this plugin from `left`. The problem
    /// says how many components were omitted.
    #[must_use]
    pub fn truncate_to_budget(mut self, left: &mut usize) -> (Self, Option<FileProblem>) {
        let budget = MAX_PLUGIN_BYTES.min(*left);
        let mut room = budget;

        // Each component takes bytes for numbers, framing and a handle.
        let overhead = 256 + self.handle_len();
        let omitted =
            component_limits::truncate_components(&mut self.components, &mut room, overhead);
        *left -= budget - room;

        self.truncated = omitted > 0;
        let problem = self.truncated.then(|| {
            let why = format!(
                "a plugin may declare {MAX_COMPONENTS} components of a kind, and {MAX_PLUGIN_BYTES} \
                 bytes of them; {omitted} omitted"
            );
            FileProblem::warning(DiagnosticCode::LimitReached, why)
        });
        (self, problem)
    }
}
