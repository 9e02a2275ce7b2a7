//! Where a plugin's components are declared: in its manifest, in files and directories that this names,
//! or in the usual places. Leaves looking there to `disk`.

use super::fields::{At, Fields, MAX_ITEMS, MAX_TEXT};
use super::{Components, about, apps, hooks, lsp, servers};
use crate::domain::{RelPath, Value};

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
pub enum Kind {
    /// MCP servers: a JSON file.
    Servers,
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
pub struct Sources {
    /// Places below the plugin that the manifest names.
    named: Vec<(Kind, RelPath)>,
    /// Kinds of JSON that the manifest declares, so that the usual place is not looked at.
    declared: Vec<Kind>,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::Servers,
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
    pub fn key(self) -> &'static str {
        match self {
            Self::Servers => "mcpServers",
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
        matches!(self, Self::Servers | Self::Apps | Self::Hooks | Self::LspServers)
    }

    /// Where it is where the manifest does not say; the first that exists counts.
    #[must_use]
    pub fn usual_places(self) -> &'static [&'static str] {
        match self {
            Self::Servers => &[".mcp.json", "mcp.json"],
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

impl Sources {
    /// The places of a kind that the manifest names.
    pub fn named(&self, kind: Kind) -> impl Iterator<Item = &RelPath> {
        self.named.iter().filter(move |(named, _)| *named == kind).map(|(_, place)| place)
    }

    /// The places of a kind of which the first that exists counts; none where the manifest declares
    /// the kind in JSON.
    #[must_use]
    pub fn usual(&self, kind: Kind) -> Vec<RelPath> {
        if self.declared.contains(&kind) {
            return Vec::new();
        }
        kind.usual_places().iter().filter_map(|path| RelPath::new(path.as_bytes())).collect()
    }
}

/// Reads the keys of a manifest that declare something.
pub(super) fn read(fields: &mut Fields<'_>, root: At<'_>) -> (Sources, Components) {
    let (mut sources, mut inline) = (Sources::default(), Components::default());
    for kind in Kind::ALL {
        let Some(value) = root.get(kind.key()) else { continue };
        if kind.is_json() {
            sources.declared.push(kind);
        }
        let items = match value {
            Value::List(items) => &items[..items.len().min(MAX_ITEMS)],
            other => std::slice::from_ref(other),
        };
        for item in items {
            match item {
                Value::Text(text) if text.chars().count() <= MAX_TEXT => {
                    if let Some(place) = about::inside(fields, kind.key(), text) {
                        sources.named.push((kind, place));
                    }
                }
                Value::Map(_) if kind.is_json() => {
                    inline.extend(components(fields, kind, item));
                }
                other => fields.wrong(root, kind.key(), other, "a path, or what such a file holds"),
            }
        }
    }
    sources.named.dedup();
    (sources, inline)
}

/// What an object of this kind declares, in a file or in the manifest.
pub(super) fn components(fields: &mut Fields<'_>, kind: Kind, value: &Value) -> Components {
    let mut found = Components::default();
    match kind {
        Kind::Servers => found.servers = servers::read(fields, value),
        Kind::Apps => found.apps = apps::read(fields, value),
        Kind::Hooks => found.hooks = hooks::read(fields, value),
        Kind::LspServers => found.lsp_servers = lsp::read(fields, value),
        Kind::Agents | Kind::Commands | Kind::OutputStyles | Kind::Skills => {}
    }
    found
}
