//! The fields of a skill's frontmatter, one by one: what each may hold, what it costs where it does
//! not. Leaves finding and parsing the frontmatter to its parent.

use crate::domain::limits::MAX_WIRE_NESTING;
use crate::domain::{DiagnosticCode, DynamicValue, FileProblem, Severity, names, position, text};
use crate::hidden_chars::escape_hidden_chars;
use std::borrow::Cow;

/// The fields that the Agent Skills format defines.
pub const STANDARD_FIELDS: [&str; 6] =
    ["name", "description", "license", "compatibility", "metadata", "allowed-tools"];
/// Characters of a description, and of a short description, on the wire.
const MAX_DESCRIPTION: usize = 1_024;
/// Characters of `compatibility` that the format allows.
const MAX_COMPATIBILITY: usize = 500;
/// Bytes on the wire of the author's fields as a whole.
const MAX_FRONTMATTER_WIRE_BYTES: usize = 256 << 10;
/// Bytes on the wire of `metadata`, and of `allowed-tools`.
const MAX_FIELD_WIRE_BYTES: usize = 64 << 10;

/// A skill as its author describes it. Untrusted.
#[derive(Debug, Clone, PartialEq)]
pub struct SkillMdFrontmatter {
    /// 1 to 64 characters, white space collapsed, no control characters; not yet qualified.
    pub name: Box<str>,
    /// 1 to 1,024 characters, white space collapsed.
    pub description: Box<str>,
    /// `metadata.short-description`, 1 to 1,024 characters, white space collapsed.
    pub short_description: Option<Box<str>>,
    /// Never empty.
    pub license: Option<Box<str>>,
    /// Never empty.
    pub compatibility: Option<Box<str>>,
    /// In the author's order, values printed; at most 64 KiB.
    pub metadata: Box<[(Box<str>, Box<str>)]>,
    /// One tool each; at most 64 KiB.
    pub allowed_tools: Box<[Box<str>]>,
    /// Every field, a mapping; `None` where it would be over 256 KiB or 30 levels deep on the wire.
    pub all_fields: Option<DynamicValue>,
}

/// What reads one field after another.
struct FrontmatterReader<'a> {
    value: &'a DynamicValue,
    yaml: &'a str,
    problems: &'a mut Vec<FileProblem>,
}

/// Reads a mapping that was written as `yaml`, which begins on line 2 of its file. `None` where the
/// name or the description cannot be had.
pub(super) fn read(
    value: DynamicValue,
    yaml: &str,
    dir_name: Option<&[u8]>,
    problems: &mut Vec<FileProblem>,
) -> Option<SkillMdFrontmatter> {
    let mut fields = FrontmatterReader { value: &value, yaml, problems };
    let name = fields.read_name(dir_name);
    let description = fields.read_description();
    let (metadata, short_description) = fields.read_metadata();
    let mut skill = SkillMdFrontmatter {
        name: name?,
        description: description?,
        short_description,
        license: fields.read_trimmed_text("license"),
        compatibility: fields.read_compatibility(),
        metadata,
        allowed_tools: fields.read_allowed_tools(),
        all_fields: None,
    };
    fields.report_unknown_fields();
    fields.report_hidden_text();
    let over = if value.wire_size() > MAX_FRONTMATTER_WIRE_BYTES {
        format!("over {MAX_FRONTMATTER_WIRE_BYTES} bytes")
    } else if value.depth() > MAX_WIRE_NESTING {
        format!("nested over {MAX_WIRE_NESTING} levels deep")
    } else {
        skill.all_fields = Some(value);
        return Some(skill);
    };
    let why = format!("the fields are {over}; left out as a whole");
    problems.push(FileProblem::warning(DiagnosticCode::FieldTooLong, why).with_position(1, 1));
    Some(skill)
}

