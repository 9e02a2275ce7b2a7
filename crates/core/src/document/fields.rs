//! Reads typed fields of a document. Reports every field that does not fit, and goes on with the
//! others.

use super::{ConfigError, ConfigErrors, DocumentEntry, DocumentNode, DocumentValue, TextPosition};
use crate::text::similar::most_similar;
use crate::text::{quote_value, truncate_chars};
use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::hash::Hash;
use std::ops::RangeInclusive;
use std::path::Path;

/// Most characters of a key that are compared or shown without quotes.
const MAX_KEY_CHARS: usize = 64;

/// Reader of the fields of one file, which collects errors.
pub struct DocumentReader<'a> {
    /// Path of the file, for messages.
    pub file: &'a Path,
    /// Errors so far.
    pub errors: &'a mut ConfigErrors,
}

/// Value with its full key.
pub struct DocumentField<'a> {
    key: String,
    node: &'a DocumentNode,
}

/// Mapping whose keys are known and unique.
pub struct DocumentSection<'a> {
    key: String,
    position: TextPosition,
    entries: Vec<&'a DocumentEntry>,
}

impl DocumentReader<'_> {
    /// Reports an error in a field.
    pub fn report_error(&mut self, field: &DocumentField<'_>, reason: impl Display) {
        let error = self.error_for(field, reason);
        self.errors.add(error);
    }

    /// Creates an error about a field without reporting it.
    pub fn error_for(&self, field: &DocumentField<'_>, reason: impl Display) -> ConfigError {
        ConfigError {
            file: Some(self.file.to_owned()),
            position: Some(field.node.position),
            key: field.key.clone(),
            value: match &field.node.value {
                DocumentValue::Bool(value) => Some(value.to_string()),
                DocumentValue::Number(text) => Some(truncate_chars(text, 40).to_owned()),
                DocumentValue::Text(text) => Some(quote_value(text)),
                DocumentValue::Null | DocumentValue::List(_) | DocumentValue::Map(_) => None,
            },
            reason: reason.to_string(),
        }
    }

    /// Reports a field of another type than `expected`. `hint` ends the message.
    fn report_type(&mut self, field: &DocumentField<'_>, expected: impl Display, hint: &str) {
        let found = match field.node.value {
            DocumentValue::List(_) => ", found a list",
            DocumentValue::Map(_) => ", found a mapping",
            DocumentValue::Null => ", found no value",
            _ => "",
        };
        self.report_error(field, format!("expected {expected}{found}{hint}"));
    }

    fn report_key(&mut self, position: TextPosition, key: String, reason: impl Into<String>) {
        self.errors.add(ConfigError {
            position: Some(position),
            key,
            ..ConfigError::file(self.file, reason)
        });
    }

    /// Reads the whole document as a mapping. An empty document is an empty mapping.
    pub fn top_section<'a>(
        &mut self,
        node: &'a DocumentNode,
        known: impl IntoIterator<Item = &'static str>,
    ) -> DocumentSection<'a> {
        let field = DocumentField {
            key: String::new(),
            node,
        };

        if node.value != DocumentValue::Null
            && let Some(section) = self.section(&field, known)
        {
            return section;
        }
        DocumentSection {
            key: field.key,
            position: node.position,
            entries: Vec::new(),
        }
    }

    /// Reads a mapping that may have the keys `known`.
    pub fn section<'a>(
        &mut self,
        field: &DocumentField<'a>,
        known: impl IntoIterator<Item = &'static str>,
    ) -> Option<DocumentSection<'a>> {
        let known: Vec<_> = known.into_iter().collect();
        self.mapping(field, Some(&known))
    }

    /// Reads a mapping with any keys. Returns its fields in the order of the file, each with its
    /// own key.
    pub fn named_fields<'a>(
        &mut self,
        field: &DocumentField<'a>,
    ) -> Vec<(&'a str, DocumentField<'a>)> {
        let Some(section) = self.mapping(field, None) else {
            return Vec::new();
        };
        section
            .entries
            .iter()
            .map(|entry| (&*entry.key, section.field(entry)))
            .collect()
    }

    /// Reads a mapping. Without `known`, it may have any keys.
    fn mapping<'a>(
        &mut self,
        field: &DocumentField<'a>,
        known: Option<&[&str]>,
    ) -> Option<DocumentSection<'a>> {
        let DocumentValue::Map(entries) = &field.node.value else {
            let hint = known.map(|known| format!("; the keys are {}", known.join(", ")));
            self.report_type(field, "a mapping", &hint.unwrap_or_default());
            return None;
        };

        let mut section = DocumentSection {
            key: field.key.clone(),
            position: field.node.position,
            entries: Vec::new(),
        };

        let mut first: HashMap<&str, TextPosition> = HashMap::new();
        for entry in entries {
            let (position, key) = (entry.key_position, section.full_key(&entry.key));
            if let Some(known) = known.filter(|known| !known.contains(&&*entry.key)) {
                let spelling = entry.key.to_lowercase().replace('-', "_");
                let reason = format!("unknown key; {}", suggest_key(&spelling, known, '`'));
                self.report_key(position, key, reason);
            } else if let Some(at) = first.get(&*entry.key) {
                let reason = format!("duplicate key, first set in line {}", at.line);
                self.report_key(position, key, reason);
            } else if entry.node.value == DocumentValue::Null {
                self.report_key(
                    position,
                    key,
                    "has no value; give a value, or remove the key",
                );
            } else {
                section.entries.push(entry);
            }

            first.entry(&entry.key).or_insert(entry.key_position);
        }
        Some(section)
    }

    /// Returns the field of a required key.
    pub fn required<'a>(
        &mut self,
        section: &DocumentSection<'a>,
        key: &str,
    ) -> Option<DocumentField<'a>> {
        let field = section.get(key);
        if field.is_none() && !self.is_reported(section, key) {
            self.report_key(
                section.position,
                section.full_key(key),
                "required key is missing",
            );
        }
        field
    }

    /// Whether an error in a key of a section, or in the whole section, was reported.
    fn is_reported(&self, section: &DocumentSection<'_>, key: &str) -> bool {
        let key = section.full_key(key);
        self.errors.iter().any(|error| {
            (error.key == key || error.key == section.key)
                && error.position.is_some_and(|at| at >= section.position)
        })
    }

    /// Reads a text that is not empty.
    pub fn text<'a>(&mut self, field: &DocumentField<'a>) -> Option<&'a str> {
        match &field.node.value {
            DocumentValue::Text(text) if text.is_empty() => {
                self.report_error(field, "must not be empty");
            }
            DocumentValue::Text(text) if text.contains('\0') => {
                self.report_error(field, "must not contain a NUL character");
            }
            DocumentValue::Text(text) => return Some(text),
            DocumentValue::Number(_) | DocumentValue::Bool(_) => {
                self.report_type(field, "text", "; put the value in quotes");
            }
            DocumentValue::Null | DocumentValue::List(_) | DocumentValue::Map(_) => {
                self.report_type(field, "text", "");
            }
        }
        None
    }

    /// Reads a text and parses it. Reports the error of `parse`.
    pub fn parsed<T, E: Display>(
        &mut self,
        field: &DocumentField<'_>,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let text = self.text(field)?;
        parse(text)
            .map_err(|reason| self.report_error(field, reason))
            .ok()
    }

    /// Reads a text or a number, as spelled in the file, and parses it.
    pub fn number_or_text<T, E: Display>(
        &mut self,
        field: &DocumentField<'_>,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let text = match &field.node.value {
            DocumentValue::Number(number) => number,
            _ => self.text(field)?,
        };
        parse(text)
            .map_err(|reason| self.report_error(field, reason))
            .ok()
    }

    /// Reads a value. Reports a value that `read` rejects as another than `expected`.
    pub fn value<T>(
        &mut self,
        field: &DocumentField<'_>,
        expected: impl Display,
        read: impl FnOnce(&DocumentValue) -> Option<T>,
    ) -> Option<T> {
        let value = read(&field.node.value);
        if value.is_none() {
            self.report_type(field, expected, "");
        }
        value
    }

    /// Reads `true` or `false`.
    pub fn boolean(&mut self, field: &DocumentField<'_>) -> Option<bool> {
        self.value(field, "true or false", |value| match value {
            DocumentValue::Bool(boolean) => Some(*boolean),
            _ => None,
        })
    }

    /// Reads a whole number within bounds.
    pub fn count(
        &mut self,
        field: &DocumentField<'_>,
        bounds: &RangeInclusive<u64>,
    ) -> Option<u64> {
        let expected = format!("a whole number from {} to {}", bounds.start(), bounds.end());
        self.value(field, expected, |value| match value {
            DocumentValue::Number(text) => text.parse().ok().filter(|n| bounds.contains(n)),
            _ => None,
        })
    }

    /// Reads the items of a list.
    pub fn list<'a>(&mut self, field: &DocumentField<'a>) -> Vec<DocumentField<'a>> {
        let DocumentValue::List(nodes) = &field.node.value else {
            self.report_type(field, "a list", "; write `[a, b]`, or one `- a` a line");
            return Vec::new();
        };
        let items = nodes.iter().enumerate().map(|(n, node)| DocumentField {
            key: format!("{}[{n}]", field.key),
            node,
        });
        items.collect()
    }

    /// Reads the items of a list. Reports `if_empty` for an empty list.
    pub fn list_unless_empty<'a>(
        &mut self,
        field: &DocumentField<'a>,
        if_empty: &str,
    ) -> Vec<DocumentField<'a>> {
        if matches!(&field.node.value, DocumentValue::List(nodes) if nodes.is_empty()) {
            self.report_error(field, if_empty);
        }
        self.list(field)
    }

    /// Reads a list of unique texts and parses each. Reports `if_empty`, if there is one, for an
    /// empty list.
    pub fn unique_texts<T: Clone + Eq + Hash, E: Display>(
        &mut self,
        field: &DocumentField<'_>,
        if_empty: Option<&str>,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Vec<T> {
        let items = match if_empty {
            Some(reason) => self.list_unless_empty(field, reason),
            None => self.list(field),
        };
        self.unique_values(items, |reader, item| reader.parsed(item, &parse))
    }

    /// Reads a list of unique numbers or texts and parses each. Reports `if_empty` for an empty
    /// list.
    pub fn unique_numbers_or_texts<T: Clone + Eq + Hash, E: Display>(
        &mut self,
        field: &DocumentField<'_>,
        if_empty: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Vec<T> {
        let items = self.list_unless_empty(field, if_empty);
        self.unique_values(items, |reader, item| reader.number_or_text(item, &parse))
    }

    fn unique_values<T: Clone + Eq + Hash>(
        &mut self,
        items: Vec<DocumentField<'_>>,
        mut read: impl FnMut(&mut Self, &DocumentField<'_>) -> Option<T>,
    ) -> Vec<T> {
        let mut seen = HashSet::new();
        let mut values = Vec::new();
        for item in items {
            match read(self, &item) {
                Some(value) if seen.insert(value.clone()) => values.push(value),
                Some(_) => self.report_error(&item, "duplicate item"),
                None => {}
            }
        }
        values
    }
}

impl<'a> DocumentSection<'a> {
    /// Returns the field of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<DocumentField<'a>> {
        let entry = self.entries.iter().find(|entry| &*entry.key == key)?;
        Some(self.field(entry))
    }

    fn field(&self, entry: &'a DocumentEntry) -> DocumentField<'a> {
        DocumentField {
            key: self.full_key(&entry.key),
            node: &entry.node,
        }
    }

    /// Returns a key with the keys that lead to it. Quotes a key that is long or has unusual
    /// characters.
    fn full_key(&self, key: &str) -> String {
        let key = show_key(key, char::is_alphanumeric);
        let dot = if self.key.is_empty() { "" } else { "." };
        format!("{}{dot}{key}", self.key)
    }
}

impl DocumentField<'_> {
    /// Returns the line of the value.
    #[must_use]
    pub fn line(&self) -> u32 {
        self.node.position.line
    }
}

/// Quotes a key that is long, or that has a character other than `_`, `-` and those of `is_plain`.
pub(crate) fn show_key(key: &str, is_plain: fn(char) -> bool) -> String {
    let is_plain = |c| is_plain(c) || matches!(c, '_' | '-');
    if (1..=MAX_KEY_CHARS).contains(&key.len()) && key.chars().all(is_plain) {
        key.to_owned()
    } else {
        quote_value(key)
    }
}

/// Suggests the most similar key in quotes, or lists all keys.
pub(crate) fn suggest_key(key: &str, known: &[&str], quote: char) -> String {
    match most_similar(truncate_chars(key, MAX_KEY_CHARS), known.iter().copied()) {
        Some(nearest) => format!("did you mean {quote}{nearest}{quote}?"),
        None => format!("the keys are {}", known.join(", ")),
    }
}
