//! Text of plugins: as a tree, and as lines of changes.

use super::list::trust_word;
use super::report::count_with_noun;
use crate::cli::table::truncate_to_width;
use caproot_client::{MirrorCatalog, is_of_root};
use caproot_core::proto::caproot::v1::{
    Marketplace, McpServer, McpTransport, NamedValue, Plugin, PluginComponent, TrustState,
};
use caproot_core::text::{EscapedText, collapse_whitespace, escape_text};
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

/// Maximum width of a text in a tree or line.
const MAX_TEXT_COLUMNS: usize = 100;

/// Text of a component.
#[derive(PartialEq)]
struct ComponentLine {
    kind: String,
    name: String,
    /// Name, or handle of an MCP server, by which a session chooses the server.
    label: String,
    details: String,
}

impl ComponentLine {
    fn has_name_of(&self, other: &Self) -> bool {
        (&self.kind, &self.name) == (&other.kind, &other.name)
    }
}

/// Returns the lines of the plugins and marketplaces that differ between two catalogs.
pub fn plugin_changes(before: &MirrorCatalog, now: &MirrorCatalog) -> Vec<String> {
    let (old, new) = (plugins_by_package(before), plugins_by_package(now));
    let mut lines: Vec<_> = before
        .plugins()
        .filter(|plugin| !new.contains_key(plugin.package.as_str()))
        .map(|plugin| plugin_line('-', plugin, "no longer there"))
        .collect();

    let changed = |plugin: &&Arc<Plugin>| {
        let before = old.get(plugin.package.as_str());
        before.is_none_or(|before| !Arc::ptr_eq(before, plugin) && before != plugin)
    };
    let changed: Vec<_> = now.plugins().filter(changed).collect();

    for root in now.roots() {
        for plugin in changed
            .iter()
            .filter(|plugin| is_of_root(&plugin.package, &root.id))
        {
            lines.push(match old.get(plugin.package.as_str()) {
                None => plugin_line('+', plugin, &component_counts(plugin)),
                Some(before) => plugin_line('~', plugin, &plugin_difference(before, plugin)),
            });
        }

        let lists = marketplaces_of(now, &root.id);
        if marketplaces_of(before, &root.id) != lists {
            let parts: Vec<_> = lists.into_iter().map(marketplace_text).collect();
            lines.push(format!(
                "~ marketplaces of root {}: {}",
                EscapedText(&root.id),
                join_or(&parts, "none")
            ));
        }
    }

    lines
}

fn plugins_by_package(catalog: &MirrorCatalog) -> HashMap<&str, &Arc<Plugin>> {
    catalog
        .plugins()
        .map(|plugin| (plugin.package.as_str(), plugin))
        .collect()
}

fn marketplaces_of<'a>(catalog: &'a MirrorCatalog, root: &str) -> Vec<&'a Marketplace> {
    catalog
        .marketplaces()
        .filter(|list| is_of_root(&list.declared_by, root))
        .collect()
}

/// Returns the lines of a root's plugins with their components.
pub fn plugin_tree(plugins: &[Plugin], marketplaces: &[Marketplace]) -> Vec<String> {
    let mut lines = Vec::new();
    for list in marketplaces {
        lines.push(format!("  marketplace {}", marketplace_text(list)));
    }

    for plugin in plugins {
        let mut head = format!("  plugin {}", EscapedText(&plugin.name));
        if !plugin.version.is_empty() {
            let _ = write!(head, " {}", EscapedText(&plugin.version));
        }
        let _ = write!(head, "  {}", EscapedText(&plugin.package));
        for (is_so, word) in [(plugin.stale, "stale"), (plugin.truncated, "truncated")] {
            if is_so {
                let _ = write!(head, "  {word}");
            }
        }
        let trust = trust_word(plugin.trust());
        if !trust.is_empty() {
            let _ = write!(head, "  {trust}");
        }
        lines.push(head);
        if !plugin.host_capabilities.is_empty() {
            let names = escape_text(&plugin.host_capabilities.join(", "));
            let names = truncate_to_width(&names, MAX_TEXT_COLUMNS);
            lines.push(format!("    host needs  {names}"));
        }

        for component in component_lines(plugin) {
            let mut line = format!("    {} {}", component.kind, component.label);
            if !component.details.is_empty() {
                let details = truncate_to_width(&component.details, MAX_TEXT_COLUMNS);
                let _ = write!(line, "  {details}");
            }
            lines.push(line);
        }
    }

    lines
}

fn marketplace_text(list: &Marketplace) -> String {
    let plugins = count_with_noun(list.plugins.len(), "plugin");
    format!("{}: {plugins}", EscapedText(&list.name))
}

