//! Plugins of a session: the plugins of its sources, and a watch for their changes by component.

use crate::options::choice::SkillChoice;
use crate::skills::skill_source::{SkillSource, SourceKind};
use crate::state::Session;
use crate::view::session_view::SessionWatch;
use caproot_client::json;
use caproot_core::proto::caproot::v1::{McpTransport, Plugin};
use caproot_core::wire::ContentDigest;
use prost::Message as _;
use serde::ser::{Error as _, SerializeStruct as _};
use serde::{Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Plugin of a source. Serializes with the plugin as proto3 JSON.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionPlugin {
    /// Kind of the source: an executor or a local directory.
    pub source_kind: SourceKind,
    /// Id of the source; the environment of an executor.
    pub source_id: String,
    /// Plugin with its components. Third parties wrote every text.
    pub plugin: Arc<Plugin>,
    /// Package digests of the versions that the lock of the session approves; empty without a lock.
    pub approved_digests: Vec<ContentDigest>,
}

/// Changes of a session's plugins.
#[derive(Debug, Clone, Default, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionPluginChanges {
    /// New plugins.
    pub added: Vec<SessionPlugin>,
    /// Plugins that differ from before.
    pub changed: Vec<ChangedPlugin>,
    /// Plugins that are gone, or whose source is unavailable.
    pub removed: Vec<SessionPlugin>,
}

/// Plugin that differs from before.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangedPlugin {
    /// Plugin of now.
    #[serde(flatten)]
    pub plugin: SessionPlugin,
    /// Changed components. Empty if only other fields changed, such as the version.
    pub components: Vec<ComponentChange>,
}

/// Change of one component of a plugin.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComponentChange {
    /// Kind of the component: `mcp_server`, `app`, `hook`, `lsp_server`, `agent`, `command` or
    /// `output_style`.
    pub kind: String,
    /// Name of the component; the event of a hook.
    pub name: String,
    /// Kind of the change.
    pub change: ComponentChangeKind,
}

/// Kind of a component's change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ComponentChangeKind {
    /// The plugin did not declare the component before.
    Added,
    /// The plugin declares the component differently.
    Changed,
    /// The plugin no longer declares the component.
    Removed,
}

/// Watch for changes of a session's plugins.
#[derive(Debug)]
pub struct PluginWatch {
    sources: Vec<Arc<dyn SkillSource>>,
    choice: SkillChoice,
    changes: SessionWatch,
    known: Vec<SessionPlugin>,
}

impl Session {
    /// Returns the plugins with their components: those of executors, if
    /// [`SessionOptions::plugins`](crate::SessionOptions::plugins) is set, and those of other
    /// sources that have plugins. A rule of [`SkillChoice`] applies to a plugin as to a skill. Empty
    /// if the session is closed.
    #[must_use]
    pub fn plugins(&self) -> Vec<SessionPlugin> {
        if self.is_closed() {
            return Vec::new();
        }
        collect_plugins(&self.sources, &self.inner.options.choice)
    }

    /// Returns a watch for changes of the plugins from now on.
    #[must_use]
    pub fn watch_plugins(&self) -> PluginWatch {
        // The watch starts first: no change is lost between the watch and the read.
        let changes = self.watch();
        PluginWatch {
            sources: self.sources.clone(),
            choice: self.inner.options.choice.clone(),
            changes,
            known: collect_plugins(&self.sources, &self.inner.options.choice),
        }
    }
}

/// Identity of a plugin in a session.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct PluginKey<'a> {
    source_kind: SourceKind,
    source_id: &'a str,
    package: &'a str,
}

/// Identity of a component of a plugin.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ComponentKey {
    kind: String,
    name: String,
}

impl PluginWatch {
    /// Waits for the next changes. Cancel-safe.
    pub async fn next(&mut self) -> SessionPluginChanges {
        loop {
            self.changes.next().await;
            let now = collect_plugins(&self.sources, &self.choice);
            let changes = SessionPluginChanges::between(&self.known, &now);
            if changes != SessionPluginChanges::default() {
                self.known = now;
                return changes;
            }
        }
    }
}

impl SessionPlugin {
    /// Returns the command line of each server that runs as a process, by the server's name. The program
    /// runs the command on the machine of the plugin and uses the process as an MCP server, for example
    /// through ssh(1). A server that the declaration disables has none. If the session has a lock, the command
    /// starts only an approved version of the plugin.
    #[must_use]
    pub fn server_commands(&self) -> BTreeMap<String, Vec<String>> {
        let commands = self
            .plugin
            .mcp_servers
            .iter()
            .filter(|server| {
                server.transport() == McpTransport::Stdio && server.enabled != Some(false)
            })
            .map(|server| {
                let words = ["caproot", "exec", "--server", &server.handle];
                let mut command = words.map(str::to_owned).to_vec();
                for digest in &self.approved_digests {
                    command.extend(["--digest".to_owned(), digest.to_string()]);
                }
                (server.name.clone(), command)
            });
        commands.collect()
    }

