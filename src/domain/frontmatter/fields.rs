//! The fields of a skill's frontmatter, one by one: what each may hold, what it costs where it does
//! not. Leaves finding and parsing the frontmatter to its parent.

use crate::domain::limits::MAX_WIRE_NESTING;
use crate::domain::{Code, Problem, Severity, Value, names, position, text};
use crate::hidden::escape_hidden;
use std::borrow::Cow;

/// The fields that the Agent Skills format defines.
pub const KNOWN: [&str; 6] =
    ["name", "description", "license", "compatibility", "metadata", "allowed-tools"];
/// Characters of a description, and of a short description, on the wire.
const MAX_DESCRIPTION: usize = 1_024;
/// Characters of `compatibility` that the format allows.
const MAX_COMPATIBILITY: usize = 500;
/// Bytes on the wire of the author's fields as a whole.
const MAX_FRONTMATTER_WEIGHT: usize = 256 << 10;
/// Bytes on the wire of `metadata`, and of `allowed-tools`.
const MAX_FIELD_WEIGHT: usize = 64 << 10;

/// A skill as its author describes it. Untrusted.
#[derive(Debug, Clone, PartialEq)]
pub struct Authored {
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
    pub frontmatter: Option<Value>,
}

/// What reads one field after another.
struct Fields<'a> {
    value: &'a Value,
    yaml: &'a str,
    problems: &'a mut Vec<Problem>,
}

/// Reads a mapping that was written as `yaml`, which begins on line 2 of its file. `None` where the
/// name or the description cannot be had.
pub(super) fn read(
    value: Value,
    yaml: &str,
    dir_name: Option<&[u8]>,
    problems: &mut Vec<Problem>,
) -> Option<Authored> {
    let mut fields = Fields { value: &value, yaml, problems };
    let name = fields.name(dir_name);
    let description = fields.description();
    let (metadata, short_description) = fields.metadata();
    let mut skill = Authored {
        name: name?,
        description: description?,
        short_description,
        license: fields.plain("license"),
        compatibility: fields.compatibility(),
        metadata,
        allowed_tools: fields.allowed_tools(),
        frontmatter: None,
    };
    fields.unknown();
    fields.hidden();
    let over = if value.weight() > MAX_FRONTMATTER_WEIGHT {
        format!("over {MAX_FRONTMATTER_WEIGHT} bytes")
    } else if value.depth() > MAX_WIRE_NESTING {
        format!("nested over {MAX_WIRE_NESTING} levels deep")
    } else {
        skill.frontmatter = Some(value);
        return Some(skill);
    };
    let why = format!("the fields are {over}; left out as a whole");
    problems.push(Problem::warning(Code::FieldTooLong, why).at(1, 1));
    Some(skill)
}

