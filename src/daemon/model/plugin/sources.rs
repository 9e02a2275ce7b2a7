//! Sources of a plugin's components: the manifest itself, files and directories that the manifest
//! names, or default paths.

use caproot_core::wire::RelPath;

/// Kind of a component, and the form of its source.
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
    /// Skills: directories. The scan finds skills without a declaration.
    Skills,
}

/// Product whose rules a manifest follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ManifestProduct {
    /// Codex: `.codex-plugin/plugin.json`.
    Codex,
    /// Claude Code: `.claude-plugin/plugin.json`.
    Claude,
    /// Cursor: `.cursor-plugin/plugin.json`.
    Cursor,
}

impl ManifestProduct {
    /// Returns the product of a manifest by its path below the plugin.
    #[must_use]
    pub fn of_manifest(file: &RelPath) -> Self {
        match file.segments().next() {
            Some(b".claude-plugin") => Self::Claude,
            Some(b".cursor-plugin") => Self::Cursor,
            _ => Self::Codex,
        }
    }
}

/// Sources of a plugin's components outside of the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ComponentSources {
    /// Paths below the plugin that the manifest names.
    pub named_paths: Vec<(ComponentKind, RelPath)>,
    /// Kinds that the manifest declares.
    pub declared_kinds: Vec<ComponentKind>,
}

impl ComponentKind {
    /// All kinds.
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

    /// Returns the key of this kind in a manifest.
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

    /// Returns the word for a component of this kind in a message.
    #[must_use]
    pub fn noun(self) -> &'static str {
        match self {
            Self::McpServers => "MCP server",
            Self::Apps => "app",
            Self::Hooks => "hook",
            Self::LspServers => "LSP server",
            Self::Agents => "agent",
            Self::Commands => "command",
            Self::OutputStyles => "output style",
            Self::Skills => "skill",
        }
    }

    /// Whether the kind is declared in JSON. Clients cannot read these files.
    #[must_use]
    pub fn is_json(self) -> bool {
        matches!(
            self,
            Self::McpServers | Self::Apps | Self::Hooks | Self::LspServers
        )
    }

    /// Returns the paths of this kind if the manifest names none. The first existing path is used.
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
    /// Returns the paths of a kind that the manifest names.
    pub fn named_paths(&self, kind: ComponentKind) -> impl Iterator<Item = &RelPath> {
        self.named_paths
            .iter()
            .filter(move |(named, _)| *named == kind)
            .map(|(_, path)| path)
    }

    /// Returns the default paths of a kind, of which the first that exists is used. Returns none if the
    /// key of the kind replaces them. Source of the rules: "Plugin manifest reference" of Claude Code,
    /// "How each key combines with its default location".
    #[must_use]
    pub fn default_paths(&self, kind: ComponentKind, product: ManifestProduct) -> Vec<RelPath> {
        let is_replaced = match product {
            ManifestProduct::Claude => !matches!(
                kind,
                ComponentKind::McpServers | ComponentKind::Hooks | ComponentKind::LspServers
            ),
            ManifestProduct::Codex | ManifestProduct::Cursor => kind.is_json(),
        };
        if is_replaced && self.declared_kinds.contains(&kind) {
            return Vec::new();
        }
        let paths = kind.default_paths().iter();
        paths
            .filter_map(|path| RelPath::new(path.as_bytes()))
            .collect()
    }
}
