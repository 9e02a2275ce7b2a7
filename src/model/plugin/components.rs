//! Components that a plugin declares for a host to start.

use caproot_core::wire::{ContentDigest, RelPath};

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

/// One app or connector.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // documented by the proto message `App`
pub struct PluginApp {
    pub name: Box<str>,
    pub id: Box<str>,
    pub category: Option<Box<str>>,
    pub required: Option<bool>,
    /// Path of the declaring file below the plugin.
    pub declared_by: RelPath,
}

/// One hook.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // documented by the proto message `Hook`
pub struct PluginHook {
    pub event: Box<str>,
    pub matcher: Box<str>,
    pub kind: Box<str>,
    pub command: Box<str>,
    pub args: Box<[Box<str>]>,
    pub url: Box<str>,
    pub prompt: Box<str>,
    pub timeout_ms: Option<u64>,
    pub redacted: bool,
    /// Path of the declaring file below the plugin.
    pub declared_by: RelPath,
}

/// One LSP server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // documented by the proto message `LspServer`
pub struct LspServer {
    pub name: Box<str>,
    pub command: Box<str>,
    pub args: Box<[Box<str>]>,
    pub environment: Box<[Box<str>]>,
    /// As declared, such as `.rs=rust`.
    pub extensions: Box<[Box<str>]>,
    pub redacted: bool,
    /// Path of the declaring file below the plugin.
    pub declared_by: RelPath,
}

/// One MCP server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // documented by the proto message `McpServer`
pub struct McpServer {
    pub name: Box<str>,
    pub transport: McpTransport,
    pub command: Box<str>,
    pub args: Box<[Box<str>]>,
    /// Path below the plugin.
    pub cwd: RelPath,
    pub url: Box<str>,
    pub headers: Box<[NamedValue]>,
    pub environment: Box<[NamedValue]>,
    pub bearer_token_variable: Option<Box<str>>,
    pub description: Option<Box<str>>,
    pub enabled: Option<bool>,
    pub required: Option<bool>,
    pub enabled_tools: Option<Box<[Box<str>]>>,
    pub disabled_tools: Box<[Box<str>]>,
    pub startup_timeout_ms: Option<u64>,
    pub tool_timeout_ms: Option<u64>,
    /// Whether a value of the declaration is redacted.
    pub redacted: bool,
    /// Path of the declaring file below the plugin.
    pub declared_by: RelPath,
}

/// Transport of an MCP server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // documented by the proto enum `McpTransport`
pub enum McpTransport {
    Stdio,
    StreamableHttp,
    Sse,
}

/// HTTP header or environment variable of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedValue {
    /// Name of the header or variable.
    pub name: Box<str>,
    /// Value; `None` if it may be a secret.
    pub value: Option<Box<str>>,
    /// Environment variable of the host that has the value.
    pub from_variable: Option<Box<str>>,
}

/// One agent, command or output style.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // documented by the proto messages `Agent`, `Command` and `OutputStyle`
pub struct PluginPrompt {
    pub name: Box<str>,
    pub description: Box<str>,
    pub model: Box<str>,
    pub tools: Box<[Box<str>]>,
    pub argument_hint: Box<str>,
    /// Digest of the whole file; `None` if the file is over `max_file_bytes`.
    pub digest: Option<ContentDigest>,
    /// Size of the file in bytes.
    pub size: u64,
    /// Path of the file below the plugin.
    pub file: RelPath,
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