impl<'a> Fields<'a> {
    /// The field, unless it is absent or null.
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.value.get(key).filter(|value| **value != Value::Null)
    }

    /// Reports a problem at the line of `key`.
    fn report(&mut self, key: &str, severity: Severity, code: Code, why: impl Into<String>) {
        self.report_at(&[key], severity, code, why);
    }

    /// Reports a problem at the line of a key inside other keys.
    fn report_at(&mut self, path: &[&str], severity: Severity, code: Code, why: impl Into<String>) {
        let (line, column) = position::of_key(self.yaml, path);
        // The opening fence is a line, too.
        let line = if line == 0 { 0 } else { line + 1 };
        self.problems.push(Problem::new(code, severity, why).at(line, column));
    }

    fn warn(&mut self, key: &str, code: Code, why: impl Into<String>) {
        self.report(key, Severity::Warning, code, why);
    }

    /// The field's text, or a scalar of another type printed.
    fn scalar(&mut self, key: &str) -> Option<Box<str>> {
        let value = self.get(key)?;
        if value.is_scalar() && value.as_text().is_none() {
            let why = format!("`{key}` is {}, read as text; quote it", value.kind());
            self.warn(key, Code::FieldInvalid, why);
        }
        value.is_scalar().then(|| value.printed())
    }

    /// The field as text, without the white space around it; another type costs the field.
    fn plain(&mut self, key: &str) -> Option<Box<str>> {
        match self.get(key) {
            Some(value) if !value.is_scalar() => {
                let why = format!("`{key}` is {}, and must be text; left out", value.kind());
                self.warn(key, Code::FieldInvalid, why);
                None
            }
            _ => self.scalar(key).filter(|t| !t.trim().is_empty()).map(|t| t.trim().into()),
        }
    }

    fn name(&mut self, dir_name: Option<&[u8]>) -> Option<Box<str>> {
        let own = match self.get("name") {
            Some(value) if !value.is_scalar() => {
                let why =
                    format!("`name` is {}; the directory's name is used instead", value.kind());
                self.warn("name", Code::FieldInvalid, why);
                None
            }
            _ => {
                let own = self.scalar("name").map(|name| text::collapsed(&name));
                let own = own.filter(|name| !name.is_empty());
                if own.is_none() {
                    self.warn("name", Code::NameInvalid, "no `name`; the directory's name is used");
                }
                own
            }
        };
        let dir = dir_name.map(names::of_directory);
        let name = match (&own, &dir) {
            (Some(own), _) => own.clone(),
            (None, Some((dir, problem))) => {
                self.problems.extend(problem.clone());
                dir.clone()
            }
            (None, None) => Box::default(),
        };
        if let Err(why) = names::check(&name) {
            self.report("name", Severity::Error, Code::NameInvalid, why);
            return None;
        }
        for breach in names::breaches(&name) {
            self.warn("name", Code::NameInvalid, breach);
        }
        if let (Some(own), Some(dir)) = (own, dir_name)
            && own.as_bytes() != dir
        {
            let dir = text::shown(&String::from_utf8_lossy(dir));
            let why = format!("the name {} is not the directory's, {dir}", text::shown(&own));
            self.warn("name", Code::NameInvalid, why);
        }
        Some(name)
    }

    fn description(&mut self) -> Option<Box<str>> {
        let key = "description";
        if let Some(value) = self.get(key).filter(|value| !value.is_scalar()) {
            let why = format!("`description` is {}, and must be text", value.kind());
            self.report(key, Severity::Error, Code::FieldInvalid, why);
            return None;
        }
        let text = self.scalar(key).map(|text| text::collapsed(&text)).unwrap_or_default();
        if text.is_empty() {
            let why = "no `description`; say what the skill does and when to use it";
            self.report(key, Severity::Error, Code::MissingDescription, why);
            if let Some(problem) = self.problems.last_mut().filter(|problem| problem.line == 0) {
                (problem.line, problem.column) = (1, 1);
            }
            return None;
        }
        if text::is_over(&text, MAX_DESCRIPTION) {
            let why = format!("`description` is over {MAX_DESCRIPTION} characters; cut there");
            self.warn(key, Code::FieldTooLong, why);
        }
        Some(text::cut(&text, MAX_DESCRIPTION).into())
    }

    fn compatibility(&mut self) -> Option<Box<str>> {
        let text = self.plain("compatibility")?;
        if text::is_over(&text, MAX_COMPATIBILITY) {
            let why = format!("`compatibility` is over {MAX_COMPATIBILITY} characters; kept whole");
            self.warn("compatibility", Code::FieldTooLong, why);
        }
        Some(text)
    }

    /// The entries, and the short description among them.
    #[allow(clippy::type_complexity)] // a name for the pair would say less than its two parts
    fn metadata(&mut self) -> (Box<[(Box<str>, Box<str>)]>, Option<Box<str>>) {
        let key = "metadata";
        let Some(value) = self.get(key) else { return Default::default() };
        let Some(entries) = value.as_map() else {
            let why = format!("`metadata` is {}, and must be a mapping; left out", value.kind());
            self.warn(key, Code::FieldInvalid, why);
            return Default::default();
        };
        let no_text: Vec<_> = entries.iter().filter(|(_, v)| v.as_text().is_none()).collect();
        if !no_text.is_empty() {
            let keys = text::listed(no_text.iter().map(|(key, _)| &**key));
            let why = format!("values of `metadata` that are no text are printed: {keys}");
            self.report(key, Severity::Note, Code::FieldInvalid, why);
        }
        let short = value.get("short-description").filter(|v| v.is_scalar() && **v != Value::Null);
        let short = short.map(|v| text::collapsed(&v.printed())).filter(|text| !text.is_empty());
        let short = short.map(|text| self.short_description(&text));
        if value.weight() > MAX_FIELD_WEIGHT {
            let why = format!("`metadata` is over {MAX_FIELD_WEIGHT} bytes; left out");
            self.warn(key, Code::FieldTooLong, why);
            return (Box::default(), short);
        }
        let printed = |value: &Value| match value {
            Value::Null => Box::default(),
            other => other.printed(),
        };
        (entries.iter().map(|(key, value)| (key.clone(), printed(value))).collect(), short)
    }

    /// Reports fields in which escapes of YAML, such as `"\u202e"`, stand for hidden characters. Hidden
    /// characters that stand in the file itself are reported with those of its body.
    fn hidden(&mut self) {
        let is_plain = |text: &str| matches!(escape_hidden(text), Cow::Borrowed(_));
        if !self.yaml.contains('\\') || !is_plain(self.yaml) {
            return;
        }
        for (key, value) in self.value.as_map().unwrap_or_default() {
            if !is_plain(key) || !is_plain(&value.printed()) {
                let why = format!(
                    "characters in {} are hidden from readers, and not from models; remove them",
                    text::shown(key)
                );
                self.warn(key, Code::HiddenText, why);
            }
        }
    }

    /// The short description, within the bound of descriptions.
    fn short_description(&mut self, text: &str) -> Box<str> {
        if text::is_over(text, MAX_DESCRIPTION) {
            let path = ["metadata", "short-description"];
            let why =
                format!("`short-description` is over {MAX_DESCRIPTION} characters; cut there");
            self.report_at(&path, Severity::Warning, Code::FieldTooLong, why);
        }
        text::cut(text, MAX_DESCRIPTION).into()
    }

    fn allowed_tools(&mut self) -> Box<[Box<str>]> {
        let key = "allowed-tools";
        let Some(value) = self.get(key) else { return Box::default() };
        if value.weight() > MAX_FIELD_WEIGHT {
            let why = format!("`allowed-tools` is over {MAX_FIELD_WEIGHT} bytes; left out");
            self.warn(key, Code::FieldTooLong, why);
            return Box::default();
        }
        if let Some(text) = value.as_text() {
            return tools(text).collect();
        }
        let items: Option<Vec<&str>> =
            value.as_list().and_then(|items| items.iter().map(Value::as_text).collect());
        if let Some(items) = items {
            let why = "`allowed-tools` is a list; the format asks for a string of tools";
            self.report(key, Severity::Note, Code::FieldInvalid, why);
            return items.into_iter().flat_map(tools).collect();
        }
        let what = if value.as_list().is_some() { "a list of no text" } else { value.kind() };
        let why = format!("`allowed-tools` is {what}, and must be a string of tools; left out");
        self.warn(key, Code::FieldInvalid, why);
        Box::default()
    }

    fn unknown(&mut self) {
        let entries = self.value.as_map().unwrap_or_default();
        let unknown: Vec<&str> =
            entries.iter().map(|(key, _)| &**key).filter(|key| !KNOWN.contains(key)).collect();
        if let Some(first) = unknown.first().copied() {
            let keys = text::listed(unknown.into_iter());
            let why = format!("the format does not define {keys}; `metadata` is the place");
            self.report(first, Severity::Note, Code::FieldUnknown, why);
        }
    }
}

/// The tools of a text: split at white space and commas that are not in parentheses.
pub(in crate::domain) fn tools(text: &str) -> impl Iterator<Item = Box<str>> {
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
