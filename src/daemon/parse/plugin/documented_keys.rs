//! Keys that Codex and Claude Code document and the daemon does not interpret, as of 2026-11-27. They are
//! passed on, and are no spelling mistakes.
//!
//! Sources: "Plugin manifest reference", "Marketplace reference" and "Connect to MCP servers" of Claude
//! Code (code.claude.com/docs); `RawPluginManifest` and `RawMcpServerConfig` of Codex
//! (github.com/openai/codex). The page `docs/author/plugin-keys.md` has the same tables.

/// Keys of a manifest.
pub const MANIFEST: &[&str] = &[
    "channels",
    "dependencies",
    "documentationUrl",
    "experimental",
    "icon",
    "metadata",
    "monitors",
    "privacyPolicyUrl",
    "requires",
    "retrieval",
    "settings",
    "supportUrl",
    "tags",
    "termsOfServiceUrl",
    "themes",
    "types",
    "userConfig",
    "workflows",
];

/// Keys of an MCP server.
pub const MCP_SERVER: &[&str] = &[
    "alwaysLoad",
    "default_tools_approval_mode",
    "environment_id",
    "headersHelper",
    "http_headers_helper",
    "name",
    "oauth",
    "oauth_resource",
    "omit_tools_from",
    "requires",
    "scopes",
    "supports_parallel_tool_calls",
    "tools",
];

/// Keys of a marketplace.
pub const MARKETPLACE: &[&str] = &[
    "allowCrossMarketplaceDependenciesOn",
    "forceRemoveDeletedPlugins",
    "homepage",
    "renames",
    "repository",
];

/// Keys of a plugin in a marketplace, in addition to those of a manifest.
pub const MARKETPLACE_ENTRY: &[&str] = &[
    "agents",
    "apps",
    "author",
    "commands",
    "defaultEnabled",
    "displayName",
    "headers",
    "headersHelper",
    "homepage",
    "hooks",
    "interface",
    "keywords",
    "license",
    "lspServers",
    "mcpServers",
    "outputStyles",
    "policy",
    "relevance",
    "repository",
    "strict",
];