fn plugin_line(sign: char, plugin: &Plugin, what: &str) -> String {
    format!(
        "{sign} plugin {}  {}  {what}",
        EscapedText(&plugin.name),
        EscapedText(&plugin.package)
    )
}

/// Counts the components of each kind.
fn component_counts(plugin: &Plugin) -> String {
    let mut kinds: Vec<(String, usize)> = Vec::new();
    for ComponentLine { kind, .. } in component_lines(plugin) {
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, count)) => *count += 1,
            None => kinds.push((kind, 1)),
        }
    }
    let counts: Vec<_> = kinds
        .iter()
        .map(|(kind, count)| format!("{kind} {count}"))
        .collect();
    join_or(&counts, "only skills")
}

/// Joins texts, or returns the text for none.
fn join_or(parts: &[String], none: &str) -> String {
    if parts.is_empty() {
        none.to_owned()
    } else {
        parts.join(", ")
    }
}

/// Lists the added, changed and removed components.
fn plugin_difference(before: &Plugin, now: &Plugin) -> String {
    const MOST: usize = 8;
    let old = component_lines(before);
    let new = component_lines(now);
    let mut parts = Vec::new();

    for gone in &old {
        if !new.iter().any(|line| line.has_name_of(gone)) {
            parts.push(format!("-{} {}", gone.kind, gone.name));
        }
    }
    for line in new.iter().filter(|line| !old.contains(line)) {
        let is_known = old.iter().any(|known| known.has_name_of(line));
        let sign = if is_known { '~' } else { '+' };
        parts.push(format!("{sign}{} {}", line.kind, line.name));
    }
    if before.name != now.name {
        parts.insert(0, format!("was {}", EscapedText(&before.name)));
    }
    match parts.len() {
        0 if now.stale && !before.stale => {
            "stale: a file of the plugin can no longer be parsed".to_owned()
        }
        0 if before.trust() != now.trust() && now.trust() != TrustState::Unspecified => {
            format!("now {}", trust_word(now.trust()))
        }
        0 => "the manifest or a detail of a component changed".to_owned(),
        count if count > MOST => {
            format!("{} and {} more", parts[..MOST].join(", "), count - MOST)
        }
        _ => parts.join(", "),
    }
}

fn component_lines(plugin: &Plugin) -> Vec<ComponentLine> {
    let servers = plugin.mcp_servers.iter().map(|server| ComponentLine {
        kind: "mcp".to_owned(),
        name: escape_text(&server.name),
        label: escape_text(&server.handle),
        details: server_text(server),
    });
    let others = plugin.components.iter().map(|component| ComponentLine {
        kind: component.kind().word().replace('_', " "),
        name: escape_text(&component.name),
        label: escape_text(&component.name),
        details: escape_text(&component_text(component)),
    });
    servers.chain(others).collect()
}

/// Returns the texts of a declaration that say most about the component.
fn component_text(component: &PluginComponent) -> String {
    let Some(declaration) = &component.declaration else {
        return String::new();
    };
    let keys = ["id", "command", "url", "prompt", "description"];
    let mut texts = keys.into_iter().map(|key| text_of(declaration, key));
    let main = texts.find(|text| !text.is_empty());
    let arguments = match declaration.fields.get("args").map(|value| &value.kind) {
        Some(Some(Kind::ListValue(list))) => list.values.iter().map(value_text).collect(),
        _ => Vec::new(),
    };

    let texts = [text_of(declaration, "matcher"), main.unwrap_or_default()];
    let texts: Vec<_> = texts
        .into_iter()
        .chain(arguments)
        .filter(|text| !text.is_empty())
        .collect();
    collapse_whitespace(&texts.join(" ")).into()
}

fn text_of<'a>(declaration: &'a Struct, key: &str) -> &'a str {
    declaration.fields.get(key).map_or("", value_text)
}

fn value_text(value: &Value) -> &str {
    match &value.kind {
        Some(Kind::StringValue(text)) => text,
        _ => "",
    }
}

fn server_text(server: &McpServer) -> String {
    let transport = match McpTransport::try_from(server.transport) {
        Ok(McpTransport::Stdio) => "stdio",
        Ok(McpTransport::StreamableHttp) => "http",
        Ok(McpTransport::Sse) => "sse",
        Ok(McpTransport::Unspecified) | Err(_) => "?",
    };

    let what = if server.url.is_empty() {
        format!("{} {}", server.command, server.args.join(" "))
    } else {
        server.url.clone()
    };
    let mut text = format!("{transport}: {}", what.trim());

    let names: Vec<&str> = server
        .environment
        .iter()
        .chain(&server.headers)
        .map(|NamedValue { name, .. }| name.as_str())
        .collect();
    if !names.is_empty() {
        let _ = write!(text, " ({})", names.join(", "));
    }

    if server.enabled == Some(false) {
        text.push_str(" off");
    }
    escape_text(&text)
}

