//! A marketplace: a list of plugins, most of them in the same tree.

use super::about::{self, Author};
use super::bounds::MAX_PLUGIN_BYTES;
use super::fields::{At, Fields, MAX_NAME, MAX_TEXT};
use super::{bounds, place, secret};
use crate::domain::limits::MAX_MANIFEST_BYTES;
use crate::domain::{Code, Problem, RelPath, Value, json};

/// Where a marketplace's list lies below its root; all that are there count.
pub const PATHS: [&str; 3] = [
    ".agents/plugins/marketplace.json",
    ".claude-plugin/marketplace.json",
    ".cursor-plugin/marketplace.json",
];

/// Plugins of one list.
const MAX_ENTRIES: usize = 1_000;

/// A list of plugins. Untrusted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[allow(missing_docs)] // the proto's `Marketplace` says what each means
pub struct Marketplace {
    pub name: Box<str>,
    pub display_name: Option<Box<str>>,
    pub description: Option<Box<str>>,
    pub version: Option<Box<str>>,
    pub owner: Option<Author>,
    pub entries: Box<[Entry]>,
    /// Whether a bound left entries out.
    pub truncated: bool,
    /// Where the list is, below the root.
    pub file: RelPath,
}

/// One plugin of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // the proto's `MarketplaceEntry` says what each means
pub struct Entry {
    pub name: Box<str>,
    pub description: Option<Box<str>>,
    pub version: Option<Box<str>>,
    pub category: Option<Box<str>>,
    /// Below the root, where the plugin is in the same tree.
    pub place: Option<RelPath>,
    /// Where it is otherwise: a kind and an address.
    pub source_kind: Box<str>,
    pub source: Box<str>,
    pub installation: Option<Box<str>>,
    pub authentication: Option<Box<str>>,
}

/// Reads a list: all its bytes, or `MAX_MANIFEST_BYTES` + 1 of them. `file` is its place. `None` where
/// it cannot be used, which the last problem says.
#[must_use]
pub fn read(bytes: &[u8], file: &RelPath) -> (Option<Marketplace>, Vec<Problem>) {
    let invalid = |why: String| Problem::error(Code::PluginFileInvalid, why);
    if bytes.len() > MAX_MANIFEST_BYTES {
        let why = format!("the file is over {MAX_MANIFEST_BYTES} bytes; nothing of it is reported");
        return (None, vec![invalid(why)]);
    }
    let value = match json::parse(bytes) {
        Ok(value) => value,
        Err(e) => return (None, vec![invalid(secret::clean(&e.message)).at(e.line, e.column)]),
    };
    let Some(plugins) = value.get("plugins").and_then(Value::as_list) else {
        let why = "a marketplace is an object with a list `plugins`, and this is none";
        return (None, vec![invalid(why.into()).at(1, 1)]);
    };
    let mut problems = Vec::new();
    let mut fields = Fields::new(&mut problems);
    let found = marketplace(&mut fields, &value, plugins, file);
    (Some(found), problems)
}

