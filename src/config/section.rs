//! Takes a mapping apart by keys that are known, and values by what they must be; whatever does not
//! fit becomes a mistake, and the rest goes on. Leaves which keys there are to `settings`.

use super::error::{ConfigError, ConfigErrors};
use crate::yaml_document::{
    DocumentEntry, DocumentNode, DocumentValue, TextPosition, quote_truncated,
};
use bytesize::ByteSize;
use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::hash::Hash;
use std::ops::RangeInclusive;
use std::path::Path;

/// How alike a key must be to one that is known to be taken for it, from 0 to 1.
const MIN_SIMILARITY: f64 = 0.75;
/// The most characters of a key that is compared with those known.
const MAX_KEY_CHARS: usize = 64;

/// Collects what is wrong in one file.
pub(super) struct ConfigReader<'a> {
    pub(super) file: &'a Path,
    pub(super) errors: &'a mut ConfigErrors,
}

/// A value and the key that it stands at.
pub(super) struct ConfigValue<'a> {
    key: String,
    node: &'a DocumentNode,
}

/// A mapping of which all keys are known and come once.
pub(super) struct ConfigSection<'a> {
    key: String,
    position: TextPosition,
    entries: Vec<&'a DocumentEntry>,
}

impl ConfigReader<'_> {
    /// Says what is wrong with a value.
    pub(super) fn report_error(&mut self, item: &ConfigValue<'_>, reason: impl Display) {
        let mistake = self.error_for(item, reason);
        self.errors.add(mistake);
    }

    /// What is wrong with a value, to be said later.
    pub(super) fn error_for(&self, item: &ConfigValue<'_>, reason: impl Display) -> ConfigError {
        ConfigError {
            file: Some(self.file.to_owned()),
            position: Some(item.node.position),
            key: item.key.clone(),
            value: item.node.describe_value(),
            reason: reason.to_string(),
        }
    }

    fn add(&mut self, at: TextPosition, key: String, value: Option<String>, reason: impl Display) {
        let (file, reason) = (Some(self.file.to_owned()), reason.to_string());
        self.errors.add(ConfigError { file, position: Some(at), key, value, reason });
    }

    /// The whole document.
    pub(super) fn top_section<'a>(
        &mut self,
        node: &'a DocumentNode,
        known: &'static [&'static str],
    ) -> ConfigSection<'a> {
        let item = ConfigValue { key: String::new(), node };
        // A file that says nothing leaves everything as it is.
        let section =
            if node.value == DocumentValue::Null { None } else { self.section(&item, known) };
        section.unwrap_or_else(|| ConfigSection {
            key: String::new(),
            position: node.position,
            entries: Vec::new(),
        })
    }

    /// A mapping with some of these keys.
    pub(super) fn section<'a>(
        &mut self,
        item: &ConfigValue<'a>,
        known: &'static [&'static str],
    ) -> Option<ConfigSection<'a>> {
        let DocumentValue::Map(entries) = &item.node.value else {
            self.report_error(item, format!("is no mapping; its keys are {}", known.join(", ")));
            return None;
        };
        let mut first: HashMap<&str, TextPosition> = HashMap::new();
        let mut good = Vec::new();
        for entry in entries {
            let key = join(&item.key, &entry.key);
            if !known.contains(&&*entry.key) {
                let reason = format!("is no key here; {}", suggestion(&entry.key, known));
                self.add(entry.key_position, join(&item.key, &shown_key(&entry.key)), None, reason);
            } else if let Some(at) = first.get(&*entry.key) {
                let line = at.line;
                self.add(
                    entry.key_position,
                    key,
                    None,
                    format!("is given again; it is in line {line} too"),
                );
            } else if entry.node.value == DocumentValue::Null {
                self.add(
                    entry.key_position,
                    key,
                    None,
                    "says nothing; give a value, or leave the key out",
                );
            } else {
                good.push(entry);
            }
            first.entry(&entry.key).or_insert(entry.key_position);
        }
        Some(ConfigSection { key: item.key.clone(), position: item.node.position, entries: good })
    }

    /// A value that must be there.
    pub(super) fn required<'a>(
        &mut self,
        section: &ConfigSection<'a>,
        key: &str,
    ) -> Option<ConfigValue<'a>> {
        let item = section.get(key);
        if item.is_none() && !self.is_reported(section, key) {
            self.add(section.position, join(&section.key, key), None, "is missing");
        }
        item
    }

    /// Whether what is wrong with a key of a section was said already.
    fn is_reported(&self, section: &ConfigSection<'_>, key: &str) -> bool {
        let key = join(&section.key, key);
        self.errors.any(|m| m.key == key && m.position.is_some_and(|at| at >= section.position))
    }

    /// A text that is not empty.
    pub(super) fn text<'a>(&mut self, item: &ConfigValue<'a>) -> Option<&'a str> {
        match &item.node.value {
            DocumentValue::Text(text) if text.is_empty() => self.report_error(item, "is empty"),
            DocumentValue::Text(text) if text.contains('\0') => {
                self.report_error(item, "holds a NUL")
            }
            DocumentValue::Text(text) => return Some(text),
            DocumentValue::Number(_) | DocumentValue::Bool(_) => {
                self.report_error(item, "is no text; put it in quotes if it is meant as one");
            }
            DocumentValue::Null => self.report_error(item, "says nothing; give a text"),
            DocumentValue::List(_) | DocumentValue::Map(_) => self.report_error(item, "is no text"),
        }
        None
    }

    /// A text that `check` makes something of; its error goes on after the text.
    pub(super) fn parsed<T, E: Display>(
        &mut self,
        item: &ConfigValue<'_>,
        check: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let text = self.text(item)?;
        check(text).map_err(|reason| self.report_error(item, reason)).ok()
    }

    /// A number as it is written, or a text, that `check` makes something of.
    pub(super) fn number_or_text<T, E: Display>(
        &mut self,
        item: &ConfigValue<'_>,
        check: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        match &item.node.value {
            DocumentValue::Number(number) => {
                check(number).map_err(|reason| self.report_error(item, reason)).ok()
            }
            _ => self.parsed(item, check),
        }
    }

    /// `true` or `false`.
    pub(super) fn boolean(&mut self, item: &ConfigValue<'_>) -> Option<bool> {
        if let DocumentValue::Bool(value) = item.node.value {
            return Some(value);
        }
        self.report_error(item, "is neither true nor false");
        None
    }

    /// A number from 0 to 1.
    pub(super) fn ratio(&mut self, item: &ConfigValue<'_>) -> Option<f64> {
        let number = match &item.node.value {
            DocumentValue::Number(text) => text.parse().ok().filter(|n| (0.0..=1.0).contains(n)),
            _ => None,
        };
        if number.is_none() {
            self.report_error(item, "is no number from 0 to 1, such as 0.1");
        }
        number
    }

    /// A whole number within bounds.
    pub(super) fn count(
        &mut self,
        item: &ConfigValue<'_>,
        bounds: &RangeInclusive<u64>,
    ) -> Option<u64> {
        let (least, most) = (bounds.start(), bounds.end());
        let number = match &item.node.value {
            DocumentValue::Number(text) => text.parse().ok().filter(|n| bounds.contains(n)),
            _ => None,
        };
        if number.is_none() {
            self.report_error(item, format!("is no whole number from {least} to {most}"));
        }
        number
    }

    /// A number of bytes within bounds: a whole number, or a size such as `256MiB`.
    pub(super) fn bytes(
        &mut self,
        item: &ConfigValue<'_>,
        bounds: &RangeInclusive<u64>,
    ) -> Option<u64> {
        let number = match &item.node.value {
            DocumentValue::Number(text) => text.parse().ok(),
            DocumentValue::Text(text) => text.parse::<ByteSize>().map(|size| size.as_u64()).ok(),
            _ => None,
        };
        let number = number.filter(|n| bounds.contains(n));
        if number.is_none() {
            let (least, most) = (size(*bounds.start()), size(*bounds.end()));
            self.report_error(item, format!("is no size from {least} to {most}, such as 256MiB"));
        }
        number
    }

    /// The items of a list.
    pub(super) fn list<'a>(&mut self, item: &ConfigValue<'a>) -> Vec<ConfigValue<'a>> {
        let DocumentValue::List(nodes) = &item.node.value else {
            self.report_error(item, "is no list; write `[a, b]`, or one `- a` a line");
            return Vec::new();
        };
        let items = nodes.iter().enumerate();
        items.map(|(n, node)| ConfigValue { key: format!("{}[{n}]", item.key), node }).collect()
    }

    /// The same of one that must not be empty, and is told what that would mean.
    pub(super) fn list_unless_empty<'a>(
        &mut self,
        item: &ConfigValue<'a>,
        reason: &str,
    ) -> Vec<ConfigValue<'a>> {
        if matches!(&item.node.value, DocumentValue::List(nodes) if nodes.is_empty()) {
            self.report_error(item, reason);
        }
        self.list(item)
    }

    /// A list of which each item is made something of and comes once; one that must not be empty
    /// is told what that would mean.
    pub(super) fn unique_texts<T: Clone + Eq + Hash, E: Display>(
        &mut self,
        item: &ConfigValue<'_>,
        unless_empty: Option<&str>,
        check: impl Fn(&str) -> Result<T, E>,
    ) -> Vec<T> {
        let items = match unless_empty {
            Some(reason) => self.list_unless_empty(item, reason),
            None => self.list(item),
        };
        self.unique_values(items, |checker, item| checker.parsed(item, &check))
    }

    /// The same of items that are numbers or names; one must be there.
    pub(super) fn unique_numbers_or_texts<T: Clone + Eq + Hash, E: Display>(
        &mut self,
        item: &ConfigValue<'_>,
        unless_empty: &str,
        check: impl Fn(&str) -> Result<T, E>,
    ) -> Vec<T> {
        let items = self.list_unless_empty(item, unless_empty);
        self.unique_values(items, |checker, item| checker.number_or_text(item, &check))
    }

    fn unique_values<T: Clone + Eq + Hash>(
        &mut self,
        items: Vec<ConfigValue<'_>>,
        mut take: impl FnMut(&mut Self, &ConfigValue<'_>) -> Option<T>,
    ) -> Vec<T> {
        let mut seen = HashSet::new();
        let mut all = Vec::new();
        for item in items {
            let Some(value) = take(self, &item) else { continue };
            if seen.insert(value.clone()) {
                all.push(value);
            } else {
                self.report_error(&item, "is given twice");
            }
        }
        all
    }
}

