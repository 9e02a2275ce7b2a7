//! Sources of a plugin's components: the manifest itself, files and directories that the manifest
//! names, or default paths.

use super::plugin_path::read_plugin_path;
use super::{declarations, invalid_file, mcp_servers, parse_plugin_file};
use crate::daemon::model::plugin::{ComponentKind, ComponentSources, PluginComponents};
use crate::daemon::model::{DynamicValue, FileProblem};
use crate::daemon::parse::collect_problems;
use crate::daemon::parse::fields::{FieldMapping, FieldReader, MAX_ITEMS, MAX_TEXT_CHARS};
use caproot_core::wire::RelPath;

/// Known keys of a manifest in all supported formats.
pub const MANIFEST_KEYS: &[&str] = &[
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
    "defaultEnabled",
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

/// Reads the keys of a manifest that declare components.
pub fn read(
    fields: &mut FieldReader<'_>,
    root: FieldMapping<'_>,
) -> (ComponentSources, PluginComponents) {
    let mut sources = ComponentSources::default();
    let mut inline_components = PluginComponents::default();
    for kind in ComponentKind::ALL {
        let Some(value) = root.non_null_value(kind.manifest_key()) else {
            continue;
        };

        sources.declared_kinds.push(kind);
        let items = match value {
            DynamicValue::List(items) => &items[..items.len().min(MAX_ITEMS)],
            other => std::slice::from_ref(other),
        };

        for item in items {
            match item {
                // Claude Code reads `.` as the directory of the plugin.
                DynamicValue::Text(text) if kind == ComponentKind::Skills && &**text == "." => {
                    sources.named_paths.push((kind, RelPath::root()));
                }
                DynamicValue::Text(text) if text.chars().count() <= MAX_TEXT_CHARS => {
                    if let Some(path) = read_plugin_path(fields, kind.manifest_key(), text) {
                        sources.named_paths.push((kind, path));
                    }
                }
                DynamicValue::Map(_) if kind.is_json() => {
                    inline_components.extend(read_components(fields, kind, item));
                }
                other => fields.report_wrong_type(
                    root,
                    kind.manifest_key(),
                    other,
                    "a path or the content of such a file",
                ),
            }
        }
    }

    sources.named_paths.dedup();
    (sources, inline_components)
}

/// Reads a file that declares components of a JSON kind. `bytes` is the whole file, or its first
/// `MAX_MANIFEST_BYTES` + 1 bytes. Returns `None` if the file is invalid; the last problem says
/// why.
#[must_use]
pub fn read_file(
    kind: ComponentKind,
    bytes: &[u8],
) -> (Option<PluginComponents>, Vec<FileProblem>) {
    collect_problems(|problems| {
        let value = parse_plugin_file(bytes)?;
        if value.as_map().is_none() {
            let why = format!("the file must be an object, but is {}", value.kind());
            return Err(invalid_file(why).with_position(1, 1));
        }
        Ok(read_components(
            &mut FieldReader::new(problems),
            kind,
            &value,
        ))
    })
}

/// Reads the components of one JSON kind from an object in a file or in the manifest.
fn read_components(
    fields: &mut FieldReader<'_>,
    kind: ComponentKind,
    value: &DynamicValue,
) -> PluginComponents {
    let mut components = PluginComponents::default();
    if kind == ComponentKind::McpServers {
        components.mcp_servers = mcp_servers::read(fields, value);
    } else {
        components.others = declarations::read(fields, kind, value);
    }
    components
}
