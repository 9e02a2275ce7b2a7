//! Marketplaces: lists of plugins. Most plugins of a list are below the same root.

use super::{documented_keys, info, invalid_file, parse_plugin_file, plugin_path};
use crate::daemon::model::plugin::{
    MAX_PLUGIN_BYTES, MarketplaceEntry, PluginMarketplace, value_size,
};
use crate::daemon::model::{DiagnosticCode, DynamicValue, FileProblem};
use crate::daemon::parse::fields::{FieldMapping, FieldReader, MAX_NAME_CHARS, MAX_TEXT_CHARS};
use crate::daemon::parse::{collect_problems, secret_filter};
use caproot_core::text;
use caproot_core::wire::RelPath;

/// Maximum number of plugins in one marketplace.
const MAX_ENTRIES: usize = 1_000;

/// Keys of a marketplace and of its entries that have fields of their own.
const MARKETPLACE_KEYS: &[&str] = &[
    "name",
    "description",
    "version",
    "owner",
    "plugins",
    "interface",
    "metadata",
    "displayName",
];
const ENTRY_KEYS: &[&str] = &[
    "name",
    "source",
    "description",
    "version",
    "category",
    "skills",
];

/// Reads a marketplace file. `bytes` is the whole file, or its first `MAX_MANIFEST_BYTES` + 1
/// bytes; `file` is its path below the root. Returns `None` if the file is invalid; the last
/// problem says why.
#[must_use]
pub fn read(bytes: &[u8], file: &RelPath) -> (Option<PluginMarketplace>, Vec<FileProblem>) {
    collect_problems(|problems| {
        let value = parse_plugin_file(bytes)?;
        let plugins = value.get("plugins").and_then(DynamicValue::as_list);
        let plugins = plugins.ok_or_else(|| {
            let why = "a marketplace must be an object with a list `plugins`";
            invalid_file(why.into()).with_position(1, 1)
        })?;
        let mut fields = FieldReader::new(problems);
        Ok(read_marketplace(&mut fields, &value, plugins, file))
    })
}

fn read_marketplace(
    fields: &mut FieldReader<'_>,
    value: &DynamicValue,
    plugins: &[DynamicValue],
    file: &RelPath,
) -> PluginMarketplace {
    let root = FieldMapping::root(value);
    let metadata = child_mapping(root, &["metadata"]);
    let interface = child_mapping(root, &["interface"]);

    // Entry paths without `./` are relative to `pluginRoot`.
    let base = fields
        .read_verbatim(metadata, "pluginRoot", MAX_TEXT_CHARS)
        .and_then(plugin_path::parse_working_dir)
        .unwrap_or_default();
    let (entries, truncated) = read_entries(fields, plugins, &base);

    let documented = [documented_keys::MARKETPLACE];
    let more = fields.read_more(root, "the marketplace", MARKETPLACE_KEYS, &documented);
    let description = fields.read_line(root, "description", MAX_TEXT_CHARS);
    let version = fields.read_line(root, "version", MAX_NAME_CHARS);
    PluginMarketplace {
        name: fields
            .read_line(root, "name", MAX_NAME_CHARS)
            .unwrap_or_default(),
        display_name: fields
            .read_line(interface, "displayName", MAX_NAME_CHARS)
            .or_else(|| fields.read_line(root, "displayName", MAX_NAME_CHARS)),
        description: description
            .or_else(|| fields.read_line(metadata, "description", MAX_TEXT_CHARS)),
        version: version.or_else(|| fields.read_line(metadata, "version", MAX_NAME_CHARS)),
        owner: info::read_author(fields, root, "owner"),
        entries: entries.into(),
        truncated,
        declared_by: file.clone(),
        more: more.value,
    }
}

/// Returns the mapping at the last key of `path`; an empty mapping if there is none.
fn child_mapping<'v>(parent: FieldMapping<'v>, path: &'v [&'v str; 1]) -> FieldMapping<'v> {
    let value = parent.non_null_value(path[0]);
    FieldMapping {
        value: value.unwrap_or(&DynamicValue::Null),
        path,
        ..parent
    }
}

/// Reads the entries within the limits. Returns whether a limit omitted entries.
fn read_entries(
    fields: &mut FieldReader<'_>,
    plugins: &[DynamicValue],
    base: &RelPath,
) -> (Vec<MarketplaceEntry>, bool) {
    let mut remaining_bytes = MAX_PLUGIN_BYTES;
    let mut entries = Vec::new();
    let mut truncated = plugins.len() > MAX_ENTRIES;
    for plugin in plugins.iter().take(MAX_ENTRIES) {
        let Some(entry) = read_entry(fields, plugin, base) else {
            continue;
        };
        let Some(rest) = remaining_bytes.checked_sub(entry_size(&entry)) else {
            truncated = true;
            break;
        };
        remaining_bytes = rest;
        entries.push(entry);
    }

    if truncated {
        let why = format!(
            "a marketplace may list {MAX_ENTRIES} plugins, and {MAX_PLUGIN_BYTES} bytes of them; \
             {} reported",
            entries.len()
        );
        fields.report_warning(DiagnosticCode::LimitReached, why);
    }
    (entries, truncated)
}

