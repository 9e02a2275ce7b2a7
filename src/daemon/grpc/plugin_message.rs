//! Protobuf messages for plugins and marketplaces.

use super::root_messages::handle_or_empty;
use super::skill_message::{text_or_empty, to_struct, trust_state};
use crate::daemon::model::plugin::{
    ComponentKind, MarketplaceEntry, McpServer, McpTransport, NamedValue, PluginAuthor,
    PluginComponent, PluginComponents, PluginInfo, PluginInterface,
};
use crate::daemon::model::{DynamicValue, Plugin, PluginMarketplace};
use caproot_core::proto::caproot::v1 as pb;
use caproot_core::wire::handle::format_server_handle;
use caproot_core::wire::{ContentDigest, RelPath, RootId};
use prost_types::Struct;

/// Builds the message of a plugin below the root with this id.
pub fn plugin_message(root: &RootId, plugin: &Plugin) -> pb::Plugin {
    let encoder = PluginEncoder {
        root,
        package: &plugin.package,
    };
    let PluginInfo {
        description,
        keywords,
        author,
        homepage,
        repository,
        license,
        host_capabilities,
        interface,
    } = &plugin.manifest.declarations.info;
    let components = &plugin.components;

    pb::Plugin {
        authority: Some(pb::Authority {
            kind: "executor".to_owned(),
            id: root.as_str().to_owned(),
        }),
        package: handle_or_empty(root, Some(&plugin.package)),
        manifest: encoder.handle(&plugin.manifest_file),
        other_manifests: plugin
            .other_manifests
            .iter()
            .map(|file| encoder.handle(file))
            .collect(),
        name: plugin.manifest.name.to_string(),
        version: plugin.manifest.version.to_string(),
        description: text_or_empty(description.as_deref()),
        keywords: texts(keywords),
        author: author.as_ref().map(self::author),
        homepage: text_or_empty(homepage.as_deref()),
        repository: text_or_empty(repository.as_deref()),
        license: text_or_empty(license.as_deref()),
        interface: interface
            .as_ref()
            .map(|interface| encoder.interface(interface, plugin)),
        required_capabilities: required_capabilities(components),
        mcp_servers: components
            .mcp_servers
            .iter()
            .map(|server| encoder.server(server))
            .collect(),
        components: components
            .others
            .iter()
            .map(|component| encoder.component(component))
            .collect(),
        stale: plugin.stale,
        truncated: plugin.truncated,
        switched_off: plugin.manifest.declarations.is_switched_off,
        more: other_keys(&plugin.manifest.declarations.more),
        trust: plugin
            .trust
            .as_ref()
            .map_or(0, |trust| trust_state(trust).into()),
        host_capabilities: texts(host_capabilities),
    }
}

/// Builds the message of a marketplace below the root with this id.
pub fn marketplace_message(root: &RootId, list: &PluginMarketplace) -> pb::Marketplace {
    pb::Marketplace {
        declared_by: handle_or_empty(root, Some(&list.declared_by)),
        name: list.name.to_string(),
        display_name: text_or_empty(list.display_name.as_deref()),
        description: text_or_empty(list.description.as_deref()),
        version: text_or_empty(list.version.as_deref()),
        owner: list.owner.as_ref().map(author),
        plugins: list
            .entries
            .iter()
            .map(|e| marketplace_entry(root, e))
            .collect(),
        truncated: list.truncated,
        more: other_keys(&list.more),
    }
}

/// Builder of the messages of one plugin.
struct PluginEncoder<'a> {
    root: &'a RootId,
    package: &'a RelPath,
}

impl PluginEncoder<'_> {
    /// Returns the handle of a file of the plugin.
    fn handle(&self, file: &RelPath) -> String {
        handle_or_empty(self.root, Some(&self.package.join_path(file)))
    }

    fn interface(&self, interface: &PluginInterface, plugin: &Plugin) -> pb::PluginInterface {
        let images = plugin.images.each_ref();
        let [composer_icon, logo, logo_dark] = images.map(|file| {
            file.as_ref()
                .map(|file| self.handle(file))
                .unwrap_or_default()
        });

        pb::PluginInterface {
            display_name: text_or_empty(interface.display_name.as_deref()),
            short_description: text_or_empty(interface.short_description.as_deref()),
            long_description: text_or_empty(interface.long_description.as_deref()),
            developer_name: text_or_empty(interface.developer_name.as_deref()),
            category: text_or_empty(interface.category.as_deref()),
            capabilities: texts(&interface.capabilities),
            website_url: text_or_empty(interface.website_url.as_deref()),
            privacy_policy_url: text_or_empty(interface.privacy_policy_url.as_deref()),
            terms_of_service_url: text_or_empty(interface.terms_of_service_url.as_deref()),
            default_prompts: texts(&interface.default_prompts),
            brand_color: text_or_empty(interface.brand_color.as_deref()),
            composer_icon,
            logo,
            logo_dark,
            screenshots: plugin
                .screenshots
                .iter()
                .map(|file| self.handle(file))
                .collect(),
        }
    }

    fn server(&self, server: &McpServer) -> pb::McpServer {
        let transport = match server.transport {
            McpTransport::Stdio => pb::McpTransport::Stdio,
            McpTransport::StreamableHttp => pb::McpTransport::StreamableHttp,
            McpTransport::Sse => pb::McpTransport::Sse,
        };

        pb::McpServer {
            name: server.name.to_string(),
            transport: transport.into(),
            command: server.command.to_string(),
            args: texts(&server.args),
            cwd: String::from_utf8_lossy(server.cwd.as_bytes()).into_owned(),
            url: server.url.to_string(),
            headers: server.headers.iter().map(named_value).collect(),
            environment: server.environment.iter().map(named_value).collect(),
            bearer_token_variable: text_or_empty(server.bearer_token_variable.as_deref()),
            description: text_or_empty(server.description.as_deref()),
            enabled: server.enabled,
            required: server.required,
            enabled_tools: server.enabled_tools.as_ref().map(|names| pb::ToolNames {
                names: texts(names),
            }),
            disabled_tools: texts(&server.disabled_tools),
            startup_timeout_ms: server.startup_timeout_ms,
            tool_timeout_ms: server.tool_timeout_ms,
            redacted: server.redacted,
            declared_by: self.handle(&server.declared_by),
            more: other_keys(&server.more),
            handle: format_server_handle(&self.handle(&RelPath::root()), &server.name),
            digest: digest_text(server.digest),
        }
    }

    fn component(&self, component: &PluginComponent) -> pb::PluginComponent {
        pb::PluginComponent {
            kind: component_kind(component.kind).into(),
            name: component.name.to_string(),
            file: self.handle(&component.file),
            declaration: Some(to_struct(&component.declaration)),
            redacted: component.redacted,
            digest: digest_text(component.digest),
            size_bytes: component.size,
        }
    }
}

