//! Where a plugin's components are declared: in its manifest, in files and directories that this names,
//! or in the usual places. Leaves looking there to `disk`.

use super::fields::{LabeledMapping, MAX_ITEMS, MAX_TEXT_CHARS, PluginFieldReader};
use super::{PluginComponents, apps, hooks, lsp_servers, mcp_servers, secret_filter};
use crate::domain::limits::MAX_MANIFEST_BYTES;
use crate::domain::{DiagnosticCode, DynamicValue, FileProblem, RelPath, json};

/// Every key of a manifest that is known, in any of the formats.
pub(super) const MANIFEST_KEYS: &[&str] = &[
    "name",
    "version",
    "description",
    "keywords",
    "author",
    "homepage",
    "repository",
    "license",
    "interface",
    "displayName",
    "category",
    "tags",
    "logo",
    "skills",
    "mcpServers",
    "apps",
    "hooks",
    "agents",
    "commands",
    "outputStyles",
    "lspServers",
];

/// What is declared at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ComponentKind {
    /// MCP servers: a JSON file.
    McpServers,
    /// Apps and connectors: a JSON file.
    Apps,
    /// Hooks: a JSON file.
    Hooks,
    /// LSP servers: a JSON file.
    LspServers,
    /// Agents: Markdown files.
    Agents,
    /// Commands: Markdown files.
    Commands,
    /// Output styles: Markdown files.
    OutputStyles,
    /// Skills, which are found without being named.
    Skills,
}

/// Where a plugin's components are declared, beside its manifest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ComponentSources {
    /// Places below the plugin that the manifest names.
    named_paths: Vec<(ComponentKind, RelPath)>,
    /// Kinds of JSON that the manifest declares, so that the usual place is not looked at.
    declared_json_kinds: Vec<ComponentKind>,
}

impl ComponentKind {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::McpServers,
        Self::Apps,
        Self::Hooks,
        Self::LspServers,
        Self::Agents,
        Self::Commands,
        Self::OutputStyles,
        Self::Skills,
    ];

    /// The manifest's key for it.
    #[must_use]
    pub fn manifest_key(self) -> &'static str {
        match self {
            Self::McpServers => "mcpServers",
            Self::Apps => "apps",
            Self::Hooks => "hooks",
            Self::LspServers => "lspServers",
            Self::Agents => "agents",
            Self::Commands => "commands",
            Self::OutputStyles => "outputStyles",
            Self::Skills => "skills",
        }
    }

    /// Whether it is declared in JSON, which is never handed out as a file.
    #[must_use]
    pub fn is_json(self) -> bool {
        matches!(self, Self::McpServers | Self::Apps | Self::Hooks | Self::LspServers)
    }

    /// Where it is where the manifest does not say; the first that exists counts.
    #[must_use]
    pub fn default_paths(self) -> &'static [&'static str] {
        match self {
            Self::McpServers => &[".mcp.json", "mcp.json"],
            Self::Apps => &[".app.json"],
            Self::Hooks => &["hooks/hooks.json", "hooks.json"],
            Self::LspServers => &[".lsp.json"],
            Self::Agents => &["agents"],
            Self::Commands => &["commands"],
            Self::OutputStyles => &["output-styles"],
            Self::Skills => &[],
        }
    }
}

impl ComponentSources {
    /// The places of a kind that the manifest names.
    pub fn named_paths(&self, kind: ComponentKind) -> impl Iterator<Item = &RelPath> {
        self.named_paths.iter().filter(move |(named, _)| *named == kind).map(|(_, place)| place)
    }

    /// The places of a kind of which the first that exists counts; none where the manifest declares
    /// the kind in JSON.
    #[must_use]
    pub fn default_paths(&self, kind: ComponentKind) -> Vec<RelPath> {
        if self.declared_json_kinds.contains(&kind) {
            return Vec::new();
        }
        kind.default_paths().iter().filter_map(|path| RelPath::new(path.as_bytes())).collect()
    }
}

/// Reads the keys of a manifest that declare something.
pub(super) fn read(
    fields: &mut PluginFieldReader<'_>,
    root: LabeledMapping<'_>,
) -> (ComponentSources, PluginComponents) {
    let (mut sources, mut inline) = (ComponentSources::default(), PluginComponents::default());
    for kind in ComponentKind::ALL {
        let Some(value) = root.non_null_value(kind.manifest_key()) else { continue };
        if kind.is_json() {
            sources.declared_json_kinds.push(kind);
        }
        let items = match value {
            DynamicValue::List(items) => &items[..items.len().min(MAX_ITEMS)],
            other => std::slice::from_ref(other),
        };
        for item in items {
            match item {
                DynamicValue::Text(text) if text.chars().count() <= MAX_TEXT_CHARS => {
                    if let Some(place) = fields.parse_plugin_path(kind.manifest_key(), text) {
                        sources.named_paths.push((kind, place));
                    }
                }
                DynamicValue::Map(_) if kind.is_json() => {
                    inline.extend(read_components(fields, kind, item));
                }
                other => fields.report_wrong_type(
                    root,
                    kind.manifest_key(),
                    other,
                    "a path, or what such a file holds",
                ),
            }
        }
    }
    sources.named_paths.dedup();
    (sources, inline)
}

/// Reads a file of a kind that is declared in JSON: all its bytes, or `MAX_MANIFEST_BYTES` + 1 of them.
/// `None` where it cannot be used at all, which the last problem says.
#[must_use]
pub fn read_file(
    kind: ComponentKind,
    bytes: &[u8],
) -> (Option<PluginComponents>, Vec<FileProblem>) {
    let invalid = |why: String| FileProblem::error(DiagnosticCode::PluginFileInvalid, why);
    if bytes.len() > MAX_MANIFEST_BYTES {
        let why = format!("the file is over {MAX_MANIFEST_BYTES} bytes; nothing of it is reported");
        return (None, vec![invalid(why)]);
    }
    let value = match json::parse(bytes) {
        Ok(value) => value,
        Err(e) => {
            return (
                None,
                vec![
                    invalid(secret_filter::redact_in_text(&e.message))
                        .with_position(e.line, e.column),
                ],
            );
        }
    };
    if value.as_map().is_none() {
        let why = format!("the file is {}, and must be an object", value.kind());
        return (None, vec![invalid(why).with_position(1, 1)]);
    }
    let mut problems = Vec::new();
    let components = read_components(&mut PluginFieldReader::new(&mut problems), kind, &value);
    (Some(components), problems)
}

/// What an object of this kind declares, in a file or in the manifest.
fn read_components(
    fields: &mut PluginFieldReader<'_>,
    kind: ComponentKind,
    value: &DynamicValue,
) -> PluginComponents {
    let mut found = PluginComponents::default();
    match kind {
        ComponentKind::McpServers => found.mcp_servers = mcp_servers::read(fields, value),
        ComponentKind::Apps => found.apps = apps::read(fields, value),
        ComponentKind::Hooks => found.hooks = hooks::read(fields, value),
        ComponentKind::LspServers => found.lsp_servers = lsp_servers::read(fields, value),
        ComponentKind::Agents
        | ComponentKind::Commands
        | ComponentKind::OutputStyles
        | ComponentKind::Skills => {}
    }
    found
}