/// Returns the approximate size of an entry on the wire.
fn entry_size(entry: &MarketplaceEntry) -> usize {
    let texts = [
        &entry.description,
        &entry.version,
        &entry.category,
        &entry.installation,
    ];
    let texts = texts.into_iter().flatten().map(|text| text.len());
    let skills = entry.skills.iter().map(|path| path.as_bytes().len() + 64);
    texts.sum::<usize>()
        + skills.sum::<usize>()
        + value_size(&entry.more)
        + entry.name.len()
        + entry.source.len()
        + 256
}

/// Source of a plugin.
#[derive(Default)]
struct EntrySource {
    /// Directory of the plugin, if the plugin is below the same root.
    package: Option<RelPath>,
    /// Kind of an external source.
    kind: Box<str>,
    /// Address of an external source.
    address: Box<str>,
}

fn read_entry(
    fields: &mut FieldReader<'_>,
    value: &DynamicValue,
    base: &RelPath,
) -> Option<MarketplaceEntry> {
    const WHAT: &str = "plugin";
    let name = value.get("name").and_then(DynamicValue::as_text);
    let name = fields.check_component_name(WHAT, name.unwrap_or_default())?;

    let at = FieldMapping::new(value, &["plugins"], &name);
    let source = read_source(fields, at, &name, base);
    if source.package.is_none() && source.address.is_empty() {
        fields.report_unusable(WHAT, &name, "has no valid `source`");
        return None;
    }

    let policy = child_mapping(at, &["policy"]);
    let documented = [
        documented_keys::MANIFEST,
        documented_keys::MARKETPLACE_ENTRY,
    ];
    let subject = format!("the plugin {}", text::quote_word(&name));
    let more = fields.read_more(at, &subject, ENTRY_KEYS, &documented);

    // The directories of skills are relative to the plugin, and the paths of an external plugin lead
    // nowhere below the root.
    let mut skills = Vec::new();
    if let Some(plugin) = &source.package {
        for text in fields.read_verbatim_list(at, "skills", MAX_TEXT_CHARS) {
            let below = match text {
                "." => Some(RelPath::root()),
                _ => plugin_path::read_plugin_path(fields, "skills", text),
            };
            skills.extend(below.map(|below| plugin.join_path(&below)));
        }
    }

    Some(MarketplaceEntry {
        skills: skills.into(),
        more: more.value,
        description: fields.read_line(at, "description", MAX_TEXT_CHARS),
        version: fields.read_line(at, "version", MAX_NAME_CHARS),
        category: fields.read_line(at, "category", MAX_NAME_CHARS),
        installation: fields.read_line(policy, "installation", MAX_NAME_CHARS),
        authentication: fields.read_line(policy, "authentication", MAX_NAME_CHARS),
        package: source.package,
        source_kind: source.kind,
        source: source.address,
        name,
    })
}

fn read_source(
    fields: &mut FieldReader<'_>,
    at: FieldMapping<'_>,
    name: &str,
    base: &RelPath,
) -> EntrySource {
    let mut source = EntrySource::default();
    let object = match at.non_null_value("source") {
        Some(DynamicValue::Text(text)) => {
            source.package = resolve_local_path(fields, text, base);
            return source;
        }
        Some(object @ DynamicValue::Map(_)) => FieldMapping::new(object, &["source"], name),
        _ => return source,
    };

    let kind = fields.read_line(object, "source", MAX_NAME_CHARS);
    if kind.as_deref() == Some("local") {
        let path = fields.read_verbatim(object, "path", MAX_TEXT_CHARS);
        source.package = resolve_local_path(fields, path.unwrap_or_default(), base);
        return source;
    }

    let address = object
        .find_present_key(["url", "repo", "package", "path"])
        .and_then(|key| fields.read_verbatim(object, key, MAX_TEXT_CHARS))
        .unwrap_or_default();

    // A URL may contain a password: `https://user:password@host`.
    let shown = secret_filter::redact_in_line(address);
    if shown != address {
        let subject = format!("the plugin {}", text::quote_word(name));
        fields.report_redacted(&subject, &["source"]);
    }
    source.kind = kind.unwrap_or_default();
    source.address = shown.into();
    source
}

/// Resolves the path of a plugin below the same root. Reports an invalid path.
fn resolve_local_path(fields: &mut FieldReader<'_>, text: &str, base: &RelPath) -> Option<RelPath> {
    let path = plugin_path::parse_plugin_path(text)
        .or_else(|| Some(base.join_path(&plugin_path::parse_working_dir(text)?)));
    if path.is_none() {
        let text = secret_filter::quote_path(text);
        let why = format!("`source` names {text}, expected `./` and a path in the marketplace");
        fields.report_warning(DiagnosticCode::PathInvalid, why);
    }
    path
}