fn marketplace(
    fields: &mut Fields<'_>,
    value: &Value,
    plugins: &[Value],
    file: &RelPath,
) -> Marketplace {
    const KEYS: &[&str] = &[
        "name",
        "description",
        "version",
        "owner",
        "plugins",
        "interface",
        "metadata",
        "homepage",
        "repository",
        "displayName",
        "forceRemoveDeletedPlugins",
        "allowCrossMarketplaceDependenciesOn",
    ];
    let root = At::root(value);
    let metadata = root.get("metadata").unwrap_or(&Value::Null);
    let metadata = At::named(metadata, "metadata", "");
    // Where the paths of entries without `./` begin.
    let base = fields.whole(metadata, "pluginRoot", MAX_TEXT);
    let base = base.and_then(place::directory).unwrap_or_default();
    let interface = At::named(root.get("interface").unwrap_or(&Value::Null), "interface", "");
    let mut left = MAX_PLUGIN_BYTES;
    let (mut entries, mut truncated) = (Vec::new(), plugins.len() > MAX_ENTRIES);
    for plugin in plugins.iter().take(MAX_ENTRIES) {
        let Some(entry) = entry(fields, plugin, &base) else { continue };
        let texts = [&entry.description, &entry.version, &entry.category, &entry.installation];
        let len = texts.into_iter().flatten().map(|t| t.len()).sum::<usize>();
        let Some(rest) = left.checked_sub(len + entry.name.len() + entry.source.len() + 256) else {
            truncated = true;
            break;
        };
        left = rest;
        entries.push(entry);
    }
    if truncated {
        let why = format!(
            "a marketplace may list {MAX_ENTRIES} plugins, and {MAX_PLUGIN_BYTES} bytes of them; \
             {} are reported",
            entries.len()
        );
        fields.warn(Code::LimitReached, why);
    }
    fields.unknown(root, KEYS);
    let description = fields.line(root, "description", MAX_TEXT);
    let version = fields.line(root, "version", MAX_NAME);
    Marketplace {
        name: fields.line(root, "name", MAX_NAME).unwrap_or_default(),
        display_name: fields
            .line(interface, "displayName", MAX_NAME)
            .or_else(|| fields.line(root, "displayName", MAX_NAME)),
        description: description.or_else(|| fields.line(metadata, "description", MAX_TEXT)),
        version: version.or_else(|| fields.line(metadata, "version", MAX_NAME)),
        owner: about::author(fields, root, "owner"),
        entries: entries.into(),
        truncated,
        file: file.clone(),
    }
}

fn entry(fields: &mut Fields<'_>, value: &Value, base: &RelPath) -> Option<Entry> {
    const WHAT: &str = "plugin";
    let name = value.get("name").and_then(Value::as_text).unwrap_or_default();
    let name = bounds::name(fields, WHAT, name)?;
    let at = At::named(value, "plugins", &name);
    let (mut place, mut source_kind, mut source) = (None, Box::default(), Box::<str>::default());
    match at.get("source") {
        Some(Value::Text(text)) => place = local(fields, text, base),
        Some(object @ Value::Map(_)) => {
            let inner = At::named(object, "source", &name);
            let kind = fields.line(inner, "source", MAX_NAME).unwrap_or_default();
            if &*kind == "local" {
                let path = fields.whole(inner, "path", MAX_TEXT).unwrap_or_default();
                place = local(fields, path, base);
            } else {
                let keys = ["url", "repo", "package", "path"];
                let key = keys.into_iter().find(|key| inner.get(key).is_some());
                let text = key.and_then(|key| fields.whole(inner, key, MAX_TEXT));
                (source_kind, source) = (kind, secret::url(text.unwrap_or_default()).0.into());
            }
        }
        _ => {}
    }
    if place.is_none() && source.is_empty() {
        fields.useless(WHAT, &name, "has no `source` that can be used");
        return None;
    }
    let policy = At::named(at.get("policy").unwrap_or(&Value::Null), "policy", &name);
    Some(Entry {
        description: fields.line(at, "description", MAX_TEXT),
        version: fields.line(at, "version", MAX_NAME),
        category: fields.line(at, "category", MAX_NAME),
        installation: fields.line(policy, "installation", MAX_NAME),
        authentication: fields.line(policy, "authentication", MAX_NAME),
        place,
        source_kind,
        source,
        name,
    })
}

/// A place in the same tree.
fn local(fields: &mut Fields<'_>, path: &str, base: &RelPath) -> Option<RelPath> {
    let place = place::place(path);
    let place = place.or_else(|| place::directory(path).map(|below| base.join_all(&below)));
    if place.is_none() {
        let path = secret::path(path);
        let why = format!("`source` names {path}, and must be `./` and a path in the marketplace");
        fields.warn(Code::PathInvalid, why);
    }
    place
}
