//! Reader for the fields of a plugin's JSON. An invalid field is omitted and reported; the other
//! fields are still read.

use super::{plugin_path, secret_filter};
use crate::model::plugin::MAX_COMPONENTS;
use crate::model::{DiagnosticCode, DynamicValue, FileProblem, RelPath, Severity, text};

/// Maximum number of problems reported for one file. Bounds the cost of a hostile file.
const MAX_PROBLEMS: usize = 64;
/// Maximum length of a name.
pub const MAX_NAME_CHARS: usize = 128;
/// Maximum length of other texts, except long descriptions.
pub const MAX_TEXT_CHARS: usize = 1_024;
/// Maximum number of items in a list or mapping of a component.
pub const MAX_ITEMS: usize = 256;

/// Reads fields and records the problems of one file.
pub struct PluginFieldReader<'p> {
    problems: &'p mut Vec<FileProblem>,
    remaining_problems: usize,
}

/// A mapping and its label in messages.
#[derive(Clone, Copy)]
pub struct LabeledMapping<'v> {
    value: &'v DynamicValue,
    /// Prefix of the keys in messages, such as `mcpServers`. Empty for the document.
    key_prefix: &'v str,
    /// Component that contains the mapping, such as the name of a server. Empty if there is none.
    component: &'v str,
}

impl<'v> LabeledMapping<'v> {
    pub fn root(value: &'v DynamicValue) -> Self {
        Self { value, key_prefix: "", component: "" }
    }

    pub fn new(value: &'v DynamicValue, key_prefix: &'v str, component: &'v str) -> Self {
        Self { value, key_prefix, component }
    }

    /// Returns the value of a key, or `None` if the key is absent or null.
    pub fn non_null_value(self, key: &str) -> Option<&'v DynamicValue> {
        self.value.get(key).filter(|value| **value != DynamicValue::Null)
    }

    fn key_label(self, key: &str) -> String {
        let path = if self.key_prefix.is_empty() {
            key.into()
        } else {
            format!("{}.{key}", self.key_prefix)
        };
        let owner = if self.component.is_empty() {
            String::new()
        } else {
            format!(" of {}", text::quote_word(&secret_filter::redact_in_text(self.component)))
        };
        format!("`{path}`{owner}")
    }
}

impl<'p> PluginFieldReader<'p> {
    pub fn new(problems: &'p mut Vec<FileProblem>) -> Self {
        Self { problems, remaining_problems: MAX_PROBLEMS }
    }

    pub fn report_problem(
        &mut self,
        code: DiagnosticCode,
        severity: Severity,
        why: impl Into<String>,
    ) {
        if let Some(remaining) = self.remaining_problems.checked_sub(1) {
            self.remaining_problems = remaining;
            self.problems.push(FileProblem::new(code, severity, why));
        }
    }

    pub fn report_warning(&mut self, code: DiagnosticCode, why: impl Into<String>) {
        self.report_problem(code, Severity::Warning, why);
    }

    /// Reports that possible secrets of `subject` were redacted.
    pub fn report_redacted(&mut self, subject: &str) {
        let why = format!(
            "{subject} contains a possible secret, which is redacted; \
             read it from the environment: `${{NAME}}`"
        );
        self.report_warning(DiagnosticCode::SecretRedacted, why);
    }

    /// Reports a component that is omitted. `what` is its kind, such as `MCP server`.
    pub fn report_unusable(&mut self, what: &str, name: &str, why: &str) {
        let name = text::quote_word(&secret_filter::redact_in_text(name));
        self.report_problem(
            DiagnosticCode::ComponentInvalid,
            Severity::Error,
            format!("the {what} {name} {why}; omitted"),
        );
    }

    pub fn report_wrong_type(
        &mut self,
        at: LabeledMapping<'_>,
        key: &str,
        value: &DynamicValue,
        expected: &str,
    ) {
        let why =
            format!("{} must be {expected}, but is {}; omitted", at.key_label(key), value.kind());
        self.report_warning(DiagnosticCode::FieldInvalid, why);
    }

