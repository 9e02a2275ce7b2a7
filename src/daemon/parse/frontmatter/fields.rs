//! Reader for the fields of a SKILL.md's frontmatter.

use crate::daemon::model::limits::MAX_WIRE_NESTING;
use crate::daemon::model::{
    DiagnosticCode, DynamicValue, FileProblem, Severity, SkillMdFrontmatter,
};
use crate::daemon::parse::fields::{FieldMapping, FieldReader};
use crate::daemon::parse::names;
use caproot_core::text;
use caproot_core::text::escape_hidden_chars;
use std::borrow::Cow;
use std::fmt::Display;

/// Fields of the Agent Skills format, and then those that Claude Code documents. Sources: agentskills.io,
/// "Frontmatter reference" of Claude Code (code.claude.com/docs) and its changelog 2.1.186; 2026-11-27.
pub const KNOWN_FIELDS: [&str; 25] = [
    "name",
    "description",
    "license",
    "compatibility",
    "metadata",
    "allowed-tools",
    DISABLE_MODEL_INVOCATION,
    USER_INVOCABLE,
    "agent",
    "argument-hint",
    "arguments",
    "background",
    "context",
    "default-enabled",
    "default_enabled",
    "defaultEnabled",
    "disallowed-tools",
    "display-name",
    "effort",
    "fallback",
    "hooks",
    "model",
    "paths",
    "shell",
    "when_to_use",
];
/// Fields of the Agent Skills format.
pub const STANDARD_FIELDS: &[&str] = KNOWN_FIELDS.split_at(6).0;
const DISABLE_MODEL_INVOCATION: &str = "disable-model-invocation";
const USER_INVOCABLE: &str = "user-invocable";
/// Spellings of Claude Code since 2.1.186.
const DEFAULT_ENABLED: [&str; 3] = ["default-enabled", "default_enabled", "defaultEnabled"];
/// Maximum length of a description or short description on the wire.
const MAX_DESCRIPTION: usize = 1_024;
/// Maximum length of `compatibility` in the format. Longer texts are reported and kept.
const MAX_COMPATIBILITY: usize = 500;
/// Maximum size of all fields together on the wire.
const MAX_FRONTMATTER_WIRE_BYTES: usize = 256 << 10;
/// Maximum size of `metadata` and of `allowed-tools` on the wire.
const MAX_FIELD_WIRE_BYTES: usize = 64 << 10;

/// Reads fields and records the problems of one file.
struct FrontmatterReader<'a> {
    root: FieldMapping<'a>,
    yaml: &'a str,
    fields: FieldReader<'a>,
}

/// Whether a field decides if the skill is listed or who may use the skill. A skill with such a field in
/// invalid YAML is omitted.
pub fn decides(key: &str) -> bool {
    const OTHERS: [&str; 4] = [
        "name",
        "description",
        DISABLE_MODEL_INVOCATION,
        USER_INVOCABLE,
    ];
    OTHERS.contains(&key) || DEFAULT_ENABLED.contains(&key)
}

/// Reads the fields of `value`, parsed from `yaml`, which begins on line 2 of the file. Returns
/// `None` if the name or the description is invalid.
pub fn read(
    value: DynamicValue,
    yaml: &str,
    dir_name: Option<&[u8]>,
    problems: &mut Vec<FileProblem>,
) -> Option<SkillMdFrontmatter> {
    let mut fields = FrontmatterReader {
        root: FieldMapping::root(&value),
        yaml,
        fields: FieldReader::with_positions(problems, yaml, 1),
    };

    // The description is read even without a valid name, so that one scan reports both problems.
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
        forbids_model: fields.is_restricted_by(DISABLE_MODEL_INVOCATION, true),
        forbids_user: fields.is_restricted_by(USER_INVOCABLE, false),
        is_switched_off: DEFAULT_ENABLED
            .into_iter()
            .any(|key| fields.is_restricted_by(key, false)),
        all_fields: None,
    };

    fields.report_unknown_fields();
    fields.report_hidden_text();

    let excess = if value.wire_size() > MAX_FRONTMATTER_WIRE_BYTES {
        format!("over {MAX_FRONTMATTER_WIRE_BYTES} bytes")
    } else if value.depth() > MAX_WIRE_NESTING {
        format!("nested over {MAX_WIRE_NESTING} levels deep")
    } else {
        skill.all_fields = Some(value);
        return Some(skill);
    };

    let why = format!("the fields are {excess}; field `frontmatter` omitted");
    problems.push(FileProblem::warning(DiagnosticCode::FieldTooLong, why).with_position(1, 1));
    Some(skill)
}