#[cfg(test)]
mod tests {
    use super::{plugin_changes, plugin_tree};
    use caproot_client::{MirrorReplica, MirrorSelection};
    use caproot_core::proto::caproot::v1::watch_skills_response::Event;
    use caproot_core::proto::caproot::v1::{
        ComponentKind, Marketplace, MarketplaceList, McpServer, McpTransport, Plugin,
        PluginComponent, Reset, RootStatus, SelectedCapabilityRoot, SkillDelta, Synced,
        WatchSkillsResponse,
    };
    use prost_types::value::Kind;
    use prost_types::{Struct, Value};
    use std::sync::Arc;

    fn plugin(name: &str, servers: &[&str]) -> Plugin {
        let server = |name: &&str| McpServer {
            name: (*name).to_owned(),
            handle: format!("skill://r/p#{name}"),
            transport: McpTransport::Stdio.into(),
            command: "x\u{1b}".into(),
            ..McpServer::default()
        };
        let id = Value {
            kind: Some(Kind::StringValue("connector_1".into())),
        };
        let app = PluginComponent {
            kind: ComponentKind::App.into(),
            name: "a".into(),
            declaration: Some(Struct {
                fields: [("id".to_owned(), id)].into(),
            }),
            ..PluginComponent::default()
        };
        Plugin {
            name: name.into(),
            package: "skill://r/p".into(),
            mcp_servers: servers.iter().map(server).collect(),
            components: vec![app],
            ..Plugin::default()
        }
    }

    fn delta(plugins: Vec<Plugin>, removed: &[&str]) -> SkillDelta {
        SkillDelta {
            root_id: "r".into(),
            upserted_plugins: plugins,
            removed_plugins: removed.iter().map(ToString::to_string).collect(),
            ..SkillDelta::default()
        }
    }

    #[test]
    fn tree_shows_declared_components() {
        assert_eq!(
            plugin_tree(&[plugin("p", &["s"])], &[]),
            [
                "  plugin p  skill://r/p",
                r"    mcp skill://r/p#s  stdio: x\u{1b}",
                "    app a  connector_1"
            ]
        );
    }

    #[test]
    fn changes_are_reported() {
        let root = SelectedCapabilityRoot {
            id: "r".into(),
            location: None,
        };
        let selection = MirrorSelection::new(vec![root]);
        let mut replica = MirrorReplica::new(&selection);
        let mut before = Arc::default();
        let mut apply = |delta, replaces_all: bool| {
            let status = RootStatus {
                id: "r".into(),
                ..RootStatus::default()
            };
            let reset = [Event::Reset(Reset::default()), Event::RootStatus(status)];
            let events = reset.into_iter().filter(|_| replaces_all);
            for event in events.chain([Event::Delta(delta), Event::Synced(Synced::default())]) {
                let event = Some(event);
                let message = WatchSkillsResponse {
                    event,
                    ..WatchSkillsResponse::default()
                };
                if let Some(update) = replica.apply_event(message).expect("a valid event") {
                    let lines = plugin_changes(&before, &update.catalog);
                    before = update.catalog;
                    return lines;
                }
            }
            panic!("a complete state")
        };
        assert_eq!(
            apply(delta(vec![plugin("p", &["s"])], &[]), true),
            ["+ plugin p  skill://r/p  mcp 1, app 1"]
        );
        assert_eq!(
            apply(delta(vec![plugin("q", &["t"])], &[]), false),
            ["~ plugin q  skill://r/p  was p, -mcp s, +mcp t"]
        );
        assert!(apply(delta(vec![plugin("q", &["t"])], &[]), true).is_empty());
        let list = |name: &str| {
            let declared_by = "skill://r/.claude-plugin/marketplace.json".into();
            let list = Marketplace {
                declared_by,
                name: name.into(),
                ..Marketplace::default()
            };
            let marketplaces = Some(MarketplaceList {
                marketplaces: vec![list],
            });
            SkillDelta {
                marketplaces,
                ..delta(vec![], &[])
            }
        };
        assert_eq!(
            apply(list("m"), false),
            ["~ marketplaces of root r: m: 0 plugins"]
        );
        assert!(apply(list("m"), false).is_empty());
        let gone = [
            "- plugin q  skill://r/p  no longer there",
            "~ marketplaces of root r: none",
        ];
        let without_lists = SkillDelta {
            marketplaces: Some(MarketplaceList::default()),
            ..delta(vec![], &["skill://r/p"])
        };
        assert_eq!(apply(without_lists, false), gone);
    }
}
