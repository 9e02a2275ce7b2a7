//! Takes a mapping apart by keys that are known, and values by what they must be; whatever does not
//! fit becomes a mistake, and the rest goes on. Leaves which keys there are to `settings`.

use super::mistake::{Mistake, Mistakes};
use crate::document::{At, Entry, Node, Value, quoted};
use bytesize::ByteSize;
use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::hash::Hash;
use std::ops::RangeInclusive;
use std::path::Path;

/// How alike a key must be to one that is known to be taken for it, from 0 to 1.
const ALIKE: f64 = 0.75;
/// The most characters of a key that is compared with those known.
const MAX_KEY_CHARS: usize = 64;

/// Collects what is wrong in one file.
pub(super) struct Checker<'a> {
    pub(super) file: &'a Path,
    pub(super) mistakes: &'a mut Mistakes,
}

/// A value and the key that it stands at.
pub(super) struct Item<'a> {
    key: String,
    node: &'a Node,
}

/// A mapping of which all keys are known and come once.
pub(super) struct Section<'a> {
    key: String,
    at: At,
    entries: Vec<&'a Entry>,
}

impl Checker<'_> {
    /// Says what is wrong with a value.
    pub(super) fn refuse(&mut self, item: &Item<'_>, reason: impl Display) {
        let mistake = self.mistake(item, reason);
        self.mistakes.add(mistake);
    }

    /// What is wrong with a value, to be said later.
    pub(super) fn mistake(&self, item: &Item<'_>, reason: impl Display) -> Mistake {
        Mistake {
            file: Some(self.file.to_owned()),
            at: Some(item.node.at),
            key: item.key.clone(),
            value: item.node.shown(),
            reason: reason.to_string(),
        }
    }

    fn add(&mut self, at: At, key: String, value: Option<String>, reason: impl Display) {
        let (file, reason) = (Some(self.file.to_owned()), reason.to_string());
        self.mistakes.add(Mistake { file, at: Some(at), key, value, reason });
    }

    /// The whole document.
    pub(super) fn document<'a>(
        &mut self,
        node: &'a Node,
        known: &'static [&'static str],
    ) -> Section<'a> {
        let item = Item { key: String::new(), node };
        // A file that says nothing leaves everything as it is.
        let section = if node.value == Value::Null { None } else { self.section(&item, known) };
        section.unwrap_or_else(|| Section { key: String::new(), at: node.at, entries: Vec::new() })
    }

    /// A mapping with some of these keys.
    pub(super) fn section<'a>(
        &mut self,
        item: &Item<'a>,
        known: &'static [&'static str],
    ) -> Option<Section<'a>> {
        let Value::Map(entries) = &item.node.value else {
            self.refuse(item, format!("is no mapping; its keys are {}", known.join(", ")));
            return None;
        };
        let mut first: HashMap<&str, At> = HashMap::new();
        let mut good = Vec::new();
        for entry in entries {
            let key = join(&item.key, &entry.key);
            if !known.contains(&&*entry.key) {
                let reason = format!("is no key here; {}", suggestion(&entry.key, known));
                self.add(entry.at, join(&item.key, &shown_key(&entry.key)), None, reason);
            } else if let Some(at) = first.get(&*entry.key) {
                let line = at.line;
                self.add(entry.at, key, None, format!("is given again; it is in line {line} too"));
            } else if entry.node.value == Value::Null {
                self.add(entry.at, key, None, "says nothing; give a value, or leave the key out");
            } else {
                good.push(entry);
            }
            first.entry(&entry.key).or_insert(entry.at);
        }
        Some(Section { key: item.key.clone(), at: item.node.at, entries: good })
    }

    /// A value that must be there.
    pub(super) fn required<'a>(&mut self, section: &Section<'a>, key: &str) -> Option<Item<'a>> {
        let item = section.get(key);
        if item.is_none() && !self.told(section, key) {
            self.add(section.at, join(&section.key, key), None, "is missing");
        }
        item
    }

    /// Whether what is wrong with a key of a section was said already.
    fn told(&self, section: &Section<'_>, key: &str) -> bool {
        let key = join(&section.key, key);
        self.mistakes.any(|m| m.key == key && m.at.is_some_and(|at| at >= section.at))
    }

    /// A text that is not empty.
    pub(super) fn text<'a>(&mut self, item: &Item<'a>) -> Option<&'a str> {
        match &item.node.value {
            Value::Text(text) if text.is_empty() => self.refuse(item, "is empty"),
            Value::Text(text) if text.contains('\0') => self.refuse(item, "holds a NUL"),
            Value::Text(text) => return Some(text),
            Value::Number(_) | Value::Bool(_) => {
                self.refuse(item, "is no text; put it in quotes if it is meant as one");
            }
            Value::Null => self.refuse(item, "says nothing; give a text"),
            Value::List(_) | Value::Map(_) => self.refuse(item, "is no text"),
        }
        None
    }

    /// A text that `check` makes something of; its error goes on after the text.
    pub(super) fn parsed<T, E: Display>(
        &mut self,
        item: &Item<'_>,
        check: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let text = self.text(item)?;
        check(text).map_err(|reason| self.refuse(item, reason)).ok()
    }

    /// A number as it is written, or a text, that `check` makes something of.
    pub(super) fn word<T, E: Display>(
        &mut self,
        item: &Item<'_>,
        check: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        match &item.node.value {
            Value::Number(number) => check(number).map_err(|reason| self.refuse(item, reason)).ok(),
            _ => self.parsed(item, check),
        }
    }

    /// `true` or `false`.
    pub(super) fn boolean(&mut self, item: &Item<'_>) -> Option<bool> {
        if let Value::Bool(value) = item.node.value {
            return Some(value);
        }
        self.refuse(item, "is neither true nor false");
        None
    }

    /// A number from 0 to 1.
    pub(super) fn share(&mut self, item: &Item<'_>) -> Option<f64> {
        let number = match &item.node.value {
            Value::Number(text) => text.parse().ok().filter(|n| (0.0..=1.0).contains(n)),
            _ => None,
        };
        if number.is_none() {
            self.refuse(item, "is no number from 0 to 1, such as 0.1");
        }
        number
    }

    /// A whole number within bounds.
    pub(super) fn count(&mut self, item: &Item<'_>, bounds: &RangeInclusive<u64>) -> Option<u64> {
        let (least, most) = (bounds.start(), bounds.end());
        let number = match &item.node.value {
            Value::Number(text) => text.parse().ok().filter(|n| bounds.contains(n)),
            _ => None,
        };
        if number.is_none() {
            self.refuse(item, format!("is no whole number from {least} to {most}"));
        }
        number
    }

    /// A number of bytes within bounds: a whole number, or a size such as `256MiB`.
    pub(super) fn bytes(&mut self, item: &Item<'_>, bounds: &RangeInclusive<u64>) -> Option<u64> {
        let number = match &item.node.value {
            Value::Number(text) => text.parse().ok(),
            Value::Text(text) => text.parse::<ByteSize>().map(|size| size.as_u64()).ok(),
            _ => None,
        };
        let number = number.filter(|n| bounds.contains(n));
        if number.is_none() {
            let (least, most) = (size(*bounds.start()), size(*bounds.end()));
            self.refuse(item, format!("is no size from {least} to {most}, such as 256MiB"));
        }
        number
    }

    /// The items of a list.
    pub(super) fn list<'a>(&mut self, item: &Item<'a>) -> Vec<Item<'a>> {
        let Value::List(nodes) = &item.node.value else {
            self.refuse(item, "is no list; write `[a, b]`, or one `- a` a line");
            return Vec::new();
        };
        let items = nodes.iter().enumerate();
        items.map(|(n, node)| Item { key: format!("{}[{n}]", item.key), node }).collect()
    }

    /// The same of one that must not be empty, and is told what that would mean.
    pub(super) fn list_unless_empty<'a>(&mut self, item: &Item<'a>, reason: &str) -> Vec<Item<'a>> {
        if matches!(&item.node.value, Value::List(nodes) if nodes.is_empty()) {
            self.refuse(item, reason);
        }
        self.list(item)
    }

    /// A list of which each item is made something of and comes once; one that must not be empty
    /// is told what that would mean.
    pub(super) fn each<T: Clone + Eq + Hash, E: Display>(
        &mut self,
        item: &Item<'_>,
        unless_empty: Option<&str>,
        check: impl Fn(&str) -> Result<T, E>,
    ) -> Vec<T> {
        let items = match unless_empty {
            Some(reason) => self.list_unless_empty(item, reason),
            None => self.list(item),
        };
        self.once(items, |checker, item| checker.parsed(item, &check))
    }

    /// The same of items that are numbers or names; one must be there.
    pub(super) fn each_word<T: Clone + Eq + Hash, E: Display>(
        &mut self,
        item: &Item<'_>,
        unless_empty: &str,
        check: impl Fn(&str) -> Result<T, E>,
    ) -> Vec<T> {
        let items = self.list_unless_empty(item, unless_empty);
        self.once(items, |checker, item| checker.word(item, &check))
    }

    fn once<T: Clone + Eq + Hash>(
        &mut self,
        items: Vec<Item<'_>>,
        mut take: impl FnMut(&mut Self, &Item<'_>) -> Option<T>,
    ) -> Vec<T> {
        let mut seen = HashSet::new();
        let mut all = Vec::new();
        for item in items {
            let Some(value) = take(self, &item) else { continue };
            if seen.insert(value.clone()) {
                all.push(value);
            } else {
                self.refuse(&item, "is given twice");
            }
        }
        all
    }
}

impl<'a> Section<'a> {
    /// The value of a key.
    pub(super) fn get(&self, key: &str) -> Option<Item<'a>> {
        let entry = self.entries.iter().find(|entry| &*entry.key == key)?;
        Some(Item { key: join(&self.key, key), node: &entry.node })
    }
}

impl Item<'_> {
    /// Where the value stands.
    pub(super) fn line(&self) -> u32 {
        self.node.at.line
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
    if key.len() <= MAX_KEY_CHARS && key.chars().all(plain) { key.to_owned() } else { quoted(key) }
}

/// The nearest key, or all of them.
fn suggestion(key: &str, known: &[&str]) -> String {
    let key: String = key.chars().take(MAX_KEY_CHARS).flat_map(char::to_lowercase).collect();
    let key = key.replace('-', "_");
    let alike = known.iter().map(|known| (strsim::jaro_winkler(&key, known), known));
    match alike.max_by(|(a, _), (b, _)| a.total_cmp(b)) {
        Some((score, nearest)) if score >= ALIKE => format!("did you mean `{nearest}`?"),
        _ => format!("the keys are {}", known.join(", ")),
    }
}