impl FrontmatterReader<'_> {
    fn report_problem(
        &mut self,
        key: &str,
        severity: Severity,
        code: DiagnosticCode,
        why: impl Into<String>,
    ) {
        self.fields.report_at(&[key], code, severity, why);
    }

    /// Reports a field over `limit`, such as `64 characters`.
    fn report_too_long(&mut self, key: &str, limit: impl Display, effect: &str) {
        self.fields.report_too_long(self.root, key, limit, effect);
    }

    fn report_warning(&mut self, key: &str, code: DiagnosticCode, why: impl Into<String>) {
        self.fields.report_field(self.root, key, code, why);
    }

    /// Reads a scalar as text. Reports a scalar of another type.
    fn read_scalar(&mut self, key: &str) -> Option<Box<str>> {
        let value = self.root.non_null_value(key)?;
        if value.is_scalar() && value.as_text().is_none() {
            let why = format!("`{key}` is {}, read as text; quote it", value.kind());
            self.report_warning(key, DiagnosticCode::FieldInvalid, why);
        }
        value.is_scalar().then(|| value.to_text())
    }

    /// Reads a scalar as text and trims it. Omits a list or mapping, and an empty text.
    fn read_trimmed_text(&mut self, key: &str) -> Option<Box<str>> {
        let value = self.root.non_null_value(key)?;
        if !value.is_scalar() {
            self.fields.report_wrong_type(self.root, key, value, "text");
        }
        let text = self.read_scalar(key)?;
        let text = text.trim();
        (!text.is_empty()).then(|| text.into())
    }

    /// Reads a scalar as a single line; `None` if the line is empty.
    fn read_scalar_line(&mut self, key: &str) -> Option<Box<str>> {
        let line = text::collapse_whitespace(&self.read_scalar(key)?);
        Some(line).filter(|line| !line.is_empty())
    }

    /// Whether a field has the value that restricts the skill. A value that is neither true nor false
    /// is reported, and restricts the skill.
    fn is_restricted_by(&mut self, key: &str, restricting: bool) -> bool {
        let Some(value) = self.root.non_null_value(key) else {
            return false;
        };
        if let Some(flag) = value.to_flag() {
            return flag == restricting;
        }
        let why = format!(
            "`{key}` must be true or false, but is {}; read as {restricting}",
            value.kind()
        );
        self.report_warning(key, DiagnosticCode::FieldInvalid, why);
        true
    }

    fn read_name(&mut self, dir_name: Option<&[u8]>) -> Option<Box<str>> {
        let declared = match self.root.non_null_value("name") {
            Some(value) if !value.is_scalar() => {
                let why = format!(
                    "`name` must be text, but is {}; using the directory name",
                    value.kind()
                );
                self.report_warning("name", DiagnosticCode::FieldInvalid, why);
                None
            }
            _ => {
                let declared = self.read_scalar_line("name");
                if declared.is_none() {
                    self.report_missing_name();
                }
                declared
            }
        };

        let name = declared.clone().unwrap_or_else(|| {
            let (name, problem) = dir_name.map(names::name_from_directory).unwrap_or_default();
            if let Some(problem) = problem {
                self.fields.add_problem(problem);
            }
            name
        });

        if let Err(why) = names::check_name(&name) {
            self.report_problem("name", Severity::Error, DiagnosticCode::NameInvalid, why);
            return None;
        }

        for violation in names::format_violations(&name, names::is_name_char) {
            self.report_warning("name", DiagnosticCode::NameInvalid, violation);
        }

        // An author may write the name of the plugin, too: `tempo:keep` in a directory `keep`.
        if let (Some(declared), Some(dir)) = (declared, dir_name)
            && declared.rsplit(':').next().map(str::as_bytes) != Some(dir)
        {
            let dir = text::quote_word(&String::from_utf8_lossy(dir));
            let why = format!(
                "the name {} differs from the directory name {dir}",
                text::quote_word(&declared)
            );
            self.report_warning("name", DiagnosticCode::NameInvalid, why);
        }

        Some(name)
    }

    fn report_missing_name(&mut self) {
        let Some(written) = key_in_other_case(self.root, "name") else {
            let why = "no `name`; using the directory name";
            return self.report_warning("name", DiagnosticCode::NameInvalid, why);
        };
        // The error of a missing description names both keys.
        if self.root.non_null_value("description").is_some() {
            let why =
                format!("`{written}` must be written in lower case; using the directory name");
            self.report_warning(written, DiagnosticCode::NameInvalid, why);
        }
    }

    /// Reports that there is no description, at the key that the author wrote instead.
    fn report_missing_description(&mut self) {
        let mut key = "description";
        let mut why = "no `description`; say what the skill does and when to use it".to_owned();

        if let Some(written) = key_in_other_case(self.root, key) {
            let name = key_in_other_case(self.root, "name").into_iter();
            let keys: Vec<_> = name
                .chain([written])
                .map(|key| format!("`{key}`"))
                .collect();
            why = format!("{} must be written in lower case", keys.join(" and "));
            key = written;
        }

        let (line, column) = self.fields.position_of(&[key]);
        // The first line of the YAML is line 2 of the file.
        let index = line.checked_sub(2);
        let written = index.and_then(|index| self.yaml.lines().nth(index as usize));
        let value = written.and_then(|line| line.split_once(':'));
        if value.is_some_and(|(_, value)| value.trim_start().starts_with('#')) {
            "no `description`: everything after `#` is a comment; put the text in quotes"
                .clone_into(&mut why);
        }

        let problem = FileProblem::error(DiagnosticCode::MissingDescription, why);
        let (line, column) = if line == 0 { (1, 1) } else { (line, column) };
        self.fields.add_problem(problem.with_position(line, column));
    }

    fn read_description(&mut self) -> Option<Box<str>> {
        let key = "description";
        let value = self.root.non_null_value(key);
        if let Some(value) = value.filter(|value| !value.is_scalar()) {
            let why = format!("`description` must be text, but is {}", value.kind());
            self.report_problem(key, Severity::Error, DiagnosticCode::FieldInvalid, why);
            return None;
        }

        let Some(text) = self.read_scalar_line(key) else {
            self.report_missing_description();
            return None;
        };
        Some(self.truncate_description(self.root, key, &text))
    }

    fn read_compatibility(&mut self) -> Option<Box<str>> {
        let key = "compatibility";
        let text = self.read_trimmed_text(key)?;
        if text::exceeds_chars(&text, MAX_COMPATIBILITY) {
            self.report_too_long(key, format_args!("{MAX_COMPATIBILITY} characters"), "kept");
        }
        Some(text)
    }

    /// Reads the entries of `metadata` and the short description, which is one of the entries.
    #[allow(clippy::type_complexity)] // the pair has one caller and needs no type
    fn read_metadata(&mut self) -> (Box<[(Box<str>, Box<str>)]>, Option<Box<str>>) {
        let key = "metadata";
        let Some(value) = self.root.non_null_value(key) else {
            return Default::default();
        };

        let Some(entries) = value.as_map() else {
            self.fields
                .report_wrong_type(self.root, key, value, "a mapping");
            return Default::default();
        };

        let not_text = entries.iter().filter(|(_, v)| v.as_text().is_none());
        let not_text: Vec<_> = not_text.map(|(key, _)| &**key).collect();
        if !not_text.is_empty() {
            let keys = text::quote_words(not_text.into_iter());
            let why = format!("values of `metadata` must be text; converted: {keys}");
            self.report_problem(key, Severity::Note, DiagnosticCode::FieldInvalid, why);
        }

        // The short description is read first, because it stays if the entries are over the limit.
        let metadata = FieldMapping::new(value, &["metadata"], "");
        let short = metadata
            .non_null_value("short-description")
            .filter(|value| value.is_scalar())
            .map(|value| text::collapse_whitespace(&value.to_text()))
            .filter(|text| !text.is_empty())
            .map(|text| self.truncate_description(metadata, "short-description", &text));

        if value.wire_size() > MAX_FIELD_WIRE_BYTES {
            self.report_too_long(key, format_args!("{MAX_FIELD_WIRE_BYTES} bytes"), "omitted");
            return (Box::default(), short);
        }

        let entries = entries.iter().map(|(key, value)| {
            let text = match value {
                DynamicValue::Null => Box::default(),
                other => other.to_text(),
            };
            (key.clone(), text)
        });
        (entries.collect(), short)
    }

    /// Reports fields with YAML escapes of hidden characters, such as `"\u202e"`. Unescaped hidden
    /// characters are reported by the scan of the whole file.
    fn report_hidden_text(&mut self) {
        if !self.yaml.contains('\\') || has_hidden_chars(self.yaml) {
            return;
        }
        for (key, value) in self.root.entries() {
            if has_hidden_chars(key) || has_hidden_chars(&value.to_text()) {
                let why = format!(
                    "{} has characters that are visible to models but not to readers; remove them",
                    text::quote_word(key)
                );
                self.report_warning(key, DiagnosticCode::HiddenText, why);
            }
        }
    }

    /// Truncates a description or short description to the maximum length.
    fn truncate_description(&mut self, at: FieldMapping<'_>, key: &str, text: &str) -> Box<str> {
        if text::exceeds_chars(text, MAX_DESCRIPTION) {
            let limit = format_args!("{MAX_DESCRIPTION} characters");
            self.fields.report_too_long(at, key, limit, "truncated");
        }
        text::truncate_chars(text, MAX_DESCRIPTION).into()
    }

    fn read_allowed_tools(&mut self) -> Box<[Box<str>]> {
        let key = "allowed-tools";
        let Some(value) = self.root.non_null_value(key) else {
            return Box::default();
        };

        if value.wire_size() > MAX_FIELD_WIRE_BYTES {
            self.report_too_long(key, format_args!("{MAX_FIELD_WIRE_BYTES} bytes"), "omitted");
            return Box::default();
        }

        let kind = match value {
            DynamicValue::Text(text) => return split_tools(text).collect(),
            DynamicValue::List(items) => {
                let texts: Option<Vec<_>> = items.iter().map(DynamicValue::as_text).collect();
                if let Some(texts) = texts {
                    let why = "`allowed-tools` is a list; the format requires text";
                    self.report_problem(key, Severity::Note, DiagnosticCode::FieldInvalid, why);
                    return texts.into_iter().flat_map(split_tools).collect();
                }
                "a list of other values"
            }
            other => other.kind(),
        };
        let why = format!("`allowed-tools` must be text, but is {kind}; omitted");
        self.report_warning(key, DiagnosticCode::FieldInvalid, why);
        Box::default()
    }

    fn report_unknown_fields(&mut self) {
        let unknown = self.root.unknown_keys(&KNOWN_FIELDS);
        if let Some(first) = unknown.first().copied() {
            let keys = text::quote_words(unknown.into_iter());
            let why = format!("the format does not define {keys}; move them into `metadata`");
            self.report_problem(first, Severity::Note, DiagnosticCode::FieldUnknown, why);
        }
    }
}

/// Returns the key that is a field of the format in another letter case.
fn key_in_other_case<'v>(root: FieldMapping<'v>, field: &str) -> Option<&'v str> {
    let mut keys = root.entries().iter().map(|(key, _)| &**key);
    keys.find(|key| key.eq_ignore_ascii_case(field) && *key != field)
}

fn has_hidden_chars(text: &str) -> bool {
    matches!(escape_hidden_chars(text), Cow::Owned(_))
}

/// Splits a text into tools, at white space and commas outside of parentheses.
fn split_tools(text: &str) -> impl Iterator<Item = Box<str>> {
    let mut open_parentheses = 0_usize;
    text.split(move |c: char| {
        match c {
            '(' => open_parentheses += 1,
            ')' => open_parentheses = open_parentheses.saturating_sub(1),
            _ => {}
        }
        open_parentheses == 0 && (c == ',' || c.is_whitespace())
    })
    .filter(|tool| !tool.is_empty())
    .map(Into::into)
}
