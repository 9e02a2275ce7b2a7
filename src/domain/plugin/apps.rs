//! Apps and connectors: which of a platform's the plugin asks for, by their ids.

use super::fields::{At, Fields, MAX_NAME};
use super::{bounds, secret};
use crate::domain::{RelPath, Value};

/// One app or connector.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // the proto's `App` says what each means
pub struct App {
    pub name: Box<str>,
    pub id: Box<str>,
    pub category: Option<Box<str>>,
    pub required: Option<bool>,
    /// Where it is declared, below the plugin.
    pub file: RelPath,
}

/// Reads `{"apps": {NAME: {"id": …}}}`, or the inner object alone.
pub(super) fn read(fields: &mut Fields<'_>, value: &Value) -> Vec<App> {
    let inner = value.get("apps").filter(|inner| {
        inner.as_map().is_some() && inner.get("id").is_none_or(|id| id.as_text().is_none())
    });
    if inner.is_some() {
        fields.unknown(At::root(value), &["apps"]);
    }
    let entries = inner.unwrap_or(value).as_map().unwrap_or_default();
    let entries = bounds::first(fields, "apps", entries).iter();
    let entries = entries.filter(|(name, _)| &**name != "$schema");
    entries.filter_map(|(name, value)| app(fields, name, value)).collect()
}

fn app(fields: &mut Fields<'_>, name: &str, value: &Value) -> Option<App> {
    let name = bounds::name(fields, "app", name)?;
    let at = At::named(value, "apps", &name);
    let id = match value {
        Value::Text(id) => Some(&**id),
        Value::Map(_) => fields.whole(at, "id", MAX_NAME),
        _ => None,
    };
    let Some(id) = id.map(str::trim).filter(|id| !id.is_empty() && id.len() <= MAX_NAME) else {
        fields.useless("app", &name, "has no `id` that can be used");
        return None;
    };
    let id = secret::clean(id).into();
    let category = fields.line(at, "category", MAX_NAME);
    let required = fields.flag(at, "required");
    fields.unknown(at, &["id", "category", "required"]);
    Some(App { name, id, category, required, file: RelPath::root() })
}
