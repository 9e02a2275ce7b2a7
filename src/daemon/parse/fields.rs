//! Reader for the fields of a skill or plugin. An invalid field is omitted and reported; the other
//! fields are still read.

use super::{key_position, secret_filter};
use crate::daemon::model::limits::MAX_WIRE_NESTING;
use crate::daemon::model::plugin::MAX_COMPONENTS;
use crate::daemon::model::{DiagnosticCode, DynamicValue, FileProblem, Severity};
use caproot_core::text;
use caproot_core::text::similar::most_similar;
use std::fmt::Display;

/// Maximum number of problems reported for one file. Bounds the cost of a hostile file.
const MAX_PROBLEMS: usize = 64;
/// Maximum length of the name of a component.
pub const MAX_NAME_CHARS: usize = 128;
/// Maximum length of other texts, except long descriptions.
pub const MAX_TEXT_CHARS: usize = 1_024;
/// Maximum length of a keyword, type or color.
pub const MAX_WORD_CHARS: usize = 64;
/// Maximum size of the keys that are passed on as they are.
const MAX_MORE_BYTES: usize = 64 << 10;
/// Maximum number of items in a list or mapping.
pub const MAX_ITEMS: usize = 256;

/// Reads fields and records the problems of one file.
pub struct FieldReader<'p> {
    problems: &'p mut Vec<FileProblem>,
    remaining_problems: usize,
    /// YAML of the file, for positions of problems; empty if problems have no position.
    yaml: &'p str,
    /// Lines of the file before the YAML.
    lines_before: u32,
}

/// Keys of a mapping that no field of a message has.
#[derive(Debug, Default)]
pub struct OtherKeys {
    /// Mapping without possible secrets; null if there are no such keys.
    pub value: DynamicValue,
    /// Whether a value is redacted.
    pub has_redacted: bool,
}

/// A mapping and its label in messages.
#[derive(Clone, Copy)]
pub struct FieldMapping<'v> {
    pub value: &'v DynamicValue,
    /// Keys that lead to the mapping. Empty for the document.
    pub path: &'v [&'v str],
    /// Component that contains the mapping, such as the name of a server. Empty if there is none.
    pub component: &'v str,
}

impl<'v> FieldMapping<'v> {
    pub fn root(value: &'v DynamicValue) -> Self {
        Self::new(value, &[], "")
    }

    pub fn new(value: &'v DynamicValue, path: &'v [&'v str], component: &'v str) -> Self {
        Self {
            value,
            path,
            component,
        }
    }

    /// Returns the entries; none if the value is not a mapping.
    pub fn entries(self) -> &'v [(Box<str>, DynamicValue)] {
        self.value.as_map().unwrap_or_default()
    }

    /// Returns the value of a key, or `None` if the key is absent or null.
    pub fn non_null_value(self, key: &str) -> Option<&'v DynamicValue> {
        self.value
            .get(key)
            .filter(|value| **value != DynamicValue::Null)
    }

    /// Returns the keys that are not in `known`.
    pub fn unknown_keys(self, known: &[&str]) -> Vec<&'v str> {
        let keys = self.entries().iter().map(|(key, _)| &**key);
        keys.filter(|key| !known.contains(key)).collect()
    }

    /// Returns the first of the keys that has a value.
    pub fn find_present_key<'k>(self, keys: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
        keys.into_iter()
            .find(|key| self.non_null_value(key).is_some())
    }

    fn key_label(self, key: &str) -> String {
        let path = [self.path, &[key]].concat().join(".");
        let owner = if self.component.is_empty() {
            String::new()
        } else {
            format!(" of {}", quote_redacted(self.component))
        };
        format!("`{path}`{owner}")
    }
}

impl<'p> FieldReader<'p> {
    /// Creates a reader whose problems have no positions.
    pub fn new(problems: &'p mut Vec<FileProblem>) -> Self {
        Self {
            problems,
            remaining_problems: MAX_PROBLEMS,
            yaml: "",
            lines_before: 0,
        }
    }

