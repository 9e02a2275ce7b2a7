//! Text of plugins: as a tree, and as lines of changes.

use super::table::truncate_to_width;
use super::text::{EscapedText, escape_text};
use crate::proto::caproot::v1::{
    Marketplace, McpServer, McpTransport, NamedValue, Plugin, PluginComponents, SkillDelta,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Maximum width of a text in a tree or line.
const MAX_TEXT_COLUMNS: usize = 100;

/// Kind, name and details of a component.
type ComponentLine = (&'static str, String, String);

/// State of the plugins by package, and of the marketplaces by root id.
#[derive(Default)]
pub(super) struct PluginChangeReporter {
    plugins: BTreeMap<String, Plugin>,
    marketplaces: BTreeMap<String, Vec<Marketplace>>,
}

impl PluginChangeReporter {
    /// Applies deltas and returns a line for each change. With `replaces_all`, the deltas are the
    /// whole state.
    pub(super) fn apply_deltas(
        &mut self,
        deltas: Vec<SkillDelta>,
        replaces_all: bool,
    ) -> Vec<String> {
        let mut lines = Vec::new();
        let mut gone: Vec<String> = Vec::new();
        if replaces_all {
            let now = deltas.iter().flat_map(|delta| &delta.upserted_plugins);
            let now: BTreeSet<&str> = now.map(|plugin| plugin.package.as_str()).collect();
            gone.extend(
                self.plugins.keys().filter(|package| !now.contains(package.as_str())).cloned(),
            );
            let listed: BTreeSet<_> = deltas.iter().map(|delta| delta.root_id.clone()).collect();
            self.marketplaces.retain(|root, _| listed.contains(root));
        }
        gone.extend(deltas.iter().flat_map(|delta| delta.removed_plugins.clone()));
        for package in gone {
            if let Some(plugin) = self.plugins.remove(&package) {
                lines.push(plugin_line('-', &plugin, "no longer there"));
            }
        }
        for delta in deltas {
            for plugin in delta.upserted_plugins {
                let before = self.plugins.get(&plugin.package);
                if before == Some(&plugin) {
                    continue;
                }
                lines.push(match before {
                    None => plugin_line('+', &plugin, &component_counts(&plugin)),
                    Some(before) => plugin_line('~', &plugin, &plugin_difference(before, &plugin)),
                });
                self.plugins.insert(plugin.package.clone(), plugin);
            }
            if let Some(lists) = delta.marketplaces {
                let lists = lists.marketplaces;
                if self.marketplaces.get(&delta.root_id).is_none_or(|before| *before != lists) {
                    let parts: Vec<_> = lists.iter().map(marketplace_text).collect();
                    let parts = if parts.is_empty() { "none".to_owned() } else { parts.join(", ") };
                    lines.push(format!(
                        "~ marketplaces of root {}: {parts}",
                        EscapedText(&delta.root_id)
                    ));
                    self.marketplaces.insert(delta.root_id, lists);
                }
            }
        }
        lines
    }
}

/// Returns the lines of a root's plugins with their components.
pub(super) fn plugin_tree(plugins: &[Plugin], marketplaces: &[Marketplace]) -> Vec<String> {
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
        lines.push(head);
        for (kind, name, what) in component_lines(plugin) {
            let mut line = format!("    {kind} {name}");
            if !what.is_empty() {
                let _ = write!(line, "  {}", truncate_to_width(&what, MAX_TEXT_COLUMNS));
            }
            lines.push(line);
        }
    }
    lines
}

fn marketplace_text(list: &Marketplace) -> String {
    let count = list.plugins.len();
    let s = if count == 1 { "" } else { "s" };
    format!("{}: {count} plugin{s}", EscapedText(&list.name))
}

fn plugin_line(sign: char, plugin: &Plugin, what: &str) -> String {
    format!("{sign} plugin {}  {}  {what}", EscapedText(&plugin.name), EscapedText(&plugin.package))
}

/// Counts the components of each kind.
fn component_counts(plugin: &Plugin) -> String {
    let mut kinds: Vec<(&str, usize)> = Vec::new();
    for (kind, ..) in component_lines(plugin) {
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, count)) => *count += 1,
            None => kinds.push((kind, 1)),
        }
    }
    let parts: Vec<_> = kinds.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    if parts.is_empty() { "only skills".to_owned() } else { parts.join(", ") }
}

