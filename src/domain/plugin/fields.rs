//! Reads the fields of a plugin's JSON, one by one: a bad one costs itself and gives a problem. What is
//! not known is named. Leaves what each field means to the kinds.

use super::secret;
use crate::domain::{Code, Problem, Severity, Value, text};

/// Problems of one file that are kept, so that a hostile one costs a bounded time to report.
const MAX_PROBLEMS: usize = 64;
/// Characters of a name.
pub(super) const MAX_NAME: usize = 128;
/// Characters of any other text but a description.
pub(super) const MAX_TEXT: usize = 1_024;
/// Items of a list within a component.
pub(super) const MAX_ITEMS: usize = 256;

/// Keeps what is wrong.
pub(super) struct Fields<'p> {
    problems: &'p mut Vec<Problem>,
    left: usize,
}

/// A mapping, and how a message calls it.
#[derive(Clone, Copy)]
pub(super) struct At<'v> {
    pub(super) value: &'v Value,
    /// What the keys of this mapping are called after, such as `mcpServers`; empty for the document.
    name: &'v str,
    /// The component that it is part of, such as a server's name; empty for none.
    within: &'v str,
}

impl<'v> At<'v> {
    pub(super) fn root(value: &'v Value) -> Self {
        Self { value, name: "", within: "" }
    }

    pub(super) fn named(value: &'v Value, name: &'v str, within: &'v str) -> Self {
        Self { value, name, within }
    }

    /// The value under a key, unless it is absent or null.
    pub(super) fn get(self, key: &str) -> Option<&'v Value> {
        self.value.get(key).filter(|value| **value != Value::Null)
    }

    fn call(self, key: &str) -> String {
        let path = if self.name.is_empty() { key.into() } else { format!("{}.{key}", self.name) };
        let within = if self.within.is_empty() {
            String::new()
        } else {
            format!(" of {}", text::shown(&secret::clean(self.within)))
        };
        format!("`{path}`{within}")
    }
}

impl<'p> Fields<'p> {
    pub(super) fn new(problems: &'p mut Vec<Problem>) -> Self {
        Self { problems, left: MAX_PROBLEMS }
    }

    pub(super) fn report(&mut self, code: Code, severity: Severity, why: impl Into<String>) {
        if let Some(left) = self.left.checked_sub(1) {
            self.left = left;
            self.problems.push(Problem::new(code, severity, why));
        }
    }

    pub(super) fn warn(&mut self, code: Code, why: impl Into<String>) {
        self.report(code, Severity::Warning, why);
    }

    /// Something that cannot be used and is left out, `what` it is.
    pub(super) fn useless(&mut self, what: &str, name: &str, why: &str) {
        let name = text::shown(&secret::clean(name));
        self.report(
            Code::ComponentInvalid,
            Severity::Error,
            format!("the {what} {name} {why}; left out"),
        );
    }

    pub(super) fn wrong(&mut self, at: At<'_>, key: &str, value: &Value, expected: &str) {
        let why = format!("{} is {}, and must be {expected}; left out", at.call(key), value.kind());
        self.warn(Code::FieldInvalid, why);
    }

    /// One line of text, in which no secret is, cut to `max` characters.
    pub(super) fn line(&mut self, at: At<'_>, key: &str, max: usize) -> Option<Box<str>> {
        let value = at.get(key)?;
        let Some(found) = value.as_text() else {
            self.wrong(at, key, value, "text");
            return None;
        };
        let line = text::collapsed(&secret::clean(found));
        if text::is_over(&line, max) {
            let why = format!("{} is over {max} characters; cut there", at.call(key));
            self.warn(Code::FieldTooLong, why);
        }
        (!line.is_empty()).then(|| text::cut(&line, max).into())
    }

