//! A plugin as data: what its manifest says of it, and what it declares for a host to activate. From
//! bytes to components, one file a kind; nothing here is started or followed. Leaves reading files to
//! `disk`, and the manifest's name, which skills go by, to `domain::manifest`.

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

/// What the manifest says beside the plugin's name. Untrusted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ManifestDetails {
    /// The plugin in words and pictures.
    pub info: PluginInfo,
    /// Where its components are declared.
    pub sources: ComponentSources,
    /// Those that the manifest itself holds; their `file` is the root until it is known.
    pub inline_components: PluginComponents,
}

/// What is there for a host to activate. Untrusted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[allow(missing_docs)] // the proto's messages of the same names say what each means
pub struct PluginComponents {
    pub mcp_servers: Vec<McpServer>,
    pub apps: Vec<PluginApp>,
    pub hooks: Vec<PluginHook>,
    pub agents: Vec<PluginPrompt>,
    pub commands: Vec<PluginPrompt>,
    pub output_styles: Vec<PluginPrompt>,
    pub lsp_servers: Vec<LspServer>,
}

/// One plugin that was found below a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plugin {
    /// Its directory as walked, below the root.
    pub package: RelPath,
    /// What its manifest says.
    pub manifest: PluginManifest,
    /// Where that manifest is, below the plugin.
    pub manifest_file: RelPath,
    /// Other manifests that are there and are not read, since the first decides.
    pub other_manifests: Box<[RelPath]>,
    /// The icon of a host's composer, the logo, that for dark screens: those that are there.
    pub images: [Option<RelPath>; 3],
    /// The screenshots that are there.
    pub screenshots: Box<[RelPath]>,
    /// Everything that it declares.
    pub components: PluginComponents,
    /// Whether a file that declares components no longer parses, and this is what it last said.
    pub stale: bool,
    /// Whether a bound left components out.
    pub truncated: bool,
}

impl Plugin {
    /// The bytes that its handle takes behind the root's own.
    #[must_use]
    pub fn handle_len(&self) -> usize {
        handle::encoded_path_len(&self.package)
    }

    /// Whether its handle below a root of this id keeps to its bound; the problem is for one that is
    /// left out because it does not.
    pub fn check_handle(&self, root: &RootId) -> Result<(), FileProblem> {
        if handle::formatted_len(root, self.handle_len()) <= MAX_HANDLE_BYTES {
            return Ok(());
        }
        let why = "a plugin's handle would be over 2,048 bytes; shorten its path or the root's id";
        Err(FileProblem::error(DiagnosticCode::HandleTooLong, why))
    }

    /// Whether a file below the plugin is one that may be read with the plugin as its package: an
    /// agent, a command, an output style or an image.
    #[must_use]
    pub fn may_read(&self, file: &RelPath) -> bool {
        let PluginComponents { agents, commands, output_styles, .. } = &self.components;
        let prompts = agents.iter().chain(commands).chain(output_styles);
        let mut prompts = prompts.map(|prompt| &prompt.file);
        let mut images = self.images.iter().flatten().chain(&self.screenshots);
        prompts.any(|known| known == file) || images.any(|known| known == file)
    }

    /// Omits the components that exceed the limits of one plugin, or `left`, the bytes that remain for
    /// all plugins below the root. Subtracts the bytes of this plugin from `left`. The problem says how
    /// many components were omitted.
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
             bytes of them; {omitted} are left out"
        );
        (self, Some(FileProblem::warning(DiagnosticCode::LimitReached, why)))
    }
}

impl PluginComponents {
    /// The same, each declared by this file.
    #[must_use]
    pub fn with_declared_by(mut self, file: &RelPath) -> Self {
        let declared = self.mcp_servers.iter_mut().map(|c| &mut c.declared_by);
        let declared = declared.chain(self.apps.iter_mut().map(|c| &mut c.declared_by));
        let declared = declared.chain(self.hooks.iter_mut().map(|c| &mut c.declared_by));
        let declared = declared.chain(self.lsp_servers.iter_mut().map(|c| &mut c.declared_by));
        declared.for_each(|place| *place = file.clone());
        self
    }

    /// Takes all of another's behind its own.
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

/// A message about a declaration, with what has the shape of a token taken out.
pub(super) fn redact_in_message(message: &str) -> String {
    secret_filter::redact_in_text(message)
}

/// A manifest's other fields, from the value of all of it.
pub(super) fn read_manifest_details(
    value: &super::DynamicValue,
    problems: &mut Vec<FileProblem>,
) -> Arc<ManifestDetails> {
    let mut fields = fields::PluginFieldReader::new(problems);
    let root = fields::LabeledMapping::root(value);
    let (sources, inline) = sources::read(&mut fields, root);
    let about = info::read(&mut fields, root);
    fields.report_unknown_keys(root, sources::MANIFEST_KEYS);
    Arc::new(ManifestDetails { info: about, sources, inline_components: inline })
}

#[cfg(test)]
mod tests;