/// Returns the kind in the message of a component. Servers and skills have messages of their own.
fn component_kind(kind: ComponentKind) -> pb::ComponentKind {
    match kind {
        ComponentKind::Apps => pb::ComponentKind::App,
        ComponentKind::Hooks => pb::ComponentKind::Hook,
        ComponentKind::LspServers => pb::ComponentKind::LspServer,
        ComponentKind::Agents => pb::ComponentKind::Agent,
        ComponentKind::Commands => pb::ComponentKind::Command,
        ComponentKind::OutputStyles => pb::ComponentKind::OutputStyle,
        ComponentKind::McpServers | ComponentKind::Skills => pb::ComponentKind::Unspecified,
    }
}

/// Returns the capabilities that a host needs, in the order of the enum.
fn required_capabilities(components: &PluginComponents) -> Vec<i32> {
    let has_server = |transport| {
        let mut servers = components.mcp_servers.iter();
        servers.any(|server| server.enabled != Some(false) && server.transport == transport)
    };
    let has_kind = |kind| components.others.iter().any(|other| other.kind == kind);

    let capabilities = [
        (
            has_server(McpTransport::Stdio),
            pb::HostCapability::McpStdio,
        ),
        (
            has_server(McpTransport::StreamableHttp),
            pb::HostCapability::McpStreamableHttp,
        ),
        (has_server(McpTransport::Sse), pb::HostCapability::McpSse),
        (has_kind(ComponentKind::Apps), pb::HostCapability::Apps),
        (has_kind(ComponentKind::Hooks), pb::HostCapability::Hooks),
        (has_kind(ComponentKind::Agents), pb::HostCapability::Agents),
        (
            has_kind(ComponentKind::Commands),
            pb::HostCapability::Commands,
        ),
        (
            has_kind(ComponentKind::OutputStyles),
            pb::HostCapability::OutputStyles,
        ),
        (has_kind(ComponentKind::LspServers), pb::HostCapability::Lsp),
    ];
    capabilities
        .into_iter()
        .filter(|(is_needed, _)| *is_needed)
        .map(|(_, capability)| capability.into())
        .collect()
}

fn marketplace_entry(root: &RootId, entry: &MarketplaceEntry) -> pb::MarketplaceEntry {
    pb::MarketplaceEntry {
        name: entry.name.to_string(),
        description: text_or_empty(entry.description.as_deref()),
        version: text_or_empty(entry.version.as_deref()),
        category: text_or_empty(entry.category.as_deref()),
        package: handle_or_empty(root, entry.package.as_ref()),
        source_kind: entry.source_kind.to_string(),
        source: entry.source.to_string(),
        installation: text_or_empty(entry.installation.as_deref()),
        authentication: text_or_empty(entry.authentication.as_deref()),
        skills: entry
            .skills
            .iter()
            .map(|dir| handle_or_empty(root, Some(dir)))
            .collect(),
        more: other_keys(&entry.more),
    }
}

fn author(author: &PluginAuthor) -> pb::Author {
    pb::Author {
        name: text_or_empty(author.name.as_deref()),
        email: text_or_empty(author.email.as_deref()),
        url: text_or_empty(author.url.as_deref()),
    }
}

fn named_value(value: &NamedValue) -> pb::NamedValue {
    pb::NamedValue {
        name: value.name.to_string(),
        value: value.value.as_ref().map(ToString::to_string),
        from_variable: text_or_empty(value.from_variable.as_deref()),
    }
}

/// Returns the message of a mapping that is passed on as it is; `None` for an absent one.
fn other_keys(value: &DynamicValue) -> Option<Struct> {
    value.as_map().map(|_| to_struct(value))
}

/// Returns the text of a digest; empty for an absent one.
pub fn digest_text(digest: Option<ContentDigest>) -> String {
    digest.map(|digest| digest.to_string()).unwrap_or_default()
}

fn texts(list: &[Box<str>]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}
