//! Parser for the frontmatter of a SKILL.md.

mod fields;

use super::collect_problems;
use super::misread_text::misread_problems;
use super::yaml::{self, YamlError, YamlErrorKind};
use super::yaml_repair;
use crate::daemon::model::limits::MAX_FRONTMATTER_BYTES;
use crate::daemon::model::{DiagnosticCode, DynamicValue, FileProblem, SkillMdFrontmatter};
use caproot_core::text;
use caproot_core::text::fences::{self, FencedText};
use caproot_core::text::position;
use std::borrow::Cow;

pub use fields::{KNOWN_FIELDS, STANDARD_FIELDS};

/// Start of the message of a repair that loses values.
pub(crate) const LEFT_OUT: &str = "repaired by leaving out the values of";

/// YAML that could be parsed, and its value.
struct ParsedYaml<'a> {
    /// The text as written, or as repaired.
    text: Cow<'a, str>,
    value: DynamicValue,
}

/// Result of [`read`].
#[derive(Debug, Clone, PartialEq)]
pub struct ParsedSkillMd {
    /// Frontmatter of the skill; `None` if a problem has the severity `Error`.
    pub frontmatter: Option<SkillMdFrontmatter>,
    /// Problems in the order of detection, with positions in the file.
    pub problems: Vec<FileProblem>,
}

/// Reads the frontmatter of a SKILL.md. `head` is the whole file if `is_whole`, else at least the
/// first `MAX_FRONTMATTER_BYTES` + 4 KiB. Bytes after the closing fence are ignored. `dir_name` is
/// the name of the directory, with links not resolved.
#[must_use]
pub fn read(head: &[u8], is_whole: bool, dir_name: Option<&[u8]>) -> ParsedSkillMd {
    let (frontmatter, problems) = collect_problems(|problems| {
        let yaml = extract_fenced(head, is_whole)?;
        let parsed = parse_mapping(yaml, fields::decides, problems)?;
        problems.extend(misread_problems(&parsed.text));
        Ok(fields::read(parsed.value, yaml, dir_name, problems))
    });
    ParsedSkillMd {
        frontmatter: frontmatter.flatten(),
        problems,
    }
}

/// Reads the frontmatter of any Markdown file. Adds a problem to `problems` if the YAML was
/// repaired. `head` and `is_whole` are as in [`read`].
pub(crate) fn read_mapping(
    head: &[u8],
    is_whole: bool,
    problems: &mut Vec<FileProblem>,
) -> Result<DynamicValue, FileProblem> {
    // Each field of a command or an agent may decide something, such as the tools that it may use.
    let parsed = parse_mapping(extract_fenced(head, is_whole)?, |_| true, problems)?;
    Ok(parsed.value)
}

/// Returns the text between the fences, which begins on line 2 of the file.
fn extract_fenced(head: &[u8], is_whole: bool) -> Result<&str, FileProblem> {
    if fences::is_utf16(head) {
        let why = "the file is in UTF-16; save the file as UTF-8";
        return Err(FileProblem::error(DiagnosticCode::NotUtf8, why).with_position(1, 1));
    }

    let FencedText { text, is_closed } = fences::find_fenced_text(head).ok_or_else(|| {
        let why = "the file must begin with YAML frontmatter between two `---` lines";
        FileProblem::error(DiagnosticCode::NoFrontmatter, why).with_position(1, 1)
    })?;

    if !is_closed && is_whole {
        let why = "the frontmatter is not closed; add a `---` line after it";
        return Err(FileProblem::error(DiagnosticCode::NoFrontmatter, why).with_position(1, 1));
    }

    if !is_closed || text.len() > MAX_FRONTMATTER_BYTES {
        let why = format!("the frontmatter is over {MAX_FRONTMATTER_BYTES} bytes; shorten it");
        return Err(FileProblem::error(DiagnosticCode::YamlSyntax, why).with_position(1, 1));
    }

    std::str::from_utf8(text).map_err(|error| {
        let (line, column) = position::position_of_byte(text, error.valid_up_to());
        let why = "the frontmatter is not UTF-8; save the file as UTF-8";
        FileProblem::error(DiagnosticCode::NotUtf8, why).with_position(line + 1, column)
    })
}

/// Parses the YAML of the frontmatter. Repairs it if necessary and adds a problem to `problems`. If the
/// repair fails, leaves out broken fields whose key does not decide anything.
fn parse_mapping<'a>(
    yaml: &'a str,
    decides: impl Fn(&str) -> bool,
    problems: &mut Vec<FileProblem>,
) -> Result<ParsedYaml<'a>, FileProblem> {
    let parsed = match yaml::parse(yaml) {
        Ok(value) => ParsedYaml {
            text: yaml.into(),
            value,
        },
        Err(error) => parse_repaired(yaml, error, decides, problems).map_err(|error| {
            // Count the line of the opening fence.
            let (line, column) = match error.line {
                0 => (1, 1),
                line => (line + 1, error.column),
            };
            FileProblem::error(DiagnosticCode::YamlSyntax, error.message)
                .with_position(line, column)
        })?,
    };

    match &parsed.value {
        DynamicValue::Map(_) => Ok(parsed),
        DynamicValue::Null => {
            let why = "the frontmatter is empty; add a `description`";
            Err(FileProblem::error(DiagnosticCode::MissingDescription, why).with_position(1, 1))
        }
        other => {
            let why = format!("the frontmatter must be a mapping, but is {}", other.kind());
            Err(FileProblem::error(DiagnosticCode::YamlSyntax, why).with_position(2, 1))
        }
    }
}

/// Repairs the YAML. Returns the error that the repair cannot mend.
fn parse_repaired<'a>(
    yaml: &'a str,
    error: YamlError,
    decides: impl Fn(&str) -> bool,
    problems: &mut Vec<FileProblem>,
) -> Result<ParsedYaml<'a>, YamlError> {
    // Quotes would hide that a well-formed text has no value.
    let quotable = Some(yaml).filter(|_| error.kind == YamlErrorKind::Syntax);
    let (mut text, quoted, result) = match quotable.and_then(yaml_repair::quote_broken_values) {
        Some((text, quoted)) => {
            let result = yaml::parse(&text);
            (Cow::from(text), quoted, result)
        }
        None => (yaml.into(), Vec::new(), Err(error)),
    };

    let mut omitted = Vec::new();
    let value = result.or_else(|error| {
        let Some(blanked) = yaml_repair::blank_broken_entries(&text, &error, decides) else {
            return Err(error);
        };
        omitted = blanked.1;
        text = blanked.0.into();
        yaml::parse(&text).map_err(|_| error)
    })?;

    let repairs = [
        (
            quoted,
            "repaired by quoting the values of",
            "; quote them in the file",
        ),
        (
            omitted,
            LEFT_OUT,
            ", which are not valid YAML; correct them in the file",
        ),
    ];
    for (entries, repair, advice) in repairs {
        if let Some((line, _)) = entries.first() {
            let keys = text::quote_words(entries.iter().map(|(_, key)| key.as_str()));
            let why = format!("{repair} {keys}{advice}");
            let problem = FileProblem::warning(DiagnosticCode::YamlRepaired, why);
            problems.push(problem.with_position(line + 1, 1));
        }
    }
    Ok(ParsedYaml { text, value })
}

#[cfg(test)]
mod tests;