    /// A text that loses its meaning when it is cut, as it is written.
    pub(super) fn whole<'v>(&mut self, at: At<'v>, key: &str, max: usize) -> Option<&'v str> {
        let value = at.get(key)?;
        let Some(found) = value.as_text() else {
            self.wrong(at, key, value, "text");
            return None;
        };
        if text::is_over(found, max) {
            let why = format!("{} is over {max} characters; left out", at.call(key));
            self.warn(Code::FieldTooLong, why);
            return None;
        }
        (!found.trim().is_empty()).then(|| found.trim())
    }

    pub(super) fn flag(&mut self, at: At<'_>, key: &str) -> Option<bool> {
        match at.get(key)? {
            Value::Bool(flag) => Some(*flag),
            other => {
                self.wrong(at, key, other, "true or false");
                None
            }
        }
    }

    /// A time, in milliseconds; `unit` is how many of these the author's unit has.
    pub(super) fn time(&mut self, at: At<'_>, key: &str, unit: f64) -> Option<u64> {
        let value = at.get(key)?;
        #[allow(clippy::cast_precision_loss)] // a time-out of 2^53 seconds is none
        let number = match value {
            Value::Int(n) => *n as f64,
            Value::UInt(n) => *n as f64,
            Value::Float(n) => *n,
            _ => -1.0,
        };
        // A year is more than any host waits.
        if number.is_finite() && number >= 0.0 && number * unit <= 366.0 * 86_400_000.0 {
            #[allow(clippy::cast_sign_loss, clippy::cast_possible_truncation)] // in bounds
            return Some((number * unit).round() as u64);
        }
        let why = format!("{} is no time that can be waited; left out", at.call(key));
        self.warn(Code::FieldInvalid, why);
        None
    }

    /// Texts of a list, or a single one, in which no secret is; those that are none are left out.
    pub(super) fn lines(&mut self, at: At<'_>, key: &str, max: usize) -> Box<[Box<str>]> {
        let lines = self.texts(at, key, max);
        lines.into_iter().map(|line| secret::clean(line).into()).collect()
    }

    /// Texts of a list, or a single one, as they are written.
    pub(super) fn texts<'v>(&mut self, at: At<'v>, key: &str, max: usize) -> Vec<&'v str> {
        let Some(value) = at.get(key) else { return Vec::new() };
        let items = match value {
            Value::List(items) => &**items,
            Value::Text(_) => std::slice::from_ref(value),
            other => {
                self.wrong(at, key, other, "a list of texts");
                return Vec::new();
            }
        };
        let good = |item: &'v Value| item.as_text().filter(|text| !text::is_over(text, max));
        let texts: Vec<_> = items.iter().filter_map(good).take(MAX_ITEMS).collect();
        if texts.len() < items.len() {
            let why = format!(
                "{} may hold {MAX_ITEMS} texts of {max} characters; {} left out",
                at.call(key),
                items.len() - texts.len()
            );
            self.warn(Code::FieldInvalid, why);
        }
        texts
    }

    /// The entries of a mapping; none where it is absent.
    pub(super) fn entries<'v>(&mut self, at: At<'v>, key: &str) -> &'v [(Box<str>, Value)] {
        let Some(value) = at.get(key) else { return &[] };
        let Some(entries) = value.as_map() else {
            self.wrong(at, key, value, "an object");
            return &[];
        };
        if entries.len() > MAX_ITEMS {
            let why =
                format!("{} has over {MAX_ITEMS} entries; the rest is left out", at.call(key));
            self.warn(Code::FieldTooLong, why);
        }
        &entries[..entries.len().min(MAX_ITEMS)]
    }

    /// Names the keys that are not known.
    pub(super) fn unknown(&mut self, at: At<'_>, known: &[&str]) {
        let entries = at.value.as_map().unwrap_or_default();
        let keys = entries.iter().map(|(key, _)| &**key);
        let keys = keys.filter(|key| !known.contains(key) && *key != "$schema");
        let keys: Vec<String> = keys.map(secret::clean).collect();
        if keys.is_empty() {
            return;
        }
        let named = text::listed(keys.iter().map(String::as_str));
        let of = match (at.name, at.within) {
            ("", "") => String::new(),
            (name, "") => format!(" in `{name}`"),
            (_, within) => format!(" of {}", text::shown(&secret::clean(within))),
        };
        let why = format!("not known{of}, and not reported: {named}");
        self.report(Code::FieldUnknown, Severity::Note, why);
    }
}