impl<'a> ConfigSection<'a> {
    /// The value of a key.
    pub(super) fn get(&self, key: &str) -> Option<ConfigValue<'a>> {
        let entry = self.entries.iter().find(|entry| &*entry.key == key)?;
        Some(ConfigValue { key: join(&self.key, key), node: &entry.node })
    }
}

impl ConfigValue<'_> {
    /// Where the value stands.
    pub(super) fn line(&self) -> u32 {
        self.node.position.line
    }
}

/// A size as it is best read.
pub(super) fn size(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", bytes / unit),
        None => bytes.to_string(),
    }
}

fn join(section: &str, key: &str) -> String {
    if section.is_empty() { key.to_owned() } else { format!("{section}.{key}") }
}

/// A key that no rule has been applied to, fit for a message.
fn shown_key(key: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    if key.len() <= MAX_KEY_CHARS && key.chars().all(plain) {
        key.to_owned()
    } else {
        quote_truncated(key)
    }
}

/// The nearest key, or all of them.
fn suggestion(key: &str, known: &[&str]) -> String {
    let key: String = key.chars().take(MAX_KEY_CHARS).flat_map(char::to_lowercase).collect();
    let key = key.replace('-', "_");
    let alike = known.iter().map(|known| (strsim::jaro_winkler(&key, known), known));
    match alike.max_by(|(a, _), (b, _)| a.total_cmp(b)) {
        Some((score, nearest)) if score >= MIN_SIMILARITY => format!("did you mean `{nearest}`?"),
        _ => format!("the keys are {}", known.join(", ")),
    }
}