    /// Creates a reader for `yaml`, which follows `lines_before` lines of the file.
    pub fn with_positions(
        problems: &'p mut Vec<FileProblem>,
        yaml: &'p str,
        lines_before: u32,
    ) -> Self {
        Self {
            yaml,
            lines_before,
            ..Self::new(problems)
        }
    }

    /// Reports a warning without a position.
    pub fn report_warning(&mut self, code: DiagnosticCode, why: impl Into<String>) {
        self.report_at(&[], code, Severity::Warning, why);
    }

    /// Whether a further problem would be recorded. Checked before a message is formatted, because a
    /// file may have a problem in each of many entries with a long name.
    fn has_room(&self) -> bool {
        self.remaining_problems > 0
    }

    /// Records a problem, unless the file has too many.
    pub fn add_problem(&mut self, problem: FileProblem) {
        if let Some(remaining) = self.remaining_problems.checked_sub(1) {
            self.remaining_problems = remaining;
            self.problems.push(problem);
        }
    }

    /// Returns the line and column of the last key of `path` in the file, or (0, 0) if they are not
    /// known.
    pub fn position_of(&self, path: &[&str]) -> (u32, u32) {
        match key_position::position_of_key(self.yaml, path) {
            (0, column) => (0, column),
            (line, column) => (line + self.lines_before, column),
        }
    }

    /// Reports a problem at the last key of `path`.
    pub fn report_at(
        &mut self,
        path: &[&str],
        code: DiagnosticCode,
        severity: Severity,
        why: impl Into<String>,
    ) {
        if self.has_room() {
            let (line, column) = self.position_of(path);
            self.add_problem(FileProblem::new(code, severity, why).with_position(line, column));
        }
    }

    /// Reports a problem of a field as a warning.
    pub fn report_field(
        &mut self,
        at: FieldMapping<'_>,
        key: &str,
        code: DiagnosticCode,
        why: impl Into<String>,
    ) {
        self.report_at(&[at.path, &[key]].concat(), code, Severity::Warning, why);
    }

    pub fn report_wrong_type(
        &mut self,
        at: FieldMapping<'_>,
        key: &str,
        value: &DynamicValue,
        expected: &str,
    ) {
        let kind = value.kind();
        self.report_invalid(
            at,
            key,
            format_args!("must be {expected}, but is {kind}; omitted"),
        );
    }

    /// Reports an invalid value of a field. `fault` follows the label of the field.
    fn report_invalid(&mut self, at: FieldMapping<'_>, key: &str, fault: impl Display) {
        if self.has_room() {
            let why = format!("{} {fault}", at.key_label(key));
            self.report_field(at, key, DiagnosticCode::FieldInvalid, why);
        }
    }

    /// Reports a field over `limit`, such as `64 characters`. `effect` says what became of the
    /// field.
    pub fn report_too_long(
        &mut self,
        at: FieldMapping<'_>,
        key: &str,
        limit: impl Display,
        effect: &str,
    ) {
        if self.has_room() {
            let why = format!("{} is over {limit}; {effect}", at.key_label(key));
            self.report_field(at, key, DiagnosticCode::FieldTooLong, why);
        }
    }