/// Lists the added, changed and removed components.
fn plugin_difference(before: &Plugin, now: &Plugin) -> String {
    const MOST: usize = 8;
    let (old, new) = (component_lines(before), component_lines(now));
    let named = |all: &[ComponentLine], of: &ComponentLine| {
        all.iter().any(|c| (c.0, &c.1) == (of.0, &of.1))
    };
    let mut parts = Vec::new();
    let gone = old.iter().filter(|c| !named(&new, c));
    parts.extend(gone.map(|(kind, name, _)| format!("-{kind} {name}")));
    for component in new.iter().filter(|c| !old.contains(c)) {
        let sign = if named(&old, component) { '~' } else { '+' };
        parts.push(format!("{sign}{} {}", component.0, component.1));
    }
    if before.name != now.name {
        parts.insert(0, format!("was {}", EscapedText(&before.name)));
    }
    match parts.len() {
        0 if now.stale && !before.stale => {
            "stale: a file of the plugin can no longer be parsed".to_owned()
        }
        0 => "the manifest or a detail of a component changed".to_owned(),
        count if count > MOST => {
            format!("{} and {} more", parts[..MOST].join(", "), count - MOST)
        }
        _ => parts.join(", "),
    }
}

fn component_lines(plugin: &Plugin) -> Vec<ComponentLine> {
    let Some(all) = &plugin.components else { return Vec::new() };
    let PluginComponents { mcp_servers, apps, hooks, agents, commands, output_styles, lsp_servers } =
        all;
    let mut lines: Vec<ComponentLine> = Vec::new();
    let mut add = |kind, name: &str, what: String| lines.push((kind, escape_text(name), what));
    for server in mcp_servers {
        add("mcp", &server.name, server_text(server));
    }
    for app in apps {
        add("app", &app.name, escape_text(&app.id));
    }
    for hook in hooks {
        let run = [&hook.command, &hook.url, &hook.prompt];
        let run = run.into_iter().find(|text| !text.is_empty()).map_or("", String::as_str);
        let of = if hook.matcher.is_empty() { String::new() } else { format!("{} ", hook.matcher) };
        add("hook", &hook.event, escape_text(&format!("{of}{}: {run}", hook.kind)));
    }
    for agent in agents {
        add("agent", &agent.name, escape_text(&agent.description));
    }
    for command in commands {
        add("command", &command.name, escape_text(&command.description));
    }
    for style in output_styles {
        add("output style", &style.name, escape_text(&style.description));
    }
    for server in lsp_servers {
        add(
            "lsp",
            &server.name,
            escape_text(&format!("{} {}", server.command, server.args.join(" "))),
        );
    }
    lines
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
    let given = server.environment.iter().chain(&server.headers);
    let names: Vec<&str> = given.map(|NamedValue { name, .. }| name.as_str()).collect();
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
    use super::{PluginChangeReporter, plugin_tree};
    use crate::proto::caproot::v1::{
        App, McpServer, McpTransport, Plugin, PluginComponents, SkillDelta,
    };

    fn plugin(name: &str, servers: &[&str]) -> Plugin {
        let server = |name: &&str| McpServer {
            name: (*name).to_owned(),
            transport: McpTransport::Stdio.into(),
            command: "x\u{1b}".into(),
            ..McpServer::default()
        };
        let app = App { name: "a".into(), id: "connector_1".into(), ..App::default() };
        let components = PluginComponents {
            mcp_servers: servers.iter().map(server).collect(),
            apps: vec![app],
            ..PluginComponents::default()
        };
        Plugin {
            name: name.into(),
            package: "skill://r/p".into(),
            components: Some(components),
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
            ["  plugin p  skill://r/p", r"    mcp s  stdio: x\u{1b}", "    app a  connector_1"]
        );
    }

    #[test]
    fn changes_are_reported() {
        let mut reporter = PluginChangeReporter::default();
        let mut apply = |delta, replaces_all| reporter.apply_deltas(vec![delta], replaces_all);
        assert_eq!(
            apply(delta(vec![plugin("p", &["s"])], &[]), true),
            ["+ plugin p  skill://r/p  mcp 1, app 1"]
        );
        assert_eq!(
            apply(delta(vec![plugin("q", &["t"])], &[]), false),
            ["~ plugin q  skill://r/p  was p, -mcp s, +mcp t"]
        );
        assert!(apply(delta(vec![plugin("q", &["t"])], &[]), true).is_empty());
        let gone = ["- plugin q  skill://r/p  no longer there"];
        assert_eq!(apply(delta(vec![], &["skill://r/p"]), false), gone);
    }
}
