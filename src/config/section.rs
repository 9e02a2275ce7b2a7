//! Reads typed values out of a config file. Reports every value that does not fit, and goes on with
//! the others.

use super::error::{ConfigError, ConfigErrors};
use super::keys::{self, ConfigKey};
use crate::model::text::quote_value;
use crate::parse::document::{DocumentEntry, DocumentNode, DocumentValue, TextPosition};
use bytesize::ByteSize;
use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::hash::Hash;
use std::ops::RangeInclusive;
use std::path::Path;

/// Least Jaro-Winkler similarity, 0 to 1, of an unknown key and a suggested key.
const MIN_SIMILARITY: f64 = 0.75;
/// Most characters of an unknown key that are compared.
const MAX_KEY_CHARS: usize = 64;

/// Reader of the values of one file, which collects errors.
pub struct ConfigReader<'a> {
    pub file: &'a Path,
    pub errors: &'a mut ConfigErrors,
}

/// Value with its full key.
pub struct ConfigValue<'a> {
    key: String,
    node: &'a DocumentNode,
}

/// Mapping whose keys are known and unique.
pub struct ConfigSection<'a> {
    key: String,
    position: TextPosition,
    entries: Vec<&'a DocumentEntry>,
}

impl ConfigReader<'_> {
    /// Reports an error in a value.
    pub fn report_error(&mut self, value: &ConfigValue<'_>, reason: impl Display) {
        let error = self.error_for(value, reason);
        self.errors.add(error);
    }

    /// Creates an error about a value without reporting it.
    pub fn error_for(&self, value: &ConfigValue<'_>, reason: impl Display) -> ConfigError {
        let node = value.node;
        let is_scalar = !matches!(node.value, DocumentValue::List(_) | DocumentValue::Map(_));
        ConfigError {
            file: Some(self.file.to_owned()),
            position: Some(node.position),
            key: value.key.clone(),
            value: node.describe_value().filter(|_| is_scalar),
            reason: reason.to_string(),
        }
    }

    /// Reports a value of another type than `expected`. `hint` ends the message.
    fn report_type(&mut self, value: &ConfigValue<'_>, expected: impl Display, hint: &str) {
        let found = match value.node.value {
            DocumentValue::List(_) => ", found a list",
            DocumentValue::Map(_) => ", found a mapping",
            DocumentValue::Null => ", found no value",
            _ => "",
        };
        self.report_error(value, format!("expected {expected}{found}{hint}"));
    }

    fn report_key(&mut self, position: TextPosition, key: String, reason: impl Display) {
        self.errors.add(ConfigError {
            file: Some(self.file.to_owned()),
            position: Some(position),
            key,
            value: None,
            reason: reason.to_string(),
        });
    }

    /// Reads the whole document as a mapping. An empty document is an empty mapping.
    pub fn top_section<'a>(
        &mut self,
        node: &'a DocumentNode,
        known: &'static [ConfigKey],
    ) -> ConfigSection<'a> {
        let value = ConfigValue { key: String::new(), node };
        let section =
            if node.value == DocumentValue::Null { None } else { self.section(&value, known) };
        section.unwrap_or_else(|| ConfigSection {
            key: String::new(),
            position: node.position,
            entries: Vec::new(),
        })
    }

    /// Reads a mapping that may have the keys `known`.
    pub fn section<'a>(
        &mut self,
        value: &ConfigValue<'a>,
        known: &'static [ConfigKey],
    ) -> Option<ConfigSection<'a>> {
        let known: Vec<_> = keys::names(known).collect();
        let DocumentValue::Map(entries) = &value.node.value else {
            let hint = format!("; the keys are {}", known.join(", "));
            self.report_type(value, "a mapping", &hint);
            return None;
        };
        let mut first: HashMap<&str, TextPosition> = HashMap::new();
        let mut good = Vec::new();
        for entry in entries {
            let (position, key) = (entry.key_position, join(&value.key, &entry.key));
            if !known.contains(&&*entry.key) {
                let reason = format!("unknown key; {}", suggestion(&entry.key, &known));
                self.report_key(position, join(&value.key, &printable_key(&entry.key)), reason);
            } else if let Some(at) = first.get(&*entry.key) {
                self.report_key(
                    position,
                    key,
                    format!("duplicate key, first set in line {}", at.line),
                );
            } else if entry.node.value == DocumentValue::Null {
                self.report_key(position, key, "has no value; give a value, or remove the key");
            } else {
                good.push(entry);
            }
            first.entry(&entry.key).or_insert(entry.key_position);
        }
        Some(ConfigSection { key: value.key.clone(), position: value.node.position, entries: good })
    }

    /// Returns the value of a required key.
    pub fn required<'a>(
        &mut self,
        section: &ConfigSection<'a>,
        key: &str,
    ) -> Option<ConfigValue<'a>> {
        let value = section.get(key);
        if value.is_none() && !self.is_reported(section, key) {
            self.report_key(section.position, join(&section.key, key), "required key is missing");
        }
        value
    }

    /// Whether an error in a key of a section was reported.
    fn is_reported(&self, section: &ConfigSection<'_>, key: &str) -> bool {
        let key = join(&section.key, key);
        self.errors.any(|m| m.key == key && m.position.is_some_and(|at| at >= section.position))
    }

    /// Reads a text that is not empty.
    pub fn text<'a>(&mut self, value: &ConfigValue<'a>) -> Option<&'a str> {
        match &value.node.value {
            DocumentValue::Text(text) if text.is_empty() => {
                self.report_error(value, "must not be empty");
            }
            DocumentValue::Text(text) if text.contains('\0') => {
                self.report_error(value, "must not contain a NUL character");
            }
            DocumentValue::Text(text) => return Some(text),
            DocumentValue::Number(_) | DocumentValue::Bool(_) => {
                self.report_type(value, "text", "; put the value in quotes");
            }
            DocumentValue::Null | DocumentValue::List(_) | DocumentValue::Map(_) => {
                self.report_type(value, "text", "");
            }
        }
        None
    }

    /// Reads a text and parses it. Reports the error of `parse`.
    pub fn parsed<T, E: Display>(
        &mut self,
        value: &ConfigValue<'_>,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let text = self.text(value)?;
        parse(text).map_err(|reason| self.report_error(value, reason)).ok()
    }

    /// Reads a text or a number, as spelled in the file, and parses it.
    pub fn number_or_text<T, E: Display>(
        &mut self,
        value: &ConfigValue<'_>,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        match &value.node.value {
            DocumentValue::Number(number) => {
                parse(number).map_err(|reason| self.report_error(value, reason)).ok()
            }
            _ => self.parsed(value, parse),
        }
    }

    /// Reads `true` or `false`.
    pub fn boolean(&mut self, value: &ConfigValue<'_>) -> Option<bool> {
        if let DocumentValue::Bool(boolean) = value.node.value {
            return Some(boolean);
        }
        self.report_type(value, "true or false", "");
        None
    }

    /// Reads a number from 0 to 1.
    pub fn ratio(&mut self, value: &ConfigValue<'_>) -> Option<f64> {
        let number = match &value.node.value {
            DocumentValue::Number(text) => text.parse().ok().filter(|n| (0.0..=1.0).contains(n)),
            _ => None,
        };
        if number.is_none() {
            self.report_type(value, "a number from 0 to 1, such as 0.1", "");
        }
        number
    }

    /// Reads a whole number within bounds.
    pub fn count(&mut self, value: &ConfigValue<'_>, bounds: &RangeInclusive<u64>) -> Option<u64> {
        let number = match &value.node.value {
            DocumentValue::Number(text) => text.parse().ok().filter(|n| bounds.contains(n)),
            _ => None,
        };
        if number.is_none() {
            let (min, max) = (bounds.start(), bounds.end());
            self.report_type(value, format!("a whole number from {min} to {max}"), "");
        }
        number
    }

    /// Reads a size within bounds, as a number of bytes or with a unit, such as `256MiB`.
    pub fn bytes(&mut self, value: &ConfigValue<'_>, bounds: &RangeInclusive<u64>) -> Option<u64> {
        let number = match &value.node.value {
            DocumentValue::Number(text) => text.parse().ok(),
            DocumentValue::Text(text) => text.parse::<ByteSize>().map(|size| size.as_u64()).ok(),
            _ => None,
        };
        let number = number.filter(|n| bounds.contains(n));
        if number.is_none() {
            let (min, max) = (size(*bounds.start()), size(*bounds.end()));
            self.report_type(value, format!("a size from {min} to {max}, such as 256MiB"), "");
        }
        number
    }

    /// Reads the items of a list.
    pub fn list<'a>(&mut self, value: &ConfigValue<'a>) -> Vec<ConfigValue<'a>> {
        let DocumentValue::List(nodes) = &value.node.value else {
            self.report_type(value, "a list", "; write `[a, b]`, or one `- a` a line");
            return Vec::new();
        };
        let items = nodes.iter().enumerate();
        items.map(|(n, node)| ConfigValue { key: format!("{}[{n}]", value.key), node }).collect()
    }

    /// Reads the items of a list. Reports `if_empty` for an empty list.
    pub fn list_unless_empty<'a>(
        &mut self,
        value: &ConfigValue<'a>,
        if_empty: &str,
    ) -> Vec<ConfigValue<'a>> {
        if matches!(&value.node.value, DocumentValue::List(nodes) if nodes.is_empty()) {
            self.report_error(value, if_empty);
        }
        self.list(value)
    }

    /// Reads a list of unique texts and parses each. Reports `if_empty`, if there is one, for an
    /// empty list.
    pub fn unique_texts<T: Clone + Eq + Hash, E: Display>(
        &mut self,
        value: &ConfigValue<'_>,
        if_empty: Option<&str>,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Vec<T> {
        let items = match if_empty {
            Some(reason) => self.list_unless_empty(value, reason),
            None => self.list(value),
        };
        self.unique_values(items, |reader, item| reader.parsed(item, &parse))
    }

    /// Reads a list of unique numbers or texts and parses each. Reports `if_empty` for an empty
    /// list.
    pub fn unique_numbers_or_texts<T: Clone + Eq + Hash, E: Display>(
        &mut self,
        value: &ConfigValue<'_>,
        if_empty: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Vec<T> {
        let items = self.list_unless_empty(value, if_empty);
        self.unique_values(items, |reader, item| reader.number_or_text(item, &parse))
    }

    fn unique_values<T: Clone + Eq + Hash>(
        &mut self,
        items: Vec<ConfigValue<'_>>,
        mut read: impl FnMut(&mut Self, &ConfigValue<'_>) -> Option<T>,
    ) -> Vec<T> {
        let mut seen = HashSet::new();
        let mut values = Vec::new();
        for item in items {
            let Some(value) = read(self, &item) else { continue };
            if seen.insert(value.clone()) {
                values.push(value);
            } else {
                self.report_error(&item, "duplicate item");
            }
        }
        values
    }
}

impl<'a> ConfigSection<'a> {
    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<ConfigValue<'a>> {
        let entry = self.entries.iter().find(|entry| &*entry.key == key)?;
        Some(ConfigValue { key: join(&self.key, key), node: &entry.node })
    }
}

impl ConfigValue<'_> {
    /// Returns the line of the value.
    pub fn line(&self) -> u32 {
        self.node.position.line
    }
}

/// Formats a size with the largest unit that divides it.
pub fn size(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", bytes / unit),
        None => bytes.to_string(),
    }
}

fn join(section: &str, key: &str) -> String {
    if section.is_empty() { key.to_owned() } else { format!("{section}.{key}") }
}

/// Quotes a key that is long or has unusual characters.
fn printable_key(key: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    if key.len() <= MAX_KEY_CHARS && key.chars().all(plain) {
        key.to_owned()
    } else {
        quote_value(key)
    }
}

/// Suggests the most similar key, or lists all keys.
fn suggestion(key: &str, known: &[&str]) -> String {
    let key: String = key.chars().take(MAX_KEY_CHARS).flat_map(char::to_lowercase).collect();
    let key = key.replace('-', "_");
    let scored = known.iter().map(|known| (strsim::jaro_winkler(&key, known), known));
    match scored.max_by(|(a, _), (b, _)| a.total_cmp(b)) {
        Some((score, nearest)) if score >= MIN_SIMILARITY => format!("did you mean `{nearest}`?"),
        _ => format!("the keys are {}", known.join(", ")),
    }
}