impl<'a> FrontmatterReader<'a> {
    /// The field, unless it is absent or null.
    fn non_null_field(&self, key: &str) -> Option<&'a DynamicValue> {
        self.value.get(key).filter(|value| **value != DynamicValue::Null)
    }

    /// Reports a problem at the line of `key`.
    fn report_problem(
        &mut self,
        key: &str,
        severity: Severity,
        code: DiagnosticCode,
        why: impl Into<String>,
    ) {
        self.report_problem_at(&[key], severity, code, why);
    }

    /// Reports a problem at the line of a key inside other keys.
    fn report_problem_at(
        &mut self,
        path: &[&str],
        severity: Severity,
        code: DiagnosticCode,
        why: impl Into<String>,
    ) {
        let (line, column) = position::position_of_key(self.yaml, path);
        // The opening fence is a line, too.
        let line = if line == 0 { 0 } else { line + 1 };
        self.problems.push(FileProblem::new(code, severity, why).with_position(line, column));
    }

    fn report_warning(&mut self, key: &str, code: DiagnosticCode, why: impl Into<String>) {
        self.report_problem(key, Severity::Warning, code, why);
    }

    /// The field's text, or a scalar of another type printed.
    fn read_scalar(&mut self, key: &str) -> Option<Box<str>> {
        let value = self.non_null_field(key)?;
        if value.is_scalar() && value.as_text().is_none() {
            let why = format!("`{key}` is {}, read as text; quote it", value.kind());
            self.report_warning(key, DiagnosticCode::FieldInvalid, why);
        }
        value.is_scalar().then(|| value.to_text())
    }

    /// The field as text, without the white space around it; another type costs the field.
    fn read_trimmed_text(&mut self, key: &str) -> Option<Box<str>> {
        match self.non_null_field(key) {
            Some(value) if !value.is_scalar() => {
                let why = format!("`{key}` is {}, and must be text; left out", value.kind());
                self.report_warning(key, DiagnosticCode::FieldInvalid, why);
                None
            }
            _ => self.read_scalar(key).filter(|t| !t.trim().is_empty()).map(|t| t.trim().into()),
        }
    }

    fn read_name(&mut self, dir_name: Option<&[u8]>) -> Option<Box<str>> {
        let own = match self.non_null_field("name") {
            Some(value) if !value.is_scalar() => {
                let why =
                    format!("`name` is {}; the directory's name is used instead", value.kind());
                self.report_warning("name", DiagnosticCode::FieldInvalid, why);
                None
            }
            _ => {
                let own = self.read_scalar("name").map(|name| text::collapse_whitespace(&name));
                let own = own.filter(|name| !name.is_empty());
                if own.is_none() {
                    self.report_warning(
                        "name",
                        DiagnosticCode::NameInvalid,
                        "no `name`; the directory's name is used",
                    );
                }
                own
            }
        };
        let dir = dir_name.map(names::name_from_directory);
        let name = match (&own, &dir) {
            (Some(own), _) => own.clone(),
            (None, Some((dir, problem))) => {
                self.problems.extend(problem.clone());
                dir.clone()
            }
            (None, None) => Box::default(),
        };
        if let Err(why) = names::check_name(&name) {
            self.report_problem("name", Severity::Error, DiagnosticCode::NameInvalid, why);
            return None;
        }
        for breach in names::format_violations(&name) {
            self.report_warning("name", DiagnosticCode::NameInvalid, breach);
        }
        if let (Some(own), Some(dir)) = (own, dir_name)
            && own.as_bytes() != dir
        {
            let dir = text::quote_word(&String::from_utf8_lossy(dir));
            let why = format!("the name {} is not the directory's, {dir}", text::quote_word(&own));
            self.report_warning("name", DiagnosticCode::NameInvalid, why);
        }
        Some(name)
    }

    fn read_description(&mut self) -> Option<Box<str>> {
        let key = "description";
        if let Some(value) = self.non_null_field(key).filter(|value| !value.is_scalar()) {
            let why = format!("`description` is {}, and must be text", value.kind());
            self.report_problem(key, Severity::Error, DiagnosticCode::FieldInvalid, why);
            return None;
        }
        let text =
            self.read_scalar(key).map(|text| text::collapse_whitespace(&text)).unwrap_or_default();
        if text.is_empty() {
            let why = "no `description`; say what the skill does and when to use it";
            self.report_problem(key, Severity::Error, DiagnosticCode::MissingDescription, why);
            if let Some(problem) = self.problems.last_mut().filter(|problem| problem.line == 0) {
                (problem.line, problem.column) = (1, 1);
            }
            return None;
        }
        if text::exceeds_chars(&text, MAX_DESCRIPTION) {
            let why = format!("`description` is over {MAX_DESCRIPTION} characters; cut there");
            self.report_warning(key, DiagnosticCode::FieldTooLong, why);
        }
        Some(text::truncate_chars(&text, MAX_DESCRIPTION).into())
    }

    fn read_compatibility(&mut self) -> Option<Box<str>> {
        let text = self.read_trimmed_text("compatibility")?;
        if text::exceeds_chars(&text, MAX_COMPATIBILITY) {
            let why = format!("`compatibility` is over {MAX_COMPATIBILITY} characters; kept whole");
            self.report_warning("compatibility", DiagnosticCode::FieldTooLong, why);
        }
        Some(text)
    }

    /// The entries, and the short description among them.
    #[allow(clippy::type_complexity)] // a name for the pair would say less than its two parts
    fn read_metadata(&mut self) -> (Box<[(Box<str>, Box<str>)]>, Option<Box<str>>) {
        let key = "metadata";
        let Some(value) = self.non_null_field(key) else { return Default::default() };
        let Some(entries) = value.as_map() else {
            let why = format!("`metadata` is {}, and must be a mapping; left out", value.kind());
            self.report_warning(key, DiagnosticCode::FieldInvalid, why);
            return Default::default();
        };
        let no_text: Vec<_> = entries.iter().filter(|(_, v)| v.as_text().is_none()).collect();
        if !no_text.is_empty() {
            let keys = text::quote_words(no_text.iter().map(|(key, _)| &**key));
            let why = format!("values of `metadata` that are no text are printed: {keys}");
            self.report_problem(key, Severity::Note, DiagnosticCode::FieldInvalid, why);
        }
        let short =
            value.get("short-description").filter(|v| v.is_scalar() && **v != DynamicValue::Null);
        let short =
            short.map(|v| text::collapse_whitespace(&v.to_text())).filter(|text| !text.is_empty());
        let short = short.map(|text| self.truncate_short_description(&text));
        if value.wire_size() > MAX_FIELD_WIRE_BYTES {
            let why = format!("`metadata` is over {MAX_FIELD_WIRE_BYTES} bytes; left out");
            self.report_warning(key, DiagnosticCode::FieldTooLong, why);
            return (Box::default(), short);
        }
        let printed = |value: &DynamicValue| match value {
            DynamicValue::Null => Box::default(),
            other => other.to_text(),
        };
        (entries.iter().map(|(key, value)| (key.clone(), printed(value))).collect(), short)
    }

    /// Reports fields in which escapes of YAML, such as `"\u202e"`, stand for hidden characters. Hidden
    /// characters that stand in the file itself are reported with those of its body.
    fn report_hidden_text(&mut self) {
        let is_plain = |text: &str| matches!(escape_hidden_chars(text), Cow::Borrowed(_));
        if !self.yaml.contains('\\') || !is_plain(self.yaml) {
            return;
        }
        for (key, value) in self.value.as_map().unwrap_or_default() {
            if !is_plain(key) || !is_plain(&value.to_text()) {
                let why = format!(
                    "characters in {} are hidden from readers, and not from models; remove them",
                    text::quote_word(key)
                );
                self.report_warning(key, DiagnosticCode::HiddenText, why);
            }
        }
    }

    /// The short description, within the bound of descriptions.
    fn truncate_short_description(&mut self, text: &str) -> Box<str> {
        if text::exceeds_chars(text, MAX_DESCRIPTION) {
            let path = ["metadata", "short-description"];
            let why =
                format!("`short-description` is over {MAX_DESCRIPTION} characters; cut there");
            self.report_problem_at(&path, Severity::Warning, DiagnosticCode::FieldTooLong, why);
        }
        text::truncate_chars(text, MAX_DESCRIPTION).into()
    }

    fn read_allowed_tools(&mut self) -> Box<[Box<str>]> {
        let key = "allowed-tools";
        let Some(value) = self.non_null_field(key) else { return Box::default() };
        if value.wire_size() > MAX_FIELD_WIRE_BYTES {
            let why = format!("`allowed-tools` is over {MAX_FIELD_WIRE_BYTES} bytes; left out");
            self.report_warning(key, DiagnosticCode::FieldTooLong, why);
            return Box::default();
        }
        if let Some(text) = value.as_text() {
            return split_tools(text).collect();
        }
        let items: Option<Vec<&str>> =
            value.as_list().and_then(|items| items.iter().map(DynamicValue::as_text).collect());
        if let Some(items) = items {
            let why = "`allowed-tools` is a list; the format asks for a string of tools";
            self.report_problem(key, Severity::Note, DiagnosticCode::FieldInvalid, why);
            return items.into_iter().flat_map(split_tools).collect();
        }
        let what = if value.as_list().is_some() { "a list of no text" } else { value.kind() };
        let why = format!("`allowed-tools` is {what}, and must be a string of tools; left out");
        self.report_warning(key, DiagnosticCode::FieldInvalid, why);
        Box::default()
    }

    fn report_unknown_fields(&mut self) {
        let entries = self.value.as_map().unwrap_or_default();
        let unknown: Vec<&str> = entries
            .iter()
            .map(|(key, _)| &**key)
            .filter(|key| !STANDARD_FIELDS.contains(key))
            .collect();
        if let Some(first) = unknown.first().copied() {
            let keys = text::quote_words(unknown.into_iter());
            let why = format!("the format does not define {keys}; `metadata` is the place");
            self.report_problem(first, Severity::Note, DiagnosticCode::FieldUnknown, why);
        }
    }
}

/// The tools of a text: split at white space and commas that are not in parentheses.
pub(in crate::domain) fn split_tools(text: &str) -> impl Iterator<Item = Box<str>> {
    let mut open = 0_usize;
    text.split(move |c: char| {
        match c {
            '(' => open += 1,
            ')' => open = open.saturating_sub(1),
            _ => {}
        }
        open == 0 && (c == ',' || c.is_whitespace())
    })
    .filter(|tool| !tool.is_empty())
    .map(Into::into)
}
