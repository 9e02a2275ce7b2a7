//! Apps and connectors of the platform that a plugin requires.

use crate::model::DynamicValue;
use crate::model::plugin::PluginApp;
use crate::parse::fields::{FieldMapping, FieldReader, MAX_NAME_CHARS};
use crate::parse::secret_filter;
use caproot_core::wire::RelPath;

/// Reads `{"apps": {NAME: {"id": …}}}` or only the inner object.
pub fn read(fields: &mut FieldReader<'_>, value: &DynamicValue) -> Vec<PluginApp> {
    let inner = value.get("apps").filter(|inner| {
        inner.as_map().is_some() && inner.get("id").is_none_or(|id| id.as_text().is_none())
    });
    if inner.is_some() {
        fields.report_unknown_keys(FieldMapping::root(value), &["apps"]);
    }
    let entries = inner.unwrap_or(value).as_map().unwrap_or_default();
    let entries = fields.take_components("apps", entries).iter();
    let entries = entries.filter(|(name, _)| &**name != "$schema");
    entries
        .filter_map(|(name, value)| read_app(fields, name, value))
        .collect()
}

fn read_app(fields: &mut FieldReader<'_>, name: &str, value: &DynamicValue) -> Option<PluginApp> {
    let name = fields.check_component_name("app", name)?;
    let at = FieldMapping::new(value, &["apps"], &name);
    let id = match value {
        DynamicValue::Text(id) => Some(&**id),
        DynamicValue::Map(_) => fields.read_verbatim(at, "id", MAX_NAME_CHARS),
        _ => None,
    };
    let Some(id) = id
        .map(str::trim)
        .filter(|id| !id.is_empty() && id.len() <= MAX_NAME_CHARS)
    else {
        fields.report_unusable("app", &name, "has no valid `id`");
        return None;
    };
    let id = secret_filter::redact_in_text(id).into();
    let category = fields.read_line(at, "category", MAX_NAME_CHARS);
    let required = fields.read_bool(at, "required");
    fields.report_unknown_keys(at, &["id", "category", "required"]);
    Some(PluginApp {
        name,
        id,
        category,
        required,
        declared_by: RelPath::root(),
    })
}
