//! Redacts possible secrets in a declaration, whose keys may be unknown.

use super::{
    LineFilter, REDACTED_MARKER, has_token_shape, is_telling, redact_in_arguments, redact_in_line,
    redact_in_text,
};
use crate::daemon::model::DynamicValue;

/// Keys of texts for people or models, in which names of secrets are words.
const PROSE_KEYS: [&str; 5] = [
    "description",
    "prompt",
    "statusMessage",
    "argument-hint",
    "when_to_use",
];
/// Maximum number of redacted values that are named.
const MAX_NAMED: usize = 8;

/// Declaration without possible secrets.
#[derive(Debug)]
pub struct RedactedDeclaration {
    /// Mapping with its keys in byte order.
    pub value: DynamicValue,
    /// Keys of the redacted values, such as `env.PASSWORD`; the first eight.
    pub redacted: Vec<String>,
}

/// Redacts possible secrets in the entries of a declaration. An entry with a token as its key is
/// omitted.
pub fn redact_in_declaration(entries: &[(Box<str>, DynamicValue)]) -> RedactedDeclaration {
    let mut filter = DeclarationFilter::default();
    let mut value = filter.filter_map(entries, false);
    value.sort_keys();
    RedactedDeclaration {
        value,
        redacted: filter.redacted,
    }
}

/// State of the filter of one declaration.
#[derive(Default)]
struct DeclarationFilter<'v> {
    /// Keys that lead to the current value.
    path: Vec<&'v str>,
    redacted: Vec<String>,
}

impl<'v> DeclarationFilter<'v> {
    /// Filters a mapping. `is_covered` is whether a key above is the name of a secret.
    fn filter_map(
        &mut self,
        entries: &'v [(Box<str>, DynamicValue)],
        is_covered: bool,
    ) -> DynamicValue {
        let mut shown = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            if has_token_shape(key) {
                self.path.push(REDACTED_MARKER);
                self.record_redacted();
            } else {
                self.path.push(key);
                let value = self.filter_value(value, is_covered || is_telling(key));
                shown.push((key.clone(), value));
            }
            self.path.pop();
        }
        DynamicValue::Map(shown.into())
    }

    fn filter_value(&mut self, value: &'v DynamicValue, is_covered: bool) -> DynamicValue {
        let key = self.path.last().copied().unwrap_or_default();
        match value {
            DynamicValue::Null | DynamicValue::Bool(_) => value.clone(),
            DynamicValue::Map(entries) => {
                self.filter_map(entries, is_covered && !is_description(key, value))
            }
            DynamicValue::List(items) => {
                // The texts are filtered together: one may be the value of the flag before.
                let texts = items.iter().filter_map(DynamicValue::as_text);
                let mut texts = redact_in_arguments(texts, is_covered).into_iter();
                let shown = items.iter().map(|item| match item {
                    DynamicValue::Text(text) => self.check(text, texts.next().unwrap_or_default()),
                    other => self.filter_value(other, is_covered),
                });
                DynamicValue::List(shown.collect())
            }
            DynamicValue::Text(text) => {
                let shown = if is_covered {
                    LineFilter::new(true).filter(text)
                } else if key == "id" && is_app_id(text) {
                    text.to_string()
                } else if PROSE_KEYS.contains(&key) {
                    redact_in_text(text)
                } else {
                    redact_in_line(text)
                };
                self.check(text, shown.into())
            }
            DynamicValue::Int(_) | DynamicValue::UInt(_) | DynamicValue::Float(_) => {
                let text = value.to_text();
                if !is_covered && redact_in_line(&text) == *text {
                    return value.clone();
                }
                self.check(&text, REDACTED_MARKER.into())
            }
        }
    }

    /// Returns the shown part of a text, and records whether a part is redacted.
    fn check(&mut self, text: &str, shown: Box<str>) -> DynamicValue {
        if *shown != *text {
            self.record_redacted();
        }
        DynamicValue::Text(shown)
    }

    fn record_redacted(&mut self) {
        let path = self.path.join(".");
        if self.redacted.len() < MAX_NAMED && self.redacted.last() != Some(&path) {
            self.redacted.push(path);
        }
    }
}

/// Whether a mapping describes a setting, such as one of `userConfig`, or a login. Such a mapping has no
/// secret, although its key may be the name of one.
fn is_description(key: &str, value: &DynamicValue) -> bool {
    key == "oauth" || (value.get("title").is_some() && value.get("default").is_none())
}

/// Whether a text is the id of an app of Codex, which everyone may know.
fn is_app_id(text: &str) -> bool {
    let mut prefixes = ["connector_", "asdk_app_"].iter();
    prefixes.any(|prefix| {
        let id = text.strip_prefix(prefix);
        id.is_some_and(|id| id.bytes().all(|byte| byte.is_ascii_hexdigit()))
    })
}
