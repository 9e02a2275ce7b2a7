//! Withholds possible secrets in a declaration, whose keys may be unknown.

use super::{
    WITHHELD_MARKER, has_token_shape, is_telling, withhold_in_arguments, withhold_in_line,
    withhold_in_text, withhold_in_value,
};
use crate::model::DynamicValue;

/// Keys of texts for people or models, in which names of secrets are words.
const PROSE_KEYS: [&str; 5] = [
    "description",
    "prompt",
    "statusMessage",
    "argument-hint",
    "when_to_use",
];
/// Maximum number of withheld values that are named.
const MAX_NAMED: usize = 8;

/// Declaration without possible secrets.
#[derive(Debug)]
pub struct FilteredDeclaration {
    /// Mapping with its keys in byte order.
    pub value: DynamicValue,
    /// Keys of the withheld values, such as `env.PASSWORD`; the first eight.
    pub withheld: Vec<String>,
}

/// Withholds possible secrets in the entries of a declaration. An entry with a token as its key is
/// omitted.
pub fn withhold_in_declaration(entries: &[(Box<str>, DynamicValue)]) -> FilteredDeclaration {
    let mut filter = DeclarationFilter::default();
    let mut value = filter.filter_map(entries, false);
    value.sort_keys();
    FilteredDeclaration {
        value,
        withheld: filter.withheld,
    }
}

/// State of the filter of one declaration.
#[derive(Default)]
struct DeclarationFilter<'v> {
    /// Keys that lead to the current value.
    path: Vec<&'v str>,
    withheld: Vec<String>,
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
                self.path.push(WITHHELD_MARKER);
                self.record_withheld();
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
                let texts = items.iter().filter_map(DynamicValue::as_text);
                let mut texts = withhold_in_arguments(texts, is_covered).into_iter();
                let shown = items.iter().map(|item| match item {
                    DynamicValue::Text(text) => self.check(text, texts.next().unwrap_or_default()),
                    other => self.filter_value(other, is_covered),
                });
                DynamicValue::List(shown.collect())
            }
            DynamicValue::Text(text) => {
                let shown = if is_covered {
                    withhold_in_value(key, text)
                } else if PROSE_KEYS.contains(&key) {
                    withhold_in_text(text)
                } else {
                    withhold_in_line(text)
                };
                self.check(text, shown.into())
            }
            DynamicValue::Int(_) | DynamicValue::UInt(_) | DynamicValue::Float(_) => {
                let text = value.to_text();
                if !is_covered && withhold_in_line(&text) == *text {
                    return value.clone();
                }
                self.check(&text, WITHHELD_MARKER.into())
            }
        }
    }

    /// Returns the shown part of a text, and records whether a part is withheld.
    fn check(&mut self, text: &str, shown: Box<str>) -> DynamicValue {
        if *shown != *text {
            self.record_withheld();
        }
        DynamicValue::Text(shown)
    }

    fn record_withheld(&mut self) {
        let path = self.path.join(".");
        if self.withheld.len() < MAX_NAMED && self.withheld.last() != Some(&path) {
            self.withheld.push(path);
        }
    }
}

/// Whether a mapping describes a setting, such as one of `userConfig`, or the address of a login. Its
/// name may be that of a secret, but its texts are none.
fn is_description(key: &str, value: &DynamicValue) -> bool {
    key == "oauth" || (value.get("title").is_some() && value.get("default").is_none())
}
