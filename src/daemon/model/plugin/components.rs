//! Components that a plugin declares for a host to start.

use super::ComponentKind;
use crate::daemon::model::DynamicValue;
use caproot_core::wire::{ContentDigest, RelPath};
use std::collections::HashSet;

/// Components that a plugin declares for a host to start. Untrusted.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PluginComponents {
    /// MCP servers.
    pub mcp_servers: Vec<McpServer>,
    /// Components of all other kinds.
    pub others: Vec<PluginComponent>,
}

/// One component that is not an MCP server.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginComponent {
    /// Kind of the component; neither MCP servers nor skills.
    pub kind: ComponentKind,
    /// Name of 1 to 128 characters without control characters.
    pub name: Box<str>,
    /// Path of the declaring file below the plugin.
    pub file: RelPath,
    /// Mapping as declared, without possible secrets. The keys are in byte order.
    pub declaration: DynamicValue,
    /// Whether a part of the declaration is redacted.
    pub redacted: bool,
    /// Digest of the whole file; `None` if the file is over `max_file_bytes`.
    pub digest: Option<ContentDigest>,
    /// Size of the file in bytes.
    pub size: u64,
}

/// One MCP server.
#[derive(Debug, Clone, PartialEq)]
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
    /// Digest of the whole file.
    pub digest: Option<ContentDigest>,
    /// Mapping of the other keys, without possible secrets; null if there are none.
    pub more: DynamicValue,
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

impl PluginComponents {
    /// Sets the file that declares the components.
    #[must_use]
    pub fn with_file(mut self, file: &RelPath) -> Self {
        for server in &mut self.mcp_servers {
            server.declared_by = file.clone();
        }
        for component in &mut self.others {
            component.file = file.clone();
        }
        self
    }

    /// Sets the digest and the size of the file that declares the components.
    #[must_use]
    pub fn with_content(mut self, bytes: &[u8]) -> Self {
        let digest = ContentDigest::of(bytes);
        for server in &mut self.mcp_servers {
            server.digest = Some(digest);
        }
        for component in &mut self.others {
            component.digest = Some(digest);
            component.size = bytes.len() as u64;
        }
        self
    }

    /// Removes each server whose name is declared again later, as Claude Code and Codex do.
    pub fn keep_last_servers(&mut self) {
        let mut seen = HashSet::new();
        self.mcp_servers.reverse();
        self.mcp_servers
            .retain(|server| seen.insert(server.name.clone()));
        self.mcp_servers.reverse();

        seen.clear();
        self.others.reverse();
        self.others.retain(|component| {
            component.kind != ComponentKind::LspServers || seen.insert(component.name.clone())
        });
        self.others.reverse();
    }

    /// Appends the components of `more`.
    pub fn extend(&mut self, more: Self) {
        self.mcp_servers.extend(more.mcp_servers);
        self.others.extend(more.others);
    }
}