    /// Reads a text as a single line, with secrets redacted, truncated to `max` characters.
    pub fn read_line(&mut self, at: LabeledMapping<'_>, key: &str, max: usize) -> Option<Box<str>> {
        let value = at.non_null_value(key)?;
        let Some(found) = value.as_text() else {
            self.report_wrong_type(at, key, value, "text");
            return None;
        };
        let line = text::collapse_whitespace(&secret_filter::redact_in_text(found));
        if text::exceeds_chars(&line, max) {
            let why = format!("{} is over {max} characters; truncated", at.key_label(key));
            self.report_warning(DiagnosticCode::FieldTooLong, why);
        }
        (!line.is_empty()).then(|| text::truncate_chars(&line, max).into())
    }

    /// Reads a text that must not be truncated, such as a path. Omits a text over `max` characters.
    /// Secrets are not redacted.
    pub fn read_verbatim<'v>(
        &mut self,
        at: LabeledMapping<'v>,
        key: &str,
        max: usize,
    ) -> Option<&'v str> {
        let value = at.non_null_value(key)?;
        let Some(found) = value.as_text() else {
            self.report_wrong_type(at, key, value, "text");
            return None;
        };
        if text::exceeds_chars(found, max) {
            let why = format!("{} is over {max} characters; omitted", at.key_label(key));
            self.report_warning(DiagnosticCode::FieldTooLong, why);
            return None;
        }
        (!found.trim().is_empty()).then(|| found.trim())
    }

    pub fn read_bool(&mut self, at: LabeledMapping<'_>, key: &str) -> Option<bool> {
        match at.non_null_value(key)? {
            DynamicValue::Bool(flag) => Some(*flag),
            other => {
                self.report_wrong_type(at, key, other, "true or false");
                None
            }
        }
    }

    /// Reads a duration and returns milliseconds. `unit` is the number of milliseconds in the
    /// author's unit.
    pub fn read_duration_ms(
        &mut self,
        at: LabeledMapping<'_>,
        key: &str,
        unit: f64,
    ) -> Option<u64> {
        let value = at.non_null_value(key)?;
        #[allow(clippy::cast_precision_loss)] // durations near 2^53 are rejected below
        let number = match value {
            DynamicValue::Int(n) => *n as f64,
            DynamicValue::UInt(n) => *n as f64,
            DynamicValue::Float(n) => *n,
            _ => -1.0,
        };
        // No host waits longer than a year.
        if number.is_finite() && number >= 0.0 && number * unit <= 366.0 * 86_400_000.0 {
            #[allow(clippy::cast_sign_loss, clippy::cast_possible_truncation)]
            // range checked above
            return Some((number * unit).round() as u64);
        }
        let why = format!("{} is not a valid duration; omitted", at.key_label(key));
        self.report_warning(DiagnosticCode::FieldInvalid, why);
        None
    }

    /// Reads a list of texts, or a single text, with secrets redacted. Omits invalid items.
    pub fn read_lines(&mut self, at: LabeledMapping<'_>, key: &str, max: usize) -> Box<[Box<str>]> {
        let lines = self.read_verbatim_list(at, key, max);
        lines.into_iter().map(|line| secret_filter::redact_in_text(line).into()).collect()
    }

    /// Reads a list of texts, or a single text. Omits invalid items. Secrets are not redacted.
    pub fn read_verbatim_list<'v>(
        &mut self,
        at: LabeledMapping<'v>,
        key: &str,
        max: usize,
    ) -> Vec<&'v str> {
        let Some(value) = at.non_null_value(key) else { return Vec::new() };
        let items = match value {
            DynamicValue::List(items) => &**items,
            DynamicValue::Text(_) => std::slice::from_ref(value),
            other => {
                self.report_wrong_type(at, key, other, "a list of texts");
                return Vec::new();
            }
        };
        let valid_text =
            |item: &'v DynamicValue| item.as_text().filter(|text| !text::exceeds_chars(text, max));
        let texts: Vec<_> = items.iter().filter_map(valid_text).take(MAX_ITEMS).collect();
        if texts.len() < items.len() {
            let why = format!(
                "{} may hold {MAX_ITEMS} texts of {max} characters; {} omitted",
                at.key_label(key),
                items.len() - texts.len()
            );
            self.report_warning(DiagnosticCode::FieldInvalid, why);
        }
        texts
    }

    /// Reads the entries of a mapping. Returns no entries if the key is absent.
    pub fn read_entries<'v>(
        &mut self,
        at: LabeledMapping<'v>,
        key: &str,
    ) -> &'v [(Box<str>, DynamicValue)] {
        let Some(value) = at.non_null_value(key) else { return &[] };
        let Some(entries) = value.as_map() else {
            self.report_wrong_type(at, key, value, "an object");
            return &[];
        };
        if entries.len() > MAX_ITEMS {
            let why =
                format!("{} has over {MAX_ITEMS} entries; the rest is omitted", at.key_label(key));
            self.report_warning(DiagnosticCode::FieldTooLong, why);
        }
        &entries[..entries.len().min(MAX_ITEMS)]
    }

    /// Reports the keys that are not in `known`.
    pub fn report_unknown_keys(&mut self, at: LabeledMapping<'_>, known: &[&str]) {
        let entries = at.value.as_map().unwrap_or_default();
        let keys = entries.iter().map(|(key, _)| &**key);
        let keys = keys.filter(|key| !known.contains(key) && *key != "$schema");
        let keys: Vec<String> = keys.map(secret_filter::redact_in_text).collect();
        if keys.is_empty() {
            return;
        }
        let named = text::quote_words(keys.iter().map(String::as_str));
        let owner = match (at.key_prefix, at.component) {
            ("", "") => String::new(),
            (prefix, "") => format!(" in `{prefix}`"),
            (_, component) => {
                format!(" of {}", text::quote_word(&secret_filter::redact_in_text(component)))
            }
        };
        let why = format!("unknown keys{owner}, ignored: {named}");
        self.report_problem(DiagnosticCode::FieldUnknown, Severity::Note, why);
    }

    /// Returns the first `MAX_COMPONENTS` components of a file and reports how many are omitted.
    pub fn take_components<'v>(
        &mut self,
        what: &str,
        entries: &'v [(Box<str>, DynamicValue)],
    ) -> &'v [(Box<str>, DynamicValue)] {
        if entries.len() > MAX_COMPONENTS {
            let more = entries.len() - MAX_COMPONENTS;
            let why = format!("a file may declare {MAX_COMPONENTS} {what}; {more} omitted");
            self.report_warning(DiagnosticCode::LimitReached, why);
        }
        &entries[..entries.len().min(MAX_COMPONENTS)]
    }

    /// Returns the name of a component with secrets redacted, or reports why the name is invalid.
    pub fn check_component_name(&mut self, what: &str, name: &str) -> Option<Box<str>> {
        let name = text::collapse_whitespace(&secret_filter::redact_in_text(name));
        let why = if name.is_empty() {
            "has no name"
        } else if text::exceeds_chars(&name, MAX_NAME_CHARS) || name.chars().any(char::is_control) {
            "has a name that is too long or has control characters"
        } else {
            return Some(name);
        };
        self.report_unusable(what, &name, why);
        None
    }

    /// Reads a URL with secrets redacted.
    pub fn read_url(&mut self, at: LabeledMapping<'_>, key: &str) -> Option<Box<str>> {
        let url = self.read_verbatim(at, key, MAX_TEXT_CHARS)?;
        Some(secret_filter::redact_in_url(url).0.into())
    }

    /// Parses a path inside the plugin. Reports an invalid path.
    pub fn parse_plugin_path(&mut self, key: &str, text: &str) -> Option<RelPath> {
        let path = plugin_path::parse_plugin_path(text);
        if path.is_none() {
            let text = secret_filter::redact_in_path(text);
            let why = format!("`{key}` names {text}, expected `./` and a path inside the plugin");
            self.report_warning(DiagnosticCode::PathInvalid, why);
        }
        path
    }
}
