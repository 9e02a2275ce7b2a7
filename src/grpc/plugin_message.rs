//! Protobuf messages for plugins and marketplaces.

use super::root_messages::handle_or_empty;
use crate::model::plugin::{
    LspServer, MarketplaceEntry, McpServer, McpTransport, NamedValue, PluginApp, PluginAuthor,
    PluginComponents, PluginHook, PluginInfo, PluginInterface, PluginPrompt,
};
use crate::model::{Plugin, PluginMarketplace};
use caproot_core::proto::caproot::v1 as pb;
use caproot_core::wire::{ContentDigest, RelPath, RootId};

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
        interface,
    } = &plugin.manifest.declarations.info;

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
        name: (*plugin.manifest.name).to_owned(),
        version: (*plugin.manifest.version).to_owned(),
        description: text(description.as_deref()),
        keywords: texts(keywords),
        author: author.as_ref().map(self::author),
        homepage: text(homepage.as_deref()),
        repository: text(repository.as_deref()),
        license: text(license.as_deref()),
        interface: interface
            .as_ref()
            .map(|interface| encoder.interface(interface, plugin)),
        required_capabilities: required_capabilities(&plugin.components)
            .map(Into::into)
            .collect(),
        components: Some(encoder.components(&plugin.components)),
        stale: plugin.stale,
        truncated: plugin.truncated,
    }
}

