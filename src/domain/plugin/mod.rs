//! Plugins: the details of their manifests and the components that they declare. Components are
//! parsed and reported; a host starts them.

mod apps;
mod component_limits;
mod fields;
mod hooks;
mod info;
mod lsp_servers;
pub mod marketplace;
mod mcp_servers;
mod plugin_path;
pub mod prompt;
mod secret_filter;
mod sources;

use super::limits::MAX_HANDLE_BYTES;
use super::{DiagnosticCode, FileProblem, PluginManifest, RelPath, RootId, handle};
use std::sync::Arc;

pub use apps::PluginApp;
pub use component_limits::{
    MAX_COMPONENTS, MAX_PLUGIN_BYTES, MAX_ROOT_PLUGIN_BYTES, MAX_ROOT_PLUGINS,
};
pub use hooks::PluginHook;
pub use info::{PluginAuthor, PluginInfo, PluginInterface};
pub use lsp_servers::LspServer;
pub use marketplace::PluginMarketplace;
pub use mcp_servers::{McpServer, McpTransport, NamedValue};
pub use prompt::PluginPrompt;
pub use secret_filter::may_hold_secret;
pub use sources::{ComponentKind, ComponentSources, read_file};

/// Content of a manifest except the plugin's name and version. Untrusted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ManifestDetails {
    /// Description of the plugin for people.
    pub info: PluginInfo,
    /// Files and directories that declare components.
    pub sources: ComponentSources,
    /// Components in the manifest itself. Their `declared_by` is empty until
    /// [`PluginComponents::with_declared_by`] sets it.
    pub inline_components: PluginComponents,
}

/// Components that a plugin declares for a host to start. Untrusted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[allow(missing_docs)] // documented by the proto messages of the same names
pub struct PluginComponents {
    pub mcp_servers: Vec<McpServer>,
    pub apps: Vec<PluginApp>,
    pub hooks: Vec<PluginHook>,
    pub agents: Vec<PluginPrompt>,
    pub commands: Vec<PluginPrompt>,
    pub output_styles: Vec<PluginPrompt>,
    pub lsp_servers: Vec<LspServer>,
}

/// One plugin below a root.
#[derive(Debug, Clone, PartialEq, Eq)]
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
        if handle::formatted_len(root, self.handle_len()) <= MAX_HANDLE_BYTES {
            return Ok(());
        }
        let why = "a plugin's handle would be over 2,048 bytes; shorten its path or the root's id";
        Err(FileProblem::error(DiagnosticCode::HandleTooLong, why))
    }

    /// Whether a client may read this file of the plugin: an agent, a command, an output style or
    /// an image.
    #[must_use]
    pub fn may_read(&self, file: &RelPath) -> bool {
        let PluginComponents { agents, commands, output_styles, .. } = &self.components;
        let prompts = agents.iter().chain(commands).chain(output_styles);
        let mut prompts = prompts.map(|prompt| &prompt.file);
        let mut images = self.images.iter().flatten().chain(&self.screenshots);
        prompts.any(|known| known == file) || images.any(|known| known == file)
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
        if omitted == 0 {
            return (self, None);
        }
        self.truncated = true;
        let why = format!(
            "a plugin may declare {MAX_COMPONENTS} components of a kind, and {MAX_PLUGIN_BYTES} \
             bytes of them; {omitted} omitted"
        );
        (self, Some(FileProblem::warning(DiagnosticCode::LimitReached, why)))
    }
}

impl PluginComponents {
    /// Sets the file that declares the components.
    #[must_use]
    pub fn with_declared_by(mut self, file: &RelPath) -> Self {
        let declared = self.mcp_servers.iter_mut().map(|c| &mut c.declared_by);
        let declared = declared.chain(self.apps.iter_mut().map(|c| &mut c.declared_by));
        let declared = declared.chain(self.hooks.iter_mut().map(|c| &mut c.declared_by));
        let declared = declared.chain(self.lsp_servers.iter_mut().map(|c| &mut c.declared_by));
        declared.for_each(|declared_by| *declared_by = file.clone());
        self
    }

    /// Appends the components of `other`.
    pub fn extend(&mut self, other: Self) {
        self.mcp_servers.extend(other.mcp_servers);
        self.apps.extend(other.apps);
        self.hooks.extend(other.hooks);
        self.agents.extend(other.agents);
        self.commands.extend(other.commands);
        self.output_styles.extend(other.output_styles);
        self.lsp_servers.extend(other.lsp_servers);
    }
}

/// Redacts tokens in a message that quotes a manifest.
pub(super) fn redact_in_message(message: &str) -> String {
    secret_filter::redact_in_text(message)
}

/// Reads the fields of a manifest except the name and version.
pub(super) fn read_manifest_details(
    value: &super::DynamicValue,
    problems: &mut Vec<FileProblem>,
) -> Arc<ManifestDetails> {
    let mut fields = fields::PluginFieldReader::new(problems);
    let root = fields::LabeledMapping::root(value);
    let (sources, inline_components) = sources::read(&mut fields, root);
    let info = info::read(&mut fields, root);
    fields.report_unknown_keys(root, sources::MANIFEST_KEYS);
    Arc::new(ManifestDetails { info, sources, inline_components })
}

#[cfg(test)]
mod tests;