    fn key(&self) -> PluginKey<'_> {
        PluginKey {
            source_kind: self.source_kind,
            source_id: &self.source_id,
            package: &self.plugin.package,
        }
    }
}

impl Serialize for SessionPlugin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("SessionPlugin", 4)?;
        fields.serialize_field("sourceKind", self.source_kind.name())?;
        fields.serialize_field("sourceId", &self.source_id)?;
        let plugin = json::to_limited_dynamic(&*self.plugin).map_err(S::Error::custom)?;
        fields.serialize_field("plugin", &plugin)?;
        fields.serialize_field("serverCommands", &self.server_commands())?;
        fields.end()
    }
}

impl schemars::JsonSchema for SessionPlugin {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SessionPlugin".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "object",
            "description": "Plugin of a source.",
            "properties": {
                "sourceKind": {"type": "string", "description": "`executor` or `local`."},
                "sourceId": {
                    "type": "string",
                    "description": "Id of the source; the environment of an executor.",
                },
                "plugin": {
                    "type": "object",
                    "description": "JSON of the message `Plugin` of the API.",
                },
                "serverCommands": {
                    "type": "object",
                    "additionalProperties": {"type": "array", "items": {"type": "string"}},
                    "description": "Command line of each server that runs as a process, by its name.",
                },
            },
            "required": ["sourceKind", "sourceId", "plugin", "serverCommands"],
        })
    }
}

impl SessionPluginChanges {
    fn between(before: &[SessionPlugin], now: &[SessionPlugin]) -> Self {
        let mut old: BTreeMap<_, _> = before.iter().map(|plugin| (plugin.key(), plugin)).collect();
        let mut changes = Self::default();

        for plugin in now {
            match old.remove(&plugin.key()) {
                None => changes.added.push(plugin.clone()),
                Some(old) if old.plugin == plugin.plugin => {}
                Some(old) => changes.changed.push(ChangedPlugin {
                    plugin: plugin.clone(),
                    components: component_changes(&old.plugin, &plugin.plugin),
                }),
            }
        }

        changes.removed = old.into_values().cloned().collect();
        changes
    }
}

fn collect_plugins(sources: &[Arc<dyn SkillSource>], choice: &SkillChoice) -> Vec<SessionPlugin> {
    let mut all = Vec::new();
    for source in sources {
        let chosen = source
            .plugins()
            .into_iter()
            .filter(|plugin| choice.includes(&**source, &plugin.name, &plugin.package));
        all.extend(chosen.map(|plugin| SessionPlugin {
            source_kind: source.kind(),
            source_id: source.id().to_owned(),
            approved_digests: source.approved_digests(&plugin),
            plugin,
        }));
    }
    all
}

/// Returns the changed components, sorted by kind and name.
fn component_changes(before: &Plugin, now: &Plugin) -> Vec<ComponentChange> {
    let before = components_by_name(before);
    let now = components_by_name(now);
    let keys: BTreeSet<_> = before.keys().chain(now.keys()).cloned().collect();
    let changes = keys.into_iter().filter_map(|key| {
        let change = match (before.get(&key), now.get(&key)) {
            (None, _) => ComponentChangeKind::Added,
            (_, None) => ComponentChangeKind::Removed,
            (before, now) if before == now => return None,
            _ => ComponentChangeKind::Changed,
        };
        let ComponentKey { kind, name } = key;
        Some(ComponentChange { kind, name, change })
    });
    changes.collect()
}

/// Returns the encoded components by kind and name. A plugin may declare a name twice.
fn components_by_name(plugin: &Plugin) -> BTreeMap<ComponentKey, Vec<Vec<u8>>> {
    let servers = plugin.mcp_servers.iter().map(|server| {
        let kind = "mcp_server".to_owned();
        (kind, &server.name, server.encode_to_vec())
    });
    let others = plugin.components.iter().map(|component| {
        let kind = component.kind().word();
        (kind, &component.name, component.encode_to_vec())
    });

    let mut by_name = BTreeMap::<_, Vec<_>>::new();
    for (kind, name, encoded) in servers.chain(others) {
        let name = name.clone();
        by_name
            .entry(ComponentKey { kind, name })
            .or_default()
            .push(encoded);
    }
    by_name
}