/// Builds the message of a marketplace below the root with this id.
pub fn marketplace_message(root: &RootId, list: &PluginMarketplace) -> pb::Marketplace {
    pb::Marketplace {
        declared_by: handle_or_empty(root, Some(&list.declared_by)),
        name: (*list.name).to_owned(),
        display_name: text(list.display_name.as_deref()),
        description: text(list.description.as_deref()),
        version: text(list.version.as_deref()),
        owner: list.owner.as_ref().map(author),
        plugins: list
            .entries
            .iter()
            .map(|e| marketplace_entry(root, e))
            .collect(),
        truncated: list.truncated,
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

    fn image_handle(&self, file: Option<&RelPath>) -> String {
        file.map(|file| self.handle(file)).unwrap_or_default()
    }

    fn interface(&self, interface: &PluginInterface, plugin: &Plugin) -> pb::PluginInterface {
        let [composer_icon, logo, logo_dark] = &plugin.images;

        pb::PluginInterface {
            display_name: text(interface.display_name.as_deref()),
            short_description: text(interface.short_description.as_deref()),
            long_description: text(interface.long_description.as_deref()),
            developer_name: text(interface.developer_name.as_deref()),
            category: text(interface.category.as_deref()),
            capabilities: texts(&interface.capabilities),
            website_url: text(interface.website_url.as_deref()),
            privacy_policy_url: text(interface.privacy_policy_url.as_deref()),
            terms_of_service_url: text(interface.terms_of_service_url.as_deref()),
            default_prompts: texts(&interface.default_prompts),
            brand_color: text(interface.brand_color.as_deref()),
            composer_icon: self.image_handle(composer_icon.as_ref()),
            logo: self.image_handle(logo.as_ref()),
            logo_dark: self.image_handle(logo_dark.as_ref()),
            screenshots: plugin
                .screenshots
                .iter()
                .map(|file| self.handle(file))
                .collect(),
        }
    }

    fn components(&self, components: &PluginComponents) -> pb::PluginComponents {
        pb::PluginComponents {
            mcp_servers: components
                .mcp_servers
                .iter()
                .map(|c| self.server(c))
                .collect(),
            apps: components.apps.iter().map(|c| self.app(c)).collect(),
            hooks: components.hooks.iter().map(|c| self.hook(c)).collect(),
            agents: components.agents.iter().map(|c| self.agent(c)).collect(),
            commands: components
                .commands
                .iter()
                .map(|c| self.command(c))
                .collect(),
            output_styles: components
                .output_styles
                .iter()
                .map(|c| self.output_style(c))
                .collect(),
            lsp_servers: components
                .lsp_servers
                .iter()
                .map(|c| self.lsp_server(c))
                .collect(),
        }
    }

    fn server(&self, server: &McpServer) -> pb::McpServer {
        let transport = match server.transport {
            McpTransport::Stdio => pb::McpTransport::Stdio,
            McpTransport::StreamableHttp => pb::McpTransport::StreamableHttp,
            McpTransport::Sse => pb::McpTransport::Sse,
        };
        let enabled_tools = server.enabled_tools.as_ref();

        pb::McpServer {
            name: (*server.name).to_owned(),
            transport: transport.into(),
            command: (*server.command).to_owned(),
            args: texts(&server.args),
            cwd: String::from_utf8_lossy(server.cwd.as_bytes()).into_owned(),
            url: (*server.url).to_owned(),
            headers: server.headers.iter().map(named_value).collect(),
            environment: server.environment.iter().map(named_value).collect(),
            bearer_token_variable: text(server.bearer_token_variable.as_deref()),
            description: text(server.description.as_deref()),
            enabled: server.enabled,
            required: server.required,
            enabled_tools: enabled_tools.map(|names| pb::ToolNames {
                names: texts(names),
            }),
            disabled_tools: texts(&server.disabled_tools),
            startup_timeout_ms: server.startup_timeout_ms,
            tool_timeout_ms: server.tool_timeout_ms,
            redacted: server.redacted,
            declared_by: self.handle(&server.declared_by),
        }
    }

    fn app(&self, app: &PluginApp) -> pb::App {
        pb::App {
            name: (*app.name).to_owned(),
            id: (*app.id).to_owned(),
            category: text(app.category.as_deref()),
            required: app.required,
            declared_by: self.handle(&app.declared_by),
        }
    }

    fn hook(&self, hook: &PluginHook) -> pb::Hook {
        pb::Hook {
            event: (*hook.event).to_owned(),
            matcher: (*hook.matcher).to_owned(),
            kind: (*hook.kind).to_owned(),
            command: (*hook.command).to_owned(),
            args: texts(&hook.args),
            url: (*hook.url).to_owned(),
            prompt: (*hook.prompt).to_owned(),
            timeout_ms: hook.timeout_ms,
            redacted: hook.redacted,
            declared_by: self.handle(&hook.declared_by),
        }
    }

    fn agent(&self, agent: &PluginPrompt) -> pb::Agent {
        pb::Agent {
            name: (*agent.name).to_owned(),
            description: (*agent.description).to_owned(),
            model: (*agent.model).to_owned(),
            tools: texts(&agent.tools),
            resource: self.handle(&agent.file),
            digest: prompt_digest(agent),
            size_bytes: agent.size,
        }
    }

    fn command(&self, command: &PluginPrompt) -> pb::Command {
        pb::Command {
            name: (*command.name).to_owned(),
            description: (*command.description).to_owned(),
            argument_hint: (*command.argument_hint).to_owned(),
            model: (*command.model).to_owned(),
            allowed_tools: texts(&command.tools),
            resource: self.handle(&command.file),
            digest: prompt_digest(command),
            size_bytes: command.size,
        }
    }

    fn output_style(&self, style: &PluginPrompt) -> pb::OutputStyle {
        pb::OutputStyle {
            name: (*style.name).to_owned(),
            description: (*style.description).to_owned(),
            resource: self.handle(&style.file),
            digest: prompt_digest(style),
            size_bytes: style.size,
        }
    }

    fn lsp_server(&self, server: &LspServer) -> pb::LspServer {
        pb::LspServer {
            name: (*server.name).to_owned(),
            command: (*server.command).to_owned(),
            args: texts(&server.args),
            environment: texts(&server.environment),
            extensions: texts(&server.extensions),
            redacted: server.redacted,
            declared_by: self.handle(&server.declared_by),
        }
    }
}

/// Returns the capabilities that a host needs, in the order of the enum.
fn required_capabilities(
    components: &PluginComponents,
) -> impl Iterator<Item = pb::HostCapability> {
    use pb::HostCapability as Host;
    let transports: Vec<_> = components
        .mcp_servers
        .iter()
        .filter(|server| server.enabled != Some(false))
        .map(|server| server.transport)
        .collect();

    let capabilities = [
        (transports.contains(&McpTransport::Stdio), Host::McpStdio),
        (
            transports.contains(&McpTransport::StreamableHttp),
            Host::McpStreamableHttp,
        ),
        (transports.contains(&McpTransport::Sse), Host::McpSse),
        (!components.apps.is_empty(), Host::Apps),
        (!components.hooks.is_empty(), Host::Hooks),
        (!components.agents.is_empty(), Host::Agents),
        (!components.commands.is_empty(), Host::Commands),
        (!components.output_styles.is_empty(), Host::OutputStyles),
        (!components.lsp_servers.is_empty(), Host::Lsp),
    ];
    capabilities
        .into_iter()
        .filter(|(is_required, _)| *is_required)
        .map(|(_, host)| host)
}

fn marketplace_entry(root: &RootId, entry: &MarketplaceEntry) -> pb::MarketplaceEntry {
    pb::MarketplaceEntry {
        name: (*entry.name).to_owned(),
        description: text(entry.description.as_deref()),
        version: text(entry.version.as_deref()),
        category: text(entry.category.as_deref()),
        package: handle_or_empty(root, entry.package.as_ref()),
        source_kind: (*entry.source_kind).to_owned(),
        source: (*entry.source).to_owned(),
        installation: text(entry.installation.as_deref()),
        authentication: text(entry.authentication.as_deref()),
    }
}

fn author(author: &PluginAuthor) -> pb::Author {
    pb::Author {
        name: text(author.name.as_deref()),
        email: text(author.email.as_deref()),
        url: text(author.url.as_deref()),
    }
}

fn named_value(value: &NamedValue) -> pb::NamedValue {
    pb::NamedValue {
        name: (*value.name).to_owned(),
        value: value.value.as_ref().map(ToString::to_string),
        from_variable: text(value.from_variable.as_deref()),
    }
}

fn prompt_digest(prompt: &PluginPrompt) -> String {
    prompt
        .digest
        .as_ref()
        .map(ContentDigest::to_string)
        .unwrap_or_default()
}

fn text(text: Option<&str>) -> String {
    text.unwrap_or_default().to_owned()
}

fn texts(list: &[Box<str>]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}