    /// Reports the keys that are not in `known`, at the first of them. `effect` says what became of them.
    pub fn report_unknown_keys(&mut self, at: FieldMapping<'_>, known: &[&str], effect: &str) {
        if !self.has_room() {
            return;
        }
        let mut keys = at.unknown_keys(known);
        keys.retain(|key| *key != "$schema");
        let Some(first) = keys.first() else { return };

        // The message goes to callers, and an unknown key may have the form of a secret.
        let redacted = keys.iter().map(|key| secret_filter::redact_in_text(key));
        let redacted: Vec<_> = redacted.collect();
        let named = text::quote_words(redacted.iter().map(String::as_str));

        let owner = match (at.path, at.component) {
            ([], "") => String::new(),
            (path, "") => format!(" in `{}`", path.join(".")),
            (_, component) => format!(" of {}", quote_redacted(component)),
        };

        let similar = keys
            .iter()
            .find_map(|key| most_similar(key, known.iter().copied()));
        let question = similar.map(|known| format!("; did you mean `{known}`?"));
        let question = question.unwrap_or_default();
        let why = format!("unknown keys{owner}, {effect}: {named}{question}");
        let path = [at.path, &[first]].concat();
        self.report_at(&path, DiagnosticCode::FieldUnknown, Severity::Note, why);
    }

    /// Returns the entries whose keys are not in `read`, without possible secrets. `documented` has the
    /// keys that are no spelling mistakes. Reports unknown keys and redacted values. `subject` names the
    /// mapping, such as `the MCP server`.
    pub fn read_more(
        &mut self,
        at: FieldMapping<'_>,
        subject: &str,
        read: &[&str],
        documented: &[&[&str]],
    ) -> OtherKeys {
        let more = at.entries().iter();
        let more = more.filter(|(key, _)| &**key != "$schema" && !read.contains(&&**key));
        let more: Vec<_> = more.cloned().collect();
        if more.is_empty() {
            return OtherKeys::default();
        }

        let declaration = secret_filter::redact_in_declaration(&more);
        let size = declaration.value.wire_size();
        let is_too_large = size > MAX_MORE_BYTES || declaration.value.depth() > MAX_WIRE_NESTING;
        self.report_unknown_keys(at, &[read, &documented.concat()].concat(), "passed on");
        self.report_redacted(subject, &declaration.redacted);
        if is_too_large {
            let why = format!(
                "{subject}: the other keys are over {MAX_MORE_BYTES} bytes, or nested over \
                 {MAX_WIRE_NESTING} levels deep; omitted"
            );
            self.report_warning(DiagnosticCode::FieldTooLong, why);
            return OtherKeys::default();
        }
        OtherKeys {
            has_redacted: !declaration.redacted.is_empty(),
            value: declaration.value,
        }
    }

    /// Reports the values of `subject` that are redacted, by their keys.
    pub fn report_redacted(&mut self, subject: &str, keys: &[impl AsRef<str>]) {
        if !keys.is_empty() {
            let keys = text::quote_words(keys.iter().map(AsRef::as_ref));
            let why = format!(
                "{subject}: {keys} may be secret, and is redacted; read it from the environment: `${{NAME}}`"
            );
            self.report_warning(DiagnosticCode::SecretRedacted, why);
        }
    }

    /// Reports a text of a field if a part of it is redacted.
    fn check_shown(&mut self, at: FieldMapping<'_>, key: &str, found: &str, shown: &str) {
        if found != shown && self.has_room() {
            let label = at.key_label(key);
            let why = format!("a part of {label} may be secret, and is redacted");
            self.report_field(at, key, DiagnosticCode::SecretRedacted, why);
        }
    }

    /// Reports a component that is omitted. `what` is its kind, such as `MCP server`.
    pub fn report_unusable(&mut self, what: &str, name: &str, why: &str) {
        if self.has_room() {
            let why = format!("the {what} {} {why}; omitted", quote_redacted(name));
            self.report_at(&[], DiagnosticCode::ComponentInvalid, Severity::Error, why);
        }
    }

