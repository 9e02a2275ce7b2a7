//! A plugin as data: what its manifest says of it, and what it declares for a host to activate. From
//! bytes to components, one file a kind; nothing here is started or followed. Leaves reading files to
//! `disk`, and the manifest's name, which skills go by, to `domain::manifest`.

mod about;
mod apps;
mod bounds;
mod fields;
mod file;
mod hooks;
mod lsp;
pub mod marketplace;
mod place;
pub mod prompt;
mod secret;
mod servers;
mod sources;

use super::limits::MAX_HANDLE_BYTES;
use super::{Code, Manifest, Problem, RelPath, RootId, handle};
use std::sync::Arc;

pub use about::{About, Author, Interface};
pub use apps::App;
pub use bounds::{MAX_COMPONENTS, MAX_PLUGIN_BYTES, MAX_ROOT_BYTES, MAX_ROOT_PLUGINS};
pub use file::read as read_file;
pub use hooks::Hook;
pub use lsp::LspServer;
pub use marketplace::Marketplace;
pub use prompt::Prompt;
pub use secret::may_hold_secret;
pub use servers::{Given, McpServer, Transport};
pub use sources::{Kind, Sources};

/// What the manifest says beside the plugin's name. Untrusted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Declared {
    /// The plugin in words and pictures.
    pub about: About,
    /// Where its components are declared.
    pub sources: Sources,
    /// Those that the manifest itself holds; their `file` is the root until it is known.
    pub inline: Components,
}

/// What is there for a host to activate. Untrusted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[allow(missing_docs)] // the proto's messages of the same names say what each means
pub struct Components {
    pub servers: Vec<McpServer>,
    pub apps: Vec<App>,
    pub hooks: Vec<Hook>,
    pub agents: Vec<Prompt>,
    pub commands: Vec<Prompt>,
    pub output_styles: Vec<Prompt>,
    pub lsp_servers: Vec<LspServer>,
}

/// One plugin that was found below a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plugin {
    /// Its directory as walked, below the root.
    pub package: RelPath,
    /// What its manifest says.
    pub manifest: Manifest,
    /// Where that manifest is, below the plugin.
    pub file: RelPath,
    /// Other manifests that are there and are not read, since the first decides.
    pub others: Box<[RelPath]>,
    /// The icon of a host's composer, the logo, that for dark screens: those that are there.
    pub images: [Option<RelPath>; 3],
    /// The screenshots that are there.
    pub screenshots: Box<[RelPath]>,
    /// Everything that it declares.
    pub components: Components,
    /// Whether a file that declares components no longer parses, and this is what it last said.
    pub stale: bool,
    /// Whether a bound left components out.
    pub truncated: bool,
}

impl Plugin {
    /// The bytes that its handle takes behind the root's own.
    #[must_use]
    pub fn handle_len(&self) -> usize {
        handle::encoded_len(&self.package)
    }

    /// Whether its handle below a root of this id keeps to its bound; the problem is for one that is
    /// left out because it does not.
    pub fn check_handle(&self, root: &RootId) -> Result<(), Problem> {
        if handle::printed_len(root, self.handle_len()) <= MAX_HANDLE_BYTES {
            return Ok(());
        }
        let why = "a plugin's handle would be over 2,048 bytes; shorten its path or the root's id";
        Err(Problem::error(Code::HandleTooLong, why))
    }

    /// Whether a file below the plugin is one that may be read with the plugin as its package: an
    /// agent, a command, an output style or an image.
    #[must_use]
    pub fn may_read(&self, file: &RelPath) -> bool {
        let Components { agents, commands, output_styles, .. } = &self.components;
        let prompts = agents.iter().chain(commands).chain(output_styles);
        let mut prompts = prompts.map(|prompt| &prompt.file);
        let mut images = self.images.iter().flatten().chain(&self.screenshots);
        prompts.any(|known| known == file) || images.any(|known| known == file)
    }
}

impl Components {
    /// The same, each declared by this file.
    #[must_use]
    pub fn declared_by(mut self, file: &RelPath) -> Self {
        let declared = self.servers.iter_mut().map(|c| &mut c.file);
        let declared = declared.chain(self.apps.iter_mut().map(|c| &mut c.file));
        let declared = declared.chain(self.hooks.iter_mut().map(|c| &mut c.file));
        let declared = declared.chain(self.lsp_servers.iter_mut().map(|c| &mut c.file));
        declared.for_each(|place| *place = file.clone());
        self
    }

    /// Takes all of another's behind its own.
    pub fn extend(&mut self, other: Self) {
        self.servers.extend(other.servers);
        self.apps.extend(other.apps);
        self.hooks.extend(other.hooks);
        self.agents.extend(other.agents);
        self.commands.extend(other.commands);
        self.output_styles.extend(other.output_styles);
        self.lsp_servers.extend(other.lsp_servers);
    }
}

/// A message about a declaration, with what has the shape of a token taken out.
pub(super) fn clean(message: &str) -> String {
    secret::clean(message)
}

/// A manifest's other fields, from the value of all of it.
pub(super) fn declared(value: &super::Value, problems: &mut Vec<Problem>) -> Arc<Declared> {
    let mut fields = fields::Fields::new(problems);
    let root = fields::At::root(value);
    let (sources, inline) = sources::read(&mut fields, root);
    let about = about::read(&mut fields, root);
    fields.unknown(root, sources::MANIFEST_KEYS);
    Arc::new(Declared { about, sources, inline })
}

#[cfg(test)]
mod tests;
