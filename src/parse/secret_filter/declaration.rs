//! Redacts possible secrets in the declaration of a component, whose keys may be unknown.

use super::{
    MAX_VALUE_BYTES, REDACTED_MARKER, is_harmless_value, is_likely_secret, is_searchable,
    is_secret_name, redact_in_arguments, redact_in_command, redact_in_text, reportable_value,
};
use crate::model::DynamicValue;

/// Keys with texts for people or models, in which only tokens are redacted.
const PROSE_KEYS: [&str; 14] = [
    "name",
    "description",
    "type",
    "matcher",
    "if",
    "prompt",
    "statusMessage",
    "id",
    "category",
    "model",
    "tools",
    "allowed-tools",
    "argument-hint",
    "color",
];
/// Keys of mappings of environment variables or headers.
const NAMED_VALUES_KEYS: [&str; 5] = [
    "env",
    "environment",
    "headers",
    "http_headers",
    "httpHeaders",
];

/// Declaration without possible secrets.
#[derive(Debug)]
pub struct RedactedDeclaration {
    /// Mapping with its keys in byte order.
    pub value: DynamicValue,
    /// Whether a part is redacted.
    pub redacted: bool,
    /// Whether a redacted part is likely a secret, in contrast to an unknown value.
    pub has_likely_secret: bool,
}

/// Redacts possible secrets in the entries of a declaration. An entry with a token in its key is
/// omitted.
pub fn redact_in_declaration(entries: &[(Box<str>, DynamicValue)]) -> RedactedDeclaration {
    let mut filter = DeclarationFilter::default();
    let mut value = filter.filter_map(entries, false);
    value.sort_keys();
    RedactedDeclaration {
        value,
        redacted: filter.redacted,
        has_likely_secret: filter.has_likely_secret,
    }
}

/// State of the redaction of one declaration.
#[derive(Default)]
struct DeclarationFilter {
    redacted: bool,
    has_likely_secret: bool,
}

impl DeclarationFilter {
    /// Filters a mapping. `is_secret` is whether the key of the mapping, or a key above, is the name
    /// of a secret.
    fn filter_map(
        &mut self,
        entries: &[(Box<str>, DynamicValue)],
        is_secret: bool,
    ) -> DynamicValue {
        let mut shown = Vec::with_capacity(entries.len());

        for (key, value) in entries {
            if redact_in_text(key) != **key {
                self.record_redaction(true);
                continue;
            }

            let value = match value.as_map() {
                Some(values) if NAMED_VALUES_KEYS.contains(&&**key) => {
                    self.filter_named_values(values)
                }
                _ => self.filter_value(key, value, is_secret || is_secret_name(key)),
            };
            shown.push((key.clone(), value));
        }

        DynamicValue::Map(shown.into())
    }

    /// Filters a mapping of environment variables or headers.
    fn filter_named_values(&mut self, values: &[(Box<str>, DynamicValue)]) -> DynamicValue {
        let mut shown = Vec::with_capacity(values.len());
        for (name, value) in values {
            if redact_in_text(name) != **name {
                self.record_redaction(true);
                continue;
            }
            let text = value.to_text();
            let value = if value.is_scalar() && reportable_value(name, &text).is_some() {
                value.clone()
            } else {
                self.redact(is_likely_secret(name, &text))
            };
            shown.push((name.clone(), value));
        }
        DynamicValue::Map(shown.into())
    }

    fn filter_value(&mut self, key: &str, value: &DynamicValue, is_secret: bool) -> DynamicValue {
        match value {
            DynamicValue::Null | DynamicValue::Bool(_) => value.clone(),
            DynamicValue::Map(entries) => self.filter_map(entries, is_secret),
            DynamicValue::List(items) if is_secret || PROSE_KEYS.contains(&key) => {
                let shown = items
                    .iter()
                    .map(|item| self.filter_value(key, item, is_secret));
                DynamicValue::List(shown.collect())
            }
            DynamicValue::List(items) => self.filter_arguments(key, items),
            DynamicValue::Int(_)
            | DynamicValue::UInt(_)
            | DynamicValue::Float(_)
            | DynamicValue::Text(_) => self.filter_scalar(key, value, is_secret),
        }
    }

    /// Filters a list like the arguments of a command: a text may be the value of the flag before.
    fn filter_arguments(&mut self, key: &str, items: &[DynamicValue]) -> DynamicValue {
        let texts = items.iter().filter_map(DynamicValue::as_text);
        let (shown_texts, redacted) = redact_in_arguments(texts);
        if redacted {
            self.record_redaction(true);
        }

        let mut texts = shown_texts.into_iter();
        let shown = items.iter().map(|item| match item {
            DynamicValue::Text(_) => texts.next().map_or(DynamicValue::Null, DynamicValue::Text),
            other => self.filter_value(key, other, false),
        });
        DynamicValue::List(shown.collect())
    }

    /// Filters a text, or a number by its digits.
    fn filter_scalar(&mut self, key: &str, value: &DynamicValue, is_secret: bool) -> DynamicValue {
        let text = value.to_text();
        if is_secret {
            let is_harmless =
                is_searchable(&text, MAX_VALUE_BYTES) && is_harmless_value(text.trim());
            return if is_harmless {
                value.clone()
            } else {
                self.redact(true)
            };
        }

        let shown = if PROSE_KEYS.contains(&key) {
            redact_in_text(&text)
        } else {
            redact_in_command(&text).0
        };
        if *shown == *text {
            return value.clone();
        }
        self.record_redaction(true);
        DynamicValue::Text(shown.into())
    }

    fn redact(&mut self, is_likely_secret: bool) -> DynamicValue {
        self.record_redaction(is_likely_secret);
        DynamicValue::Text(REDACTED_MARKER.into())
    }

    fn record_redaction(&mut self, is_likely_secret: bool) {
        self.redacted = true;
        self.has_likely_secret |= is_likely_secret;
    }
}