    /// Reads the mapping at the last key of `path`. `expected` is the word of the format for a
    /// mapping.
    pub fn read_mapping<'v>(
        &mut self,
        parent: FieldMapping<'v>,
        path: &'v [&'v str],
        expected: &str,
    ) -> Option<FieldMapping<'v>> {
        let key = path.last().copied().unwrap_or_default();
        let value = parent.non_null_value(key)?;
        if value.as_map().is_none() {
            self.report_wrong_type(parent, key, value, expected);
            return None;
        }
        Some(FieldMapping {
            value,
            path,
            ..parent
        })
    }

    fn read_raw_text<'v>(&mut self, at: FieldMapping<'v>, key: &str) -> Option<&'v str> {
        let value = at.non_null_value(key)?;
        if value.as_text().is_none() {
            self.report_wrong_type(at, key, value, "text");
        }
        value.as_text()
    }

    /// Reads a text as a single line, with secrets redacted, truncated to `max` characters.
    pub fn read_line(&mut self, at: FieldMapping<'_>, key: &str, max: usize) -> Option<Box<str>> {
        let found = self.read_raw_text(at, key)?;
        let shown = secret_filter::redact_in_text(found);
        self.check_shown(at, key, found, &shown);
        let line = text::collapse_whitespace(&shown);
        if text::exceeds_chars(&line, max) {
            self.report_too_long(at, key, format_args!("{max} characters"), "truncated");
        }
        (!line.is_empty()).then(|| text::truncate_chars(&line, max).into())
    }

    /// Reads a text that must not be truncated, such as a path, and trims it. Omits an empty text,
    /// and a text over `max` characters. Secrets are not redacted.
    pub fn read_verbatim<'v>(
        &mut self,
        at: FieldMapping<'v>,
        key: &str,
        max: usize,
    ) -> Option<&'v str> {
        let found = self.read_raw_text(at, key)?.trim();
        if text::exceeds_chars(found, max) {
            self.report_too_long(at, key, format_args!("{max} characters"), "omitted");
            return None;
        }
        (!found.is_empty()).then_some(found)
    }

    /// Reads a text like [`Self::read_verbatim`].
    pub fn read_text(&mut self, at: FieldMapping<'_>, key: &str, max: usize) -> Option<Box<str>> {
        self.read_verbatim(at, key, max).map(Into::into)
    }

    /// Reads a color `#RRGGBB`.
    pub fn read_color(&mut self, at: FieldMapping<'_>, key: &str) -> Option<Box<str>> {
        let color = self.read_verbatim(at, key, MAX_WORD_CHARS)?;
        let digits = color.strip_prefix('#').unwrap_or_default();
        if digits.len() == 6 && digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Some(color.into());
        }
        let shown = quote_redacted(color);
        self.report_invalid(
            at,
            key,
            format_args!("must be `#RRGGBB`, but is {shown}; omitted"),
        );
        None
    }

    pub fn read_bool(&mut self, at: FieldMapping<'_>, key: &str) -> Option<bool> {
        let value = at.non_null_value(key)?;
        if let DynamicValue::Bool(flag) = value {
            return Some(*flag);
        }
        self.report_wrong_type(at, key, value, "true or false");
        None
    }

    /// Reads a flag in any of the spellings of [`DynamicValue::to_flag`].
    pub fn read_flag(&mut self, at: FieldMapping<'_>, key: &str) -> Option<bool> {
        let value = at.non_null_value(key)?;
        let flag = value.to_flag();
        if flag.is_none() {
            self.report_wrong_type(at, key, value, "true or false");
        }
        flag
    }

    /// Reads a duration and returns milliseconds. `unit` is the number of milliseconds in the
    /// author's unit.
    pub fn read_duration_ms(&mut self, at: FieldMapping<'_>, key: &str, unit: f64) -> Option<u64> {
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
        self.report_invalid(at, key, "is not a valid duration; omitted");
        None
    }

    /// Reads the items of a list.
    pub fn read_list<'v>(&mut self, at: FieldMapping<'v>, key: &str) -> Option<&'v [DynamicValue]> {
        let value = at.non_null_value(key)?;
        match value.as_list() {
            None => self.report_wrong_type(at, key, value, "a list"),
            Some(items) if items.len() > MAX_ITEMS => {
                self.report_too_long(at, key, format_args!("{MAX_ITEMS} items"), "omitted");
            }
            Some(items) => return Some(items),
        }
        None
    }

    /// Reads a list of texts. Omits the whole list if an item is invalid.
    pub fn read_texts(
        &mut self,
        at: FieldMapping<'_>,
        key: &str,
        max: usize,
    ) -> Option<Box<[Box<str>]>> {
        let items = self.read_list(at, key)?;
        let texts: Option<Vec<&str>> = items.iter().map(DynamicValue::as_text).collect();

        let Some(texts) = texts else {
            self.report_invalid(at, key, "must be a list of texts; omitted");
            return None;
        };

        if texts.iter().any(|text| text::exceeds_chars(text, max)) {
            let limit = format_args!("{max} characters in an item");
            self.report_too_long(at, key, limit, "omitted");
            return None;
        }

        Some(texts.into_iter().map(Into::into).collect())
    }

    /// Reads a list of texts, or a single text, with secrets redacted. Omits invalid items.
    pub fn read_lines(&mut self, at: FieldMapping<'_>, key: &str, max: usize) -> Box<[Box<str>]> {
        let lines = self.read_verbatim_list(at, key, max).into_iter();
        let shown = lines.map(|line| {
            let shown = secret_filter::redact_in_text(line);
            self.check_shown(at, key, line, &shown);
            shown.into()
        });
        shown.collect()
    }

    /// Reads a list of texts, or a single text. Omits invalid items. Secrets are not redacted.
    pub fn read_verbatim_list<'v>(
        &mut self,
        at: FieldMapping<'v>,
        key: &str,
        max: usize,
    ) -> Vec<&'v str> {
        let Some(value) = at.non_null_value(key) else {
            return Vec::new();
        };

        let items = match value {
            DynamicValue::List(items) => &**items,
            DynamicValue::Text(_) => std::slice::from_ref(value),
            other => {
                self.report_wrong_type(at, key, other, "a list of texts");
                return Vec::new();
            }
        };

        let texts: Vec<_> = items
            .iter()
            .filter_map(DynamicValue::as_text)
            .filter(|text| !text::exceeds_chars(text, max))
            .take(MAX_ITEMS)
            .collect();

        if texts.len() < items.len() {
            let omitted = items.len() - texts.len();
            let fault =
                format_args!("may hold {MAX_ITEMS} texts of {max} characters; {omitted} omitted");
            self.report_invalid(at, key, fault);
        }

        texts
    }

    /// Reads the entries of a mapping. Returns no entries if the key is absent.
    pub fn read_entries<'v>(
        &mut self,
        at: FieldMapping<'v>,
        key: &str,
    ) -> &'v [(Box<str>, DynamicValue)] {
        let Some(value) = at.non_null_value(key) else {
            return &[];
        };
        let Some(entries) = value.as_map() else {
            self.report_wrong_type(at, key, value, "an object");
            return &[];
        };

        if entries.len() > MAX_ITEMS {
            let label = at.key_label(key);
            let why = format!("{label} has over {MAX_ITEMS} entries; the rest is omitted");
            self.report_field(at, key, DiagnosticCode::FieldTooLong, why);
        }

        &entries[..entries.len().min(MAX_ITEMS)]
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
        let shown = secret_filter::redact_in_text(name);
        if shown != name {
            self.report_redacted(&format!("the {what}"), &["name"]);
        }
        let name = text::collapse_whitespace(&shown);
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
    pub fn read_url(&mut self, at: FieldMapping<'_>, key: &str) -> Option<Box<str>> {
        let url = self.read_verbatim(at, key, MAX_TEXT_CHARS)?;
        let shown = secret_filter::redact_in_line(url);
        self.check_shown(at, key, url, &shown);
        Some(shown.into())
    }
}

/// Quotes a text of an author without its secrets.
fn quote_redacted(text: &str) -> String {
    text::quote_word(&secret_filter::redact_in_text(text))
}
