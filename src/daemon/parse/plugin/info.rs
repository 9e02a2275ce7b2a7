//! Description of a plugin for people: texts, links, colors and images.

use super::plugin_path::read_plugin_path;
use crate::daemon::model::DynamicValue;
use crate::daemon::model::plugin::{PluginAuthor, PluginInfo, PluginInterface};
use crate::daemon::parse::fields::{
    FieldMapping, FieldReader, MAX_NAME_CHARS, MAX_TEXT_CHARS, MAX_WORD_CHARS,
};
use caproot_core::wire::RelPath;
use std::sync::Arc;

/// Maximum length of a long description.
const MAX_LONG_DESCRIPTION_CHARS: usize = 4_096;
/// Known keys of an interface.
const INTERFACE_KEYS: &[&str] = &[
    "displayName",
    "shortDescription",
    "longDescription",
    "developerName",
    "category",
    "capabilities",
    "websiteURL",
    "websiteUrl",
    "privacyPolicyURL",
    "privacyPolicyUrl",
    "termsOfServiceURL",
    "termsOfServiceUrl",
    "defaultPrompt",
    "brandColor",
    "composerIcon",
    "logo",
    "logoDark",
    "screenshots",
];
/// Maximum number of screenshots.
const MAX_SCREENSHOTS: usize = 16;
/// Maximum number of capabilities of a host. Each skill of the plugin is listed with them.
const MAX_HOST_CAPABILITIES: usize = 16;

/// Reads the description of the plugin from its manifest.
pub fn read(fields: &mut FieldReader<'_>, root: FieldMapping<'_>) -> PluginInfo {
    PluginInfo {
        description: fields.read_line(root, "description", MAX_TEXT_CHARS),
        keywords: fields.read_lines(root, "keywords", MAX_WORD_CHARS),
        author: read_author(fields, root, "author"),
        homepage: fields.read_url(root, "homepage"),
        // A URL, or an object with the key `url` as in `package.json`.
        repository: match root.non_null_value("repository") {
            Some(value @ DynamicValue::Map(_)) => {
                fields.read_url(FieldMapping::new(value, &["repository"], ""), "url")
            }
            _ => fields.read_url(root, "repository"),
        },
        license: fields.read_line(root, "license", MAX_NAME_CHARS),
        host_capabilities: read_host_capabilities(fields, root),
        interface: read_interface(fields, root),
    }
}

/// Reads an author: a name or an object.
pub fn read_author(
    fields: &mut FieldReader<'_>,
    at: FieldMapping<'_>,
    key: &str,
) -> Option<PluginAuthor> {
    let author = match at.non_null_value(key)? {
        DynamicValue::Text(_) => PluginAuthor {
            name: fields.read_line(at, key, MAX_NAME_CHARS),
            ..PluginAuthor::default()
        },
        value @ DynamicValue::Map(_) => {
            let path = [key];
            let at = FieldMapping::new(value, &path, "");
            fields.report_unknown_keys(at, &["name", "email", "url"], "ignored");
            PluginAuthor {
                name: fields.read_line(at, "name", MAX_NAME_CHARS),
                email: fields.read_line(at, "email", MAX_NAME_CHARS),
                url: fields.read_url(at, "url"),
            }
        }
        value => {
            fields.report_wrong_type(at, key, value, "text or an object");
            return None;
        }
    };

    (author != PluginAuthor::default()).then_some(author)
}

/// Reads the key `requires.hostCapabilities`. Products use `requires` in other shapes, too, which are no
/// mistakes.
fn read_host_capabilities(fields: &mut FieldReader<'_>, root: FieldMapping<'_>) -> Arc<[Box<str>]> {
    const KEY: &str = "hostCapabilities";
    let Some(requires @ DynamicValue::Map(_)) = root.non_null_value("requires") else {
        return Arc::default();
    };

    let at = FieldMapping::new(requires, &["requires"], "");
    let names = fields.read_lines(at, KEY, MAX_WORD_CHARS);
    if names.len() > MAX_HOST_CAPABILITIES {
        let limit = format_args!("{MAX_HOST_CAPABILITIES} items");
        fields.report_too_long(at, KEY, limit, "the others are omitted");
    }
    names
        .into_iter()
        .filter(|name| !name.is_empty())
        .take(MAX_HOST_CAPABILITIES)
        .collect()
}

fn read_interface(fields: &mut FieldReader<'_>, root: FieldMapping<'_>) -> Option<PluginInterface> {
    let at = fields.read_mapping(root, &["interface"], "an object");
    // Some manifests have these keys at the top level.
    let display_name = fields.read_line(root, "displayName", MAX_NAME_CHARS);
    let category = fields.read_line(root, "category", MAX_WORD_CHARS);
    let logo = read_image(fields, root, "logo");

    let mut interface = match at {
        Some(at) => read_interface_mapping(fields, at),
        None => PluginInterface::default(),
    };
    interface.display_name = interface.display_name.or(display_name);
    interface.category = interface.category.or(category);
    interface.images[1] = interface.images[1].take().or(logo);
    (interface != PluginInterface::default()).then_some(interface)
}

fn read_interface_mapping(fields: &mut FieldReader<'_>, at: FieldMapping<'_>) -> PluginInterface {
    fields.report_unknown_keys(at, INTERFACE_KEYS, "ignored");

    PluginInterface {
        display_name: fields.read_line(at, "displayName", MAX_NAME_CHARS),
        short_description: fields.read_line(at, "shortDescription", MAX_TEXT_CHARS),
        long_description: fields.read_line(at, "longDescription", MAX_LONG_DESCRIPTION_CHARS),
        developer_name: fields.read_line(at, "developerName", MAX_NAME_CHARS),
        category: fields.read_line(at, "category", MAX_WORD_CHARS),
        capabilities: fields.read_lines(at, "capabilities", MAX_WORD_CHARS),
        website_url: read_first_url(fields, at, ["websiteURL", "websiteUrl"]),
        privacy_policy_url: read_first_url(fields, at, ["privacyPolicyURL", "privacyPolicyUrl"]),
        terms_of_service_url: read_first_url(
            fields,
            at,
            ["termsOfServiceURL", "termsOfServiceUrl"],
        ),
        default_prompts: fields.read_lines(at, "defaultPrompt", MAX_TEXT_CHARS),
        brand_color: fields.read_color(at, "brandColor"),
        images: ["composerIcon", "logo", "logoDark"].map(|key| read_image(fields, at, key)),
        screenshots: fields
            .read_verbatim_list(at, "screenshots", MAX_TEXT_CHARS)
            .into_iter()
            .take(MAX_SCREENSHOTS)
            .filter_map(|text| read_plugin_path(fields, "screenshots", text))
            .collect(),
    }
}

/// Reads the URL at the first of the keys that has a value.
fn read_first_url(
    fields: &mut FieldReader<'_>,
    at: FieldMapping<'_>,
    keys: [&str; 2],
) -> Option<Box<str>> {
    fields.read_url(at, at.find_present_key(keys)?)
}

fn read_image(fields: &mut FieldReader<'_>, at: FieldMapping<'_>, key: &str) -> Option<RelPath> {
    let text = fields.read_verbatim(at, key, MAX_TEXT_CHARS)?;
    read_plugin_path(fields, key, text)
}
